"""Folding: the quick one, the defining one and a naive one agree on every log, and no snapshot ever changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from tieline.engine import fold as fold_module
from tieline.engine.fold import TRANSITIONS, Fold, NotAllowed, fold, may_follow
from tieline.types import (
    Artifact,
    Message,
    Part,
    Role,
    StreamEvent,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    encode,
)

ENDS = [TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED]
ASKS = [TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED]
ON_THE_WAY = [TaskState.WORKING, *ASKS]

texts = st.text("ab é\n", max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
metadata = st.none() | st.dictionaries(st.sampled_from("xyz"), json_values, max_size=2)
text_parts = st.builds(
    Part,
    text=texts,
    media_type=st.sampled_from([None, None, None, "text/markdown"]),
    filename=st.sampled_from([None, None, None, "a.txt"]),
    metadata=st.sampled_from([None, None, None, {"k": 1}]),
)
other_parts = (
    st.builds(Part, data=json_values)
    | st.builds(Part, raw=st.binary(max_size=3), filename=st.sampled_from([None, "f"]))
    | st.builds(Part, url=st.just("https://a.example/f"))
)
parts = st.lists(text_parts | text_parts | other_parts, min_size=1, max_size=3).map(tuple)
artifacts = st.builds(
    Artifact,
    artifact_id=st.sampled_from(["1", "2", "3"]),
    parts=parts,
    name=st.sampled_from([None, None, "report", "response"]),
    description=st.sampled_from([None, None, "what it is"]),
    metadata=metadata,
    extensions=st.lists(st.sampled_from(["e1", "e2", "e3"]), max_size=2, unique=True).map(tuple),
)
messages = st.builds(
    Message, message_id=st.uuids().map(str), role=st.sampled_from([Role.USER, Role.AGENT]), parts=parts
)


def new_task() -> Task:
    heard = Message("m", Role.USER, (Part(text="begin"),))
    return Task("t", TaskStatus(TaskState.SUBMITTED), "c", history=(heard,))


def status(state: TaskState, message: Message | None = None) -> TaskStatusUpdateEvent:
    return TaskStatusUpdateEvent("t", "c", TaskStatus(state, message, "2026-01-01T00:00:00.000Z"))


def chunk(artifact: Artifact, *, append: bool = False) -> TaskArtifactUpdateEvent:
    return TaskArtifactUpdateEvent("t", "c", artifact, append)


def naive_fold(task: Task, event: StreamEvent) -> Task:
    """What the module's rules say, in the simplest words: everything is built anew for each event."""
    if isinstance(event, TaskStatusUpdateEvent):
        history = list(task.history)
        if task.status.state in ASKS and task.status.message is not None:
            history.append(task.status.message)
        return Task(task.id, event.status, task.context_id, task.artifacts, tuple(history), task.metadata)
    assert isinstance(event, TaskArtifactUpdateEvent)
    found = {artifact.artifact_id: artifact for artifact in task.artifacts}
    new = event.artifact
    old = found.get(new.artifact_id)
    found[new.artifact_id] = new if old is None or not event.append else naive_join(old, new)
    return Task(task.id, task.status, task.context_id, tuple(found.values()), task.history, task.metadata)


def naive_join(old: Artifact, new: Artifact) -> Artifact:
    joined = list(old.parts)
    for part in new.parts:
        last = joined[-1] if joined else None
        plain = last is not None and all(
            one.text is not None and one.metadata is None and one.filename is None for one in (last, part)
        )
        if last is not None and plain and last.media_type == part.media_type:
            joined[-1] = Part(text=f"{last.text}{part.text}", media_type=part.media_type)
        else:
            joined.append(part)
    merged = {**(old.metadata or {}), **(new.metadata or {})}
    return Artifact(
        old.artifact_id,
        tuple(joined),
        new.name or old.name,
        new.description or old.description,
        merged if new.metadata else old.metadata,
        tuple(dict.fromkeys((*old.extensions, *new.extensions))),
    )


def naive_hear(task: Task, message: Message) -> Task:
    asked = task.status.message if task.status.state in ASKS else None
    if asked is None:
        return replace(task, history=(*task.history, message))
    return replace(task, status=replace(task.status, message=None), history=(*task.history, asked, message))


class Folding(RuleBasedStateMachine):
    """One log, folded in four ways: read at every step, read now and then, by `fold` alone, and naively."""

    @initialize()
    def begin(self) -> None:
        self.naive = self.chain = new_task()
        self.read_always = Fold(new_task())
        self.read_sometimes = Fold(new_task())
        self.seen: list[tuple[Task, bytes]] = []

    def tell(self, event: StreamEvent) -> None:
        if self.naive.status.state.terminal:
            for one in (self.read_always, self.read_sometimes):
                with pytest.raises(NotAllowed):
                    one.apply(event)
            with pytest.raises(NotAllowed):
                fold(self.chain, event)
            return
        self.naive = naive_fold(self.naive, event)
        self.chain = fold(self.chain, event)
        self.read_always.apply(event)
        self.read_sometimes.apply(event)

    @rule(state=st.sampled_from(ON_THE_WAY), message=st.none() | messages)
    def go_on(self, state: TaskState, message: Message | None) -> None:
        self.tell(status(state, message))

    @rule(state=st.sampled_from([*ENDS, *ON_THE_WAY, *ON_THE_WAY]), message=st.none() | messages)
    def change(self, state: TaskState, message: Message | None) -> None:
        self.tell(status(state, message))

    @rule(artifact=artifacts)
    def give(self, artifact: Artifact) -> None:
        self.tell(chunk(artifact))

    @rule(artifact=artifacts)
    def give_more(self, artifact: Artifact) -> None:
        self.tell(chunk(artifact, append=True))

    @rule(pieces=st.lists(texts, min_size=1, max_size=5), id_=st.sampled_from("123"))
    def stream(self, pieces: list[str], id_: str) -> None:
        for piece in pieces:
            self.tell(chunk(Artifact(id_, (Part(text=piece),)), append=True))

    @precondition(lambda self: not self.naive.status.state.terminal)
    @rule(message=messages)
    def hear(self, message: Message) -> None:
        self.naive = naive_hear(self.naive, message)
        heard = Fold(self.chain)
        heard.add_message(message)
        self.chain = heard.task()
        self.read_always.add_message(message)
        self.read_sometimes.add_message(message)

    @rule(state=st.sampled_from([TaskState.SUBMITTED, TaskState.UNSPECIFIED]))
    def go_back(self, state: TaskState) -> None:
        with pytest.raises(NotAllowed):
            self.read_sometimes.apply(status(state))

    @rule()
    def read(self) -> None:
        task = self.read_sometimes.task()
        assert task == self.naive
        assert self.read_sometimes.task() is task
        self.seen.append((task, encode(task)))

    @invariant()
    def all_ways_agree(self) -> None:
        task = self.read_always.task()
        assert task == self.naive
        assert self.chain == self.naive
        assert self.read_always.state is self.read_sometimes.state is self.naive.status.state
        assert self.read_sometimes.status == self.naive.status
        self.seen.append((task, encode(task)))

    def teardown(self) -> None:
        for task, then in getattr(self, "seen", []):
            assert encode(task) == then, "a later event has altered a snapshot"


TestFolding = pytest.mark.requirement("model.terminal-is-final", "model.artifact-append")(Folding.TestCase)
TestFolding.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@pytest.mark.requirement("model.terminal-is-final")
@pytest.mark.parametrize("first", ENDS)
@pytest.mark.parametrize("second", [*ENDS, *ON_THE_WAY])
def test_the_first_terminal_state_wins(first: TaskState, second: TaskState) -> None:
    folded = Fold(new_task())
    folded.apply(status(first))
    ended = folded.task()
    for event in (status(second), chunk(Artifact("a", (Part(text="late"),)))):
        with pytest.raises(NotAllowed, match=first.value):
            folded.apply(event)
        with pytest.raises(NotAllowed, match=first.value):
            fold(ended, event)
    assert folded.task() is ended


@pytest.mark.parametrize("state", [TaskState.SUBMITTED, *ON_THE_WAY])
def test_a_task_or_a_message_is_no_update_of_a_task(state: TaskState) -> None:
    for event in (new_task(), Message("m", Role.AGENT, (Part(text="hi"),))):
        with pytest.raises(NotAllowed, match=type(event).__name__):
            may_follow(state, event)


def test_the_table_names_every_state_and_leads_nowhere_from_an_end() -> None:
    assert set(TRANSITIONS) == set(TaskState)
    for state, following in TRANSITIONS.items():
        assert not (state.terminal and following)
        assert not following & {TaskState.SUBMITTED, TaskState.UNSPECIFIED}
        if not state.terminal:
            assert following == {*ON_THE_WAY, *ENDS}


def test_a_refused_event_changes_nothing_not_even_the_snapshot() -> None:
    folded = Fold(new_task())
    folded.apply(chunk(Artifact("a", (Part(text="one"),))))
    before = folded.task()
    with pytest.raises(NotAllowed):
        folded.apply(status(TaskState.SUBMITTED))
    assert folded.task() is before


@given(pieces=st.lists(st.text(max_size=5), min_size=1, max_size=30), reads=st.sets(st.integers(0, 29)))
@settings(max_examples=100, deadline=None)
def test_chunks_of_one_text_are_one_part_wherever_the_task_is_read(pieces: list[str], reads: set[int]) -> None:
    folded = Fold(new_task())
    for index, piece in enumerate(pieces):
        folded.apply(chunk(Artifact("a", (Part(text=piece),)), append=index > 0))
        if index in reads:
            assert folded.task().artifacts[0].text == "".join(pieces[: index + 1])
    (artifact,) = folded.task().artifacts
    assert artifact.parts == (Part(text="".join(pieces)),)


@pytest.mark.parametrize(
    "other",
    [
        Part(text="b", media_type="text/markdown"),
        Part(text="b", metadata={"k": 1}),
        Part(text="b", filename="b.txt"),
        Part(data="b"),
        Part(raw=b"b"),
    ],
)
def test_a_part_that_says_more_than_its_text_stays_by_itself(other: Part) -> None:
    folded = Fold(new_task())
    for part in (Part(text="a"), Part(text="a"), other, Part(text="c"), Part(text="c")):
        folded.apply(chunk(Artifact("a", (part,)), append=True))
    assert folded.task().artifacts[0].parts == (Part(text="aa"), other, Part(text="cc"))


def test_a_question_joins_the_history_before_its_answer_and_what_is_said_on_the_way_does_not() -> None:
    question = Message("q", Role.AGENT, (Part(text="Which?"),))
    aside = Message("a", Role.AGENT, (Part(text="reading"),))
    answer = Message("x", Role.USER, (Part(text="This."),))
    folded = Fold(new_task())
    folded.apply(status(TaskState.WORKING, aside))
    folded.apply(status(TaskState.INPUT_REQUIRED, question))
    assert folded.task().status.message == question
    folded.add_message(answer)
    assert folded.task().status.message is None
    folded.apply(status(TaskState.WORKING))
    assert [message.message_id for message in folded.task().history] == ["m", "q", "x"]


def count_work(monkeypatch: pytest.MonkeyPatch, chunks: int, *, mixed: bool) -> Counter[str]:
    """How many values are made, and how much is put into them, while a log of `chunks` chunks is folded and read."""
    work: Counter[str] = Counter()

    def counting_replace(value: Any, **changes: Any) -> Any:
        made = replace(value, **changes)
        work["values"] += 1
        for name in made.__struct_fields__:
            held = getattr(made, name)
            work["moved"] += len(held) if isinstance(held, (str, bytes, tuple, dict)) and name in changes else 1
        return made

    events: list[TaskArtifactUpdateEvent] = []
    for number in range(chunks):
        part = Part(data=number) if mixed and number % 3 == 2 else Part(text="0123456789")
        events.append(chunk(Artifact("a", (part,), None if number else "response"), append=number > 0))
    with monkeypatch.context() as patch:
        patch.setattr(fold_module, "replace", counting_replace)
        folded = Fold(new_task())
        for event in events:
            folded.apply(event)
        folded.task()
    return work


@pytest.mark.parametrize("mixed", [False, True], ids=["text", "text and data"])
def test_folding_n_chunks_is_work_for_n_chunks(monkeypatch: pytest.MonkeyPatch, mixed: bool) -> None:
    few = count_work(monkeypatch, 300, mixed=mixed)
    many = count_work(monkeypatch, 3000, mixed=mixed)
    for kind in few | many:
        assert many[kind] <= 11 * few[kind] + 20, f"{kind}: {few[kind]} for 300 chunks, {many[kind]} for 3,000"
