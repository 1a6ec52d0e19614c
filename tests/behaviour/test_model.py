"""The data model as it comes out of an agent (A2A 1.0 §3.7, §4.1, §4.2).

The harness holds every answer of every test against the table in `shapes`; here are the rules that a table cannot say.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.behaviour.agents import ENDS, Puppet, asks, end, hello, make_agent, says
from tests.behaviour.harness import Json, data, message, state_of, text_of
from tests.behaviour.serving import Serve, direct_messages, every_store, over, unknown_ids
from tests.behaviour.shapes import STATES
from tieline import Artifact, Message, Part, Role, TaskState, TaskStatus, Turn
from tieline.types import encode

ALL_BYTES = bytes(range(256))
PARTS: list[Json] = [
    {"text": "text", "mediaType": "text/markdown", "filename": "a.md", "metadata": {"n": 1}},
    {
        "raw": base64.b64encode(ALL_BYTES).decode(),
        "mediaType": "application/octet-stream",
        "filename": "b.bin",
        "metadata": {"n": 2},
    },
    {"url": "https://files.example/c?d=e", "mediaType": "image/png", "filename": "c.png", "metadata": {"n": 3}},
    {"data": {"d": [1, None]}, "mediaType": "application/json", "filename": "d.json", "metadata": {"n": 4}},
    {"text": ""},
    {"raw": ""},
    {"data": None},
]
"""Parts of every kind, with all that can stand beside the content."""


def anything(function: Any) -> Any:
    return make_agent(function, input_modes=("*/*",))


async def echoes(turn: Turn) -> Any:
    """Gives back every part that it was sent, as an artifact, a status message and a direct piece of the answer."""
    yield Artifact("given", turn.parts, "a name", "What was sent.", {"k": "v"}, ("urn:x",))
    yield TaskStatus(TaskState.WORKING, Message("said", Role.AGENT, turn.parts, metadata={"k": "v"}))
    for part in turn.parts:
        yield part
    await turn.complete(*turn.parts)


# --- nothing is lost --------------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement(
    "model.same-in-every-binding",
    "model.part-media-type",
    "model.part-one-content",
    "model.part-data-any-json",
    "model.artifact-fields",
)
async def test_every_kind_of_part_comes_through_with_all_its_fields_both_ways(serve: Serve) -> None:
    agent = await serve(anything(echoes))
    stream = await agent.stream(PARTS)
    events = await stream.rest()
    task = await agent.get(events[0]["task"]["id"])
    assert task["history"][0]["parts"] == PARTS
    given = {
        "artifactId": "given",
        "name": "a name",
        "description": "What was sent.",
        "parts": PARTS,
        "metadata": {"k": "v"},
        "extensions": ["urn:x"],
    }
    assert task["artifacts"][0] == given
    assert task["artifacts"][1]["parts"] == PARTS
    assert task["status"]["message"]["parts"] == PARTS
    updates = [event["artifactUpdate"]["artifact"] for event in events if "artifactUpdate" in event]
    assert updates[0] == given
    assert [part for update in updates[1:] for part in update["parts"]] == PARTS


@unknown_ids
@every_store
@pytest.mark.requirement("model.same-in-every-binding", "model.message-fields", "model.role-of-sender")
async def test_agent_gets_every_field_of_the_message_and_the_request(serve: Serve) -> None:
    seen: list[tuple[Message, Any, Any]] = []

    async def looks(turn: Turn) -> str:
        seen.append((turn.message, turn.metadata, turn.accepts))
        return "seen"

    agent = await serve(anything(looks))
    sent = message(
        PARTS,
        contextId="c",
        metadata={"m": 1},
        extensions=["urn:a", "urn:b"],
        referenceTaskIds=["t1", "t2"],
    )
    task = await agent.task(
        sent, metadata={"r": 2}, configuration={"acceptedOutputModes": ["text/plain"], "historyLength": 5}
    )
    got, metadata, accepts = seen[0]
    assert json.loads(encode(got)) == sent
    assert metadata == {"m": 1, "r": 2}
    assert accepts == ("text/plain",)
    assert task["history"] == [{**sent, "taskId": task["id"]}]


@over("jsonrpc", "rest")
@pytest.mark.requirement("model.part-raw-base64")
@pytest.mark.parametrize("size", [0, 1, 2, 3, 255, 100_000])
async def test_raw_bytes_cross_the_wire_in_base64_and_come_out_unchanged(serve: Serve, size: int) -> None:
    sent = (ALL_BYTES * (size // 256 + 1))[:size]
    got: list[bytes | None] = []

    async def returns_it(turn: Turn) -> Any:
        got.append(turn.files[0].raw)
        yield Part(raw=turn.files[0].raw, filename="back")

    agent = await serve(anything(returns_it))
    task = await agent.task({"raw": base64.b64encode(sent).decode(), "mediaType": "application/x-thing"})
    assert got == [sent]
    assert base64.b64decode(task["artifacts"][0]["parts"][0]["raw"], validate=True) == sent


# --- tasks ------------------------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement("model.task-fields", "model.task-states", "model.terminal-is-final")
@pytest.mark.parametrize("state", ENDS)
async def test_task_goes_from_submitted_through_working_to_one_end(serve: Serve, state: str) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream = await agent.stream()
    act = await puppet.next()
    act.tell("so far", asks("More?"))
    events = await stream.rest()
    task_id = events[0]["task"]["id"]
    answer = await agent.stream("yes", taskId=task_id)
    events.append(await answer.next())
    await end(agent, task_id, act, state)
    events += await answer.rest()
    states = [state_of(event) for event in events if state_of(event)]
    assert states == ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", state]
    for shown in (await agent.get(task_id), *(await agent.list())["tasks"]):
        assert (shown["id"], state_of(shown)) == (task_id, state)


@pytest.mark.requirement("model.task-states")
@pytest.mark.parametrize("state", [TaskState.SUBMITTED, TaskState.UNSPECIFIED])
async def test_agent_cannot_put_a_task_into_a_state_that_is_not_its_to_give(serve: Serve, state: TaskState) -> None:
    async def strange(turn: Turn) -> Any:
        yield TaskStatus(state)

    agent = await serve(strange)
    events = await (await agent.stream()).rest()
    assert state_of(events[-1]) == "FAILED"
    assert all(event["statusUpdate"]["status"]["state"] in STATES for event in events if "statusUpdate" in event)


@every_store
@pytest.mark.requirement("model.terminal-is-final", "stream.closes-at-terminal")
async def test_nothing_that_an_agent_says_behind_the_end_is_told(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    stream = await agent.stream()
    act = await puppet.next()
    act.tell("before", lambda turn: turn.complete("the end"), says("still here"), "and here")
    act.end()
    events = await stream.rest()
    assert state_of(events[-1]) == "COMPLETED"
    await act.stopped.wait()
    task = await agent.get(events[0]["task"]["id"])
    assert (state_of(task), text_of(task)) == ("COMPLETED", "before")
    assert text_of(task["status"]["message"]) == "the end"


@pytest.mark.requirement("model.terminal-is-final")
async def test_first_of_two_ends_wins(serve: Serve) -> None:
    async def ends_twice(turn: Turn) -> Any:
        await turn.complete("done")
        raise RuntimeError("and then it broke")

    agent = await serve(ends_twice)
    task = await agent.task()
    assert (state_of(task), text_of(task["status"]["message"])) == ("COMPLETED", "done")
    assert await agent.get(task["id"]) == task


@pytest.mark.requirement("model.update-fields", "model.task-fields")
async def test_every_update_names_its_task_and_context_and_every_status_its_time(serve: Serve) -> None:
    agent = await serve(anything(echoes))
    events = await (await agent.stream(PARTS)).rest()
    task = events[0]["task"]
    for event in events[1:]:
        assert (data(event)["taskId"], data(event)["contextId"]) == (task["id"], task["contextId"])
    times = [event["statusUpdate"]["status"]["timestamp"] for event in events if "statusUpdate" in event]
    assert times == sorted(times)
    assert all(times)


# --- messages ---------------------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement("model.role-of-sender", "model.agent-message-ids", "model.message-fields")
async def test_messages_in_a_task_have_the_role_of_their_sender_and_the_ids_of_the_task(serve: Serve) -> None:
    async def talks(turn: Turn) -> Any:
        await turn.status("reading")
        await turn.ask("Which one?")
        await turn.complete("done")

    agent = await serve(talks)
    stream = await agent.stream("begin")
    events = await stream.rest()
    task_id = events[0]["task"]["id"]
    done = await agent.task("left", taskId=task_id)
    said = [event["statusUpdate"]["status"].get("message") for event in events if "statusUpdate" in event]
    of_agent = [m for m in said if m] + [done["status"]["message"], done["history"][1]]
    of_user = [done["history"][0], done["history"][2]]
    assert [m["role"] for m in of_agent] == ["ROLE_AGENT"] * 4
    assert [m["role"] for m in of_user] == ["ROLE_USER"] * 2
    for m in of_agent + of_user:
        assert (m["taskId"], m["contextId"]) == (task_id, done["contextId"])


@pytest.mark.requirement("model.role-of-sender", "model.message-fields", "model.agent-message-ids")
async def test_message_that_an_agent_builds_itself_goes_out_as_the_agents_with_an_id(serve: Serve) -> None:
    async def builds(turn: Turn) -> Any:
        wrong = Message("", Role.USER, (Part(text="mine"),), context_id="another", task_id="another")
        yield TaskStatus(TaskState.WORKING, wrong)
        yield TaskStatus(TaskState.INPUT_REQUIRED, wrong)

    agent = await serve(builds)
    stream = await agent.stream()
    events = await stream.rest()
    task = events[0]["task"]
    for event in events[-2:]:
        m = event["statusUpdate"]["status"]["message"]
        assert m["role"] == "ROLE_AGENT"
        assert m["messageId"]
        assert (m["taskId"], m["contextId"]) == (task["id"], task["contextId"])


@direct_messages
@pytest.mark.requirement("model.role-of-sender", "model.message-fields", "model.agent-message-ids")
async def test_direct_message_that_an_agent_builds_itself_goes_out_as_the_agents_with_its_context(serve: Serve) -> None:
    async def builds(turn: Turn) -> Message:
        return Message("", Role.USER, (Part(text="mine"),), context_id="another", task_id="another")

    agent = await serve(builds)
    answer = (await agent.send(contextId="c"))["message"]
    assert answer["role"] == "ROLE_AGENT"
    assert answer["messageId"]
    assert answer["contextId"] == "c"
    assert "taskId" not in answer


@pytest.mark.requirement("model.agent-message-ids", "send.task-or-message")
async def test_reply_of_an_agent_that_has_a_task_already_ends_the_task(serve: Serve) -> None:
    async def late(turn: Turn) -> Any:
        await turn.status("thinking")
        yield turn.reply("At last.")

    agent = await serve(late)
    task = await agent.task()
    assert state_of(task) == "COMPLETED"
    said = task["status"]["message"]
    assert (text_of(said), said["taskId"], said["contextId"]) == ("At last.", task["id"], task["contextId"])
    assert said["role"] == "ROLE_AGENT"


# --- artifacts --------------------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement("model.artifact-append", "model.artifact-last-chunk", "model.artifact-id-unique")
async def test_chunks_are_added_to_their_artifact_and_the_last_one_says_so(serve: Serve) -> None:
    async def writes(turn: Turn) -> Any:
        async with turn.artifact("a.csv", media_type="text/csv", description="A table.") as out:
            await out.write("x,y\n")
            await out.write("1,2\n")
            await out.write("3,4\n", last=True)

    agent = await serve(writes)
    events = await (await agent.stream()).rest()
    updates = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    assert [update.get("append", False) for update in updates] == [False, True, True]
    assert [update.get("lastChunk", False) for update in updates] == [False, False, True]
    assert len({update["artifact"]["artifactId"] for update in updates}) == 1
    assert (updates[0]["artifact"]["name"], updates[0]["artifact"]["description"]) == ("a.csv", "A table.")
    task = await agent.get(events[0]["task"]["id"])
    (artifact,) = task["artifacts"]
    assert (artifact["name"], artifact["description"], text_of(artifact)) == ("a.csv", "A table.", "x,y\n1,2\n3,4\n")
    assert {part["mediaType"] for part in artifact["parts"]} == {"text/csv"}


@pytest.mark.requirement("model.artifact-last-chunk")
async def test_artifact_that_comes_in_one_piece_is_told_to_be_whole(serve: Serve) -> None:
    async def gives(turn: Turn) -> Any:
        yield Artifact("a", (Part(text="whole"),))

    for function in (gives, hello):
        agent = await serve(function)
        events = await (await agent.stream()).rest()
        (update,) = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
        assert update["lastChunk"] is True


@every_store
@pytest.mark.requirement("model.artifact-append", "model.artifact-id-unique")
async def test_update_without_append_begins_the_artifact_anew(serve: Serve) -> None:
    async def rewrites(turn: Turn) -> Any:
        yield Artifact("a", (Part(text="draft"),), "one", "Not yet.", {"draft": True})
        yield Artifact("b", (Part(text="other"),))
        yield Artifact("a", (Part(text="final"), Part(data=1)), "two")

    agent = await serve(rewrites)
    stream = await agent.stream()
    events = await stream.rest()
    task = await agent.get(events[0]["task"]["id"])
    assert task["artifacts"] == [
        {"artifactId": "a", "name": "two", "parts": [{"text": "final"}, {"data": 1}]},
        {"artifactId": "b", "parts": [{"text": "other"}]},
    ]
    updates = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    assert [update.get("append", False) for update in updates] == [False] * 3


@every_store
@pytest.mark.requirement("model.artifact-append")
async def test_interleaved_artifacts_each_get_their_own_chunks(serve: Serve) -> None:
    async def weaves(turn: Turn) -> Any:
        async with turn.artifact("a", artifact_id="a") as a, turn.artifact("b", artifact_id="b") as b:
            for number in range(50):
                await a.write(f"a{number} ")
                await b.write({"n": number})
                await b.write(bytes([number]))
                yield f"c{number} "

    agent = await serve(weaves)
    stream = await agent.stream()
    events = await stream.rest()
    task = await agent.get(events[0]["task"]["id"])
    by_id = {artifact["artifactId"]: artifact for artifact in task["artifacts"]}
    assert len(by_id) == 3
    assert text_of(by_id["a"]) == "".join(f"a{number} " for number in range(50))
    assert [part["data"]["n"] for part in by_id["b"]["parts"][::2]] == list(range(50))
    assert [base64.b64decode(part["raw"])[0] for part in by_id["b"]["parts"][1::2]] == list(range(50))
    assert text_of(task["artifacts"][-1]) == "".join(f"c{number} " for number in range(50))
    # What a reader makes of the updates by the rules of the specification is what is stored.
    folded: dict[str, list[Json]] = {}
    for event in events:
        if "artifactUpdate" in event:
            update = event["artifactUpdate"]
            parts = update["artifact"]["parts"]
            if update.get("append"):
                folded[update["artifact"]["artifactId"]] += parts
            else:
                folded[update["artifact"]["artifactId"]] = list(parts)
    for id_, parts in folded.items():
        assert "".join(p.get("text", "") for p in parts) == text_of(by_id[id_])
        assert [p for p in parts if "text" not in p] == [p for p in by_id[id_]["parts"] if "text" not in p]


@every_store
@pytest.mark.requirement("model.artifact-id-unique")
async def test_artifacts_of_several_turns_of_one_task_have_ids_of_their_own(serve: Serve) -> None:
    async def answers(turn: Turn) -> Any:
        yield f"about {turn.text}"
        yield Artifact("given", (Part(text=turn.text),))
        if turn.text != "end":
            yield TaskStatus(TaskState.INPUT_REQUIRED)

    agent = await serve(answers)
    task = await agent.task("begin")
    for text in ("more", "end"):
        task = await agent.task(text, taskId=task["id"])
    ids = [artifact["artifactId"] for artifact in task["artifacts"]]
    assert len(set(ids)) == len(ids)
    assert [text_of(artifact) for artifact in task["artifacts"] if artifact.get("name") == "response"] == [
        "about begin",
        "about more",
        "about end",
    ]


# --- results and words ------------------------------------------------------------------------------------------------


@every_store
@pytest.mark.requirement("content.results-in-artifacts", "content.no-results-in-messages")
async def test_results_are_in_artifacts_and_words_in_messages(serve: Serve) -> None:
    async def works(turn: Turn) -> Any:
        await turn.status("working on it")
        yield "RESULT text"
        yield {"RESULT": 1}
        yield Part(raw=b"RESULT", filename="r.bin")
        yield Artifact("a", (Part(text="RESULT artifact"),))
        await turn.ask("Is that enough?")
        yield "RESULT more"
        await turn.complete("That was it.")

    agent = await serve(works)
    stream = await agent.stream("begin")
    events = await stream.rest()
    task = await agent.task("yes", taskId=events[0]["task"]["id"])
    words = json.dumps([task["history"], task["status"]]) + json.dumps(
        [event for event in events if "statusUpdate" in event]
    )
    assert "RESULT" not in words
    assert base64.b64encode(b"RESULT").decode() not in words
    results = json.dumps(task["artifacts"])
    assert results.count("RESULT") == 4
    assert base64.b64encode(b"RESULT").decode() in results
    assert [text_of(m) for m in task["history"]] == ["begin", "Is that enough?", "yes"]


@pytest.mark.requirement("content.results-in-artifacts")
@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("text", {"text": "text"}),
        ({"n": 1}, {"data": {"n": 1}}),
        ([1, 2], {"data": [1, 2]}),
        (Part(url="https://files.example/a"), {"url": "https://files.example/a"}),
        (b"\x00\x01", {"raw": "AAE="}),
    ],
    ids=["text", "dict", "list", "part", "bytes"],
)
async def test_what_an_agent_returns_is_a_result_like_what_it_yields(serve: Serve, given: Any, part: Json) -> None:
    async def returns(turn: Turn) -> Any:
        return given

    async def yields(turn: Turn) -> Any:
        yield given

    for function in (returns, yields):
        agent = await serve(function)
        task = await agent.task()
        assert state_of(task) == "COMPLETED"
        assert [artifact["parts"] for artifact in task["artifacts"]] == [[part]]


@pytest.mark.requirement("content.results-in-artifacts")
async def test_agent_that_gives_nothing_completes_without_artifacts(serve: Serve) -> None:
    async def nothing(turn: Turn) -> None:
        return None

    agent = await serve(nothing)
    task = await agent.task()
    assert state_of(task) == "COMPLETED"
    assert "artifacts" not in task
