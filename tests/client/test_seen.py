"""What a consumer is given of a stream that tells things again: every piece once, and in the end the whole task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.client.tasks import CONTEXT, TASK, appended, artifact, artifact_update, message, status, task
from tieline import Artifact, Message, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from tieline.client.seen import Seen
from tieline.engine.fold import Fold
from tieline.types import StreamEvent, TaskStatus

WORKING, COMPLETED = TaskState.WORKING, TaskState.COMPLETED


def given_of(*events: StreamEvent) -> list[StreamEvent]:
    seen = Seen()
    return [news for event in events for news in seen.take(event)]


def text_of(events: Sequence[StreamEvent]) -> str:
    return "".join(e.artifact.text for e in events if isinstance(e, TaskArtifactUpdateEvent))


# --- by example -------------------------------------------------------------------------------------------------------


def test_first_task_and_its_updates_pass_as_they_are() -> None:
    events: list[StreamEvent] = [
        task(),
        status(WORKING),
        artifact_update("a", "one "),
        appended("a", "two"),
        status(COMPLETED),
    ]
    assert given_of(*events) == events


def test_snapshot_behind_a_break_gives_only_the_text_not_yet_given() -> None:
    snapshot = task(WORKING, artifact("a", "one two three"))
    news = given_of(task(), status(WORKING), artifact_update("a", "one "), appended("a", "two"), snapshot)[4:]
    assert news == [appended("a", " three")]


def test_snapshot_that_keeps_chunks_apart_gives_the_same_as_one_that_joins_them() -> None:
    apart = task(WORKING, Artifact("a", (Part(text="one "), Part(text="two"), Part(text=" three"))))
    news = given_of(task(), status(WORKING), artifact_update("a", "one "), appended("a", "two"), apart)[4:]
    assert text_of(news) == " three"


def test_snapshot_with_nothing_new_gives_nothing() -> None:
    snapshot = task(WORKING, artifact("a", "one"))
    assert given_of(task(), status(WORKING), artifact_update("a", "one"), snapshot)[3:] == []


def test_snapshot_of_a_finished_task_gives_the_rest_and_then_the_end() -> None:
    snapshot = task(COMPLETED, artifact("a", "one two"), artifact("b", "more"))
    news = given_of(task(), artifact_update("a", "one "), snapshot)[2:]
    assert news == [appended("a", "two"), artifact_update("b", "more"), status(COMPLETED)]


@pytest.mark.requirement("rest.client-takes-final-task")
def test_last_snapshot_before_the_stream_closes_repeats_nothing() -> None:
    events: list[StreamEvent] = [task(), status(WORKING), artifact_update("a", "all of it"), status(COMPLETED)]
    assert given_of(*events, task(COMPLETED, artifact("a", "all of it"))) == events


def test_final_artifact_that_repeats_its_chunks_gives_nothing_again() -> None:
    whole = TaskArtifactUpdateEvent(TASK, CONTEXT, artifact("a", "one two"), last_chunk=True)
    assert given_of(task(), artifact_update("a", "one "), appended("a", "two"), whole)[3:] == []


def test_final_artifact_that_says_more_than_its_chunks_gives_the_rest_to_append() -> None:
    whole = TaskArtifactUpdateEvent(TASK, CONTEXT, artifact("a", "one two three"), last_chunk=True)
    news = given_of(task(), artifact_update("a", "one "), appended("a", "two"), whole)[3:]
    assert news == [replace(appended("a", " three"), last_chunk=True)]


def test_final_artifact_that_only_adds_metadata_gives_the_metadata_and_no_part() -> None:
    named = replace(artifact("a", "one"), name="Report", metadata={"pages": 1})
    news = given_of(task(), artifact_update("a", "one"), artifact_update_of(named))[2:]
    assert news == [artifact_update_of(replace(named, parts=()), append=True)]


def test_artifact_with_other_content_begins_anew() -> None:
    anew = artifact_update("a", "something else")
    assert given_of(task(), artifact_update("a", "one"), anew)[2:] == [anew]


def test_snapshot_with_other_content_begins_the_artifact_anew() -> None:
    news = given_of(task(), artifact_update("a", "one"), task(WORKING, artifact("a", "other")))
    assert artifact_update("a", "other") in news


def test_same_chunk_twice_with_append_is_two_chunks() -> None:
    events: list[StreamEvent] = [task(), artifact_update("a", "ha"), appended("a", "ha")]
    assert given_of(*events) == events


def test_data_and_files_are_not_given_twice() -> None:
    parts = (
        Part(text="a"),
        Part(data={"x": 1, "y": [None]}),
        Part(raw=b"\0\1", filename="f.bin"),
        Part(url="http://u"),
    )
    snapshot = task(WORKING, Artifact("a", (*parts, Part(text="z"))))
    chunks = [artifact_update_of(Artifact("a", (part,)), append=bool(n)) for n, part in enumerate(parts)]
    assert given_of(task(), status(WORKING), *chunks, snapshot)[6:] == [appended("a", "z")]


def test_data_whose_members_come_in_another_order_is_the_same_data() -> None:
    first = artifact_update_of(Artifact("a", (Part(data={"x": 1, "y": 2}),)))
    snapshot = task(WORKING, Artifact("a", (Part(data={"y": 2, "x": 1}),)))
    assert given_of(task(), status(WORKING), first, snapshot)[3:] == []


def test_integers_of_any_length_can_be_compared() -> None:
    first = artifact_update_of(Artifact("a", (Part(data=[10**40]),)))
    snapshot = task(WORKING, Artifact("a", (Part(data=[10**40]),)))
    assert given_of(task(), status(WORKING), first, snapshot)[3:] == []


def test_text_of_another_media_type_is_another_part() -> None:
    first = artifact_update_of(Artifact("a", (Part(text="x"),)))
    other = artifact_update_of(Artifact("a", (Part(text="x", media_type="text/html"),)))
    assert given_of(task(), first, other)[2:] == [other]


def test_status_message_that_was_given_is_not_given_again_by_a_snapshot() -> None:
    asked = status(TaskState.INPUT_REQUIRED, "Which?")
    snapshot = Task(TASK, replace(asked.status, timestamp="2030-01-01T00:00:00.000Z"), CONTEXT)
    assert given_of(task(), asked, snapshot) == [task(), asked]


def test_status_message_that_the_snapshot_brings_is_given() -> None:
    asked = status(TaskState.INPUT_REQUIRED, "Which?")
    assert given_of(task(), Task(TASK, asked.status, CONTEXT))[1:] == [asked]


def test_snapshot_without_the_status_message_is_no_news() -> None:
    events: list[StreamEvent] = [task(), status(WORKING, "reading")]
    assert given_of(*events, task(WORKING)) == events


def test_direct_message_is_all_there_is() -> None:
    seen = Seen()
    reply = message("hi")
    assert (seen.take(reply), seen.over, seen.message) == ((reply,), True, reply)


def test_message_in_the_middle_of_a_task_does_not_end_it() -> None:
    seen = Seen()
    for event in (task(), message("by the way")):
        seen.take(event)
    assert not seen.over


def test_stream_that_begins_with_an_update_tells_its_task() -> None:
    seen = Seen()
    seen.take(artifact_update("a", "x"))
    assert (seen.task_id, seen.context_id, seen.state) == (TASK, CONTEXT, None)


def test_first_task_is_given_even_when_its_id_was_known() -> None:
    assert Seen(TASK).take(task()) == (task(),)


# --- taken up again ---------------------------------------------------------------------------------------------------


def given_across(before: Sequence[StreamEvent], after: Sequence[StreamEvent]) -> list[StreamEvent]:
    """What is given of a stream that breaks and is taken up again, from there on."""
    seen = Seen()
    for event in before:
        seen.take(event)
    seen.resumed()
    return [news for event in after for news in seen.take(event)]


ONE_TWO: list[StreamEvent] = [task(), status(WORKING), artifact_update("a", "one "), appended("a", "two ")]


def test_replay_is_held_back_until_it_is_beyond_what_was_given() -> None:
    again = [artifact_update("a", "one "), appended("a", "two three "), appended("a", "four")]
    assert given_across(ONE_TWO, again) == [appended("a", "three "), appended("a", "four")]


def test_replay_that_turns_out_to_be_another_content_is_given_whole_and_anew() -> None:
    again = [artifact_update("a", "eins "), appended("a", "zwei "), appended("a", "drei ")]
    assert given_across(ONE_TWO, again) == [artifact_update("a", "eins zwei "), appended("a", "drei ")]


@pytest.mark.parametrize("state", [COMPLETED, TaskState.FAILED, TaskState.INPUT_REQUIRED])
def test_replay_that_is_shorter_when_the_task_rests_is_another_content(state: TaskState) -> None:
    named = artifact_update_of(replace(artifact("a", "o"), name="Report"))
    news = given_across(ONE_TWO, [named, appended("a", "n"), status(state)])
    whole = artifact_update_of(replace(artifact("a", "on"), name="Report"))
    assert news == [whole, status(state)]


def test_replay_that_breaks_off_and_begins_again_gives_nothing_twice() -> None:
    seen = Seen()
    told = [news for event in ONE_TWO for news in seen.take(event)]
    for upto in (3, 3, 3, None):
        seen.resumed()
        for again in [*ONE_TWO, appended("a", "three"), status(COMPLETED)][:upto]:
            told += seen.take(again)
    assert told == [*ONE_TWO, appended("a", "three"), status(COMPLETED)]


def test_replay_behind_a_snapshot_gives_nothing_twice() -> None:
    again = [task(WORKING, artifact("a", "one two three")), *ONE_TWO[2:], appended("a", "three"), appended("a", "!")]
    assert given_across(ONE_TWO, again) == [appended("a", "three"), appended("a", "!")]


def test_piece_that_goes_on_where_the_stream_broke_is_given() -> None:
    assert given_across(ONE_TWO, [appended("a", "three")]) == [appended("a", "three")]


def test_replay_of_what_the_agent_has_said_on_its_way_gives_nothing() -> None:
    said: list[StreamEvent] = [task(), status(WORKING, "reading"), status(WORKING, "thinking")]
    more = status(WORKING, "writing")
    assert given_across(said, [task(), status(TaskState.SUBMITTED), *said[1:], more]) == [more]


def test_status_with_metadata_is_given_though_it_is_the_last_one_again() -> None:
    marked = replace(status(WORKING), metadata={"done": 0.5})
    assert given_across([task(), status(WORKING)], [status(WORKING), marked]) == [marked]


def artifact_update_of(of: Artifact, *, append: bool = False) -> TaskArtifactUpdateEvent:
    return TaskArtifactUpdateEvent(TASK, CONTEXT, of, append)


# --- any stream, cut anywhere -----------------------------------------------------------------------------------------

_ids = st.sampled_from(["a", "b"])
_other_parts = st.sampled_from(
    [
        Part(data={"n": 1, "m": None}),
        Part(data=None),
        Part(raw=b"bytes", media_type="application/octet-stream"),
        Part(url="https://example.com/x", filename="x"),
    ]
)
_actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), _ids, st.integers(0, 3)),
        st.tuples(st.just("other"), _ids, _other_parts),
        st.tuples(st.just("say"), st.booleans(), st.none()),
        st.tuples(st.just("whole"), _ids, st.none()),
    ),
    max_size=12,
)
_anew = st.lists(st.tuples(st.integers(0, 12), _ids), max_size=2)


def server_log(actions: Sequence[tuple[str, object, object]], anew: Sequence[tuple[int, str]]) -> list[StreamEvent]:
    """A task's events. Every piece of text is one of its own, so that a repetition shows."""
    log: list[StreamEvent] = [task(TaskState.SUBMITTED), status(WORKING)]
    fold = Fold(task(TaskState.SUBMITTED))

    def tell(event: StreamEvent) -> None:
        fold.apply(event)
        log.append(event)

    fold.apply(log[1])
    for number, (kind, what, more) in enumerate(actions, 1):
        there = {a.artifact_id: a for a in fold.task().artifacts}
        for at, id_ in anew:
            if at + 1 == number and id_ in there:
                tell(artifact_update(id_, f"<anew {number} {id_}>"))
        if kind == "append":
            parts = tuple(Part(text=f"<{number}.{n}>") for n in range(int(str(more)))) or (Part(text=""),)
            tell(artifact_update_of(Artifact(str(what), parts), append=what in there))
        elif kind == "other":
            assert isinstance(more, Part)
            tell(artifact_update_of(Artifact(str(what), (more,)), append=what in there))
        elif kind == "say":
            tell(status(WORKING, f"<say {number}>" if what else None))
        elif what in there:
            tell(TaskArtifactUpdateEvent(TASK, CONTEXT, there[str(what)], last_chunk=True))
    tell(status(COMPLETED, "<done>"))
    return log


def task_at(log: Sequence[StreamEvent], count: int, *, apart: bool) -> Task:
    """The task behind the first `count` events, as a server shows it that joins chunks, or keeps them `apart`."""
    first = log[0]
    assert isinstance(first, Task)
    fold = Fold(first)
    for event in log[1:count]:
        fold.apply(event)
    told = fold.task()
    if not apart:
        return told
    return replace(told, artifacts=tuple(replace(a, parts=tuple(cut_up(a.parts))) for a in told.artifacts))


def cut_up(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        if part.text and len(part.text) > 1:
            yield replace(part, text=part.text[:1])
            yield replace(part, text=part.text[1:])
        else:
            yield part


def consumed(events: Sequence[StreamEvent]) -> Task:
    """What a consumer makes of the events that it is given."""
    first = events[0]
    assert isinstance(first, Task)
    fold = Fold(first)
    for event in events[1:]:
        assert not isinstance(event, (Task, Message))
        fold.apply(event)
    return fold.task()


def plain(told: Task) -> tuple[TaskState, list[tuple[str, list[object]]]]:
    """A task without regard to how its texts are cut into parts."""
    artifacts = []
    for a in told.artifacts:
        content: list[object] = []
        for part in a.parts:
            if part.text is None:
                content.append(part)
            elif content and isinstance(content[-1], str):
                content[-1] += part.text
            elif part.text:
                content.append(part.text)
        artifacts.append((a.artifact_id, content))
    return told.status.state, sorted(artifacts)


@given(
    actions=_actions,
    anew=_anew,
    cuts=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=3),
    apart=st.booleans(),
    last_snapshot=st.booleans(),
)
@pytest.mark.requirement("content.client-survives-lost-messages")
def test_stream_cut_anywhere_and_taken_up_by_a_snapshot_gives_the_whole_task_and_no_text_twice(
    actions: list[tuple[str, object, object]],
    anew: list[tuple[int, str]],
    cuts: list[tuple[int, int]],
    apart: bool,
    last_snapshot: bool,
) -> None:
    log = server_log(actions, anew)
    seen = Seen()
    told: list[StreamEvent] = []
    at = 0
    for length, missed in cuts:
        upto = min(at + 1 + length, len(log)) if not told else min(at + length, len(log))
        for event in log[at:upto]:
            told += seen.take(event)
        at = min(upto + missed, len(log))
        told += seen.take(task_at(log, at, apart=apart))
    for event in log[at:]:
        told += seen.take(event)
    if last_snapshot:
        told += seen.take(task_at(log, len(log), apart=apart))

    assert plain(consumed(told)) == plain(task_at(log, len(log), apart=False))
    assert seen.over
    says = Counter(
        e.status.message.message_id for e in told if isinstance(e, TaskStatusUpdateEvent) and e.status.message
    )
    assert set(says.values()) <= {1}
    if not anew:
        pieces = "".join(a.text for a in told[0].artifacts) if isinstance(told[0], Task) else ""
        pieces += text_of(told)
        assert sorted(pieces) == sorted("".join(a.text for a in task_at(log, len(log), apart=False).artifacts))


@given(actions=_actions, cuts=st.lists(st.integers(1, 20), max_size=3), whole_first=st.booleans())
def test_stream_cut_anywhere_and_replayed_from_the_beginning_gives_the_whole_task_and_no_text_twice(
    actions: list[tuple[str, object, object]], cuts: list[int], whole_first: bool
) -> None:
    log = server_log(actions, [])
    seen = Seen()
    told: list[StreamEvent] = []
    for length in cuts:
        for event in log[: min(length, len(log) - 1)]:
            told += seen.take(event)
        seen.resumed()
    for event in log if whole_first or not told else log[1:]:
        told += seen.take(event)

    assert plain(consumed(told)) == plain(task_at(log, len(log), apart=False))
    assert sorted(text_of(told)) == sorted("".join(a.text for a in task_at(log, len(log), apart=False).artifacts))
    says = Counter(
        e.status.message.message_id for e in told if isinstance(e, TaskStatusUpdateEvent) and e.status.message
    )
    assert set(says.values()) <= {1}


@given(actions=_actions)
def test_stream_without_a_break_differs_from_the_servers_only_in_repetitions(
    actions: list[tuple[str, object, object]],
) -> None:
    log = server_log(actions, [])
    repeated = [e for e in log if isinstance(e, TaskArtifactUpdateEvent) and e.last_chunk]
    assert given_of(*log) == [event for event in log if event not in repeated]


def test_status_of_a_snapshot_in_another_state_is_given() -> None:
    asked = TaskStatus(TaskState.AUTH_REQUIRED)
    assert given_of(task(), Task(TASK, asked, CONTEXT))[1:] == [TaskStatusUpdateEvent(TASK, CONTEXT, asked)]
