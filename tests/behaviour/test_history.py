"""History length, and what of a history is echoed (A2A 1.0 §3.2.4)."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.behaviour.agents import Puppet, asks, begun, hello, make_agent
from tests.behaviour.harness import Json, Transport, message, refused, text_of
from tests.behaviour.serving import Serve, every_store, no_zero
from tieline import Message, Part, Role, TaskState, TaskStatus, Turn

WHOLE = ["begin", "1?", "one", "2?", "two", "3?"]
"""What has been said when `interviews` asks its third question; the question itself is the status message then."""

FILE = bytes(range(256)) * 40  # 10 KB: longer than what is echoed


async def interviews(turn: Turn) -> Any:
    """Asks three questions."""
    for number in (1, 2, 3):
        yield await turn.ask(f"{number}?")


async def interviewed(agent: Transport, **configuration: Any) -> Json:
    """A task that waits for its third answer; `configuration` is that of the last send."""
    task = await agent.task("begin")
    await agent.task("one", taskId=task["id"])
    return await agent.task("two", taskId=task["id"], configuration=configuration)


def texts(task: Json) -> list[str]:
    return [text_of(m) for m in task.get("history", ())]


@every_store
@pytest.mark.requirement("history.unset-is-unlimited", "history.same-everywhere")
async def test_without_a_length_all_of_the_history_is_given(serve: Serve) -> None:
    agent = await serve(interviews)
    task = await interviewed(agent)
    assert texts(task) == WHOLE[:-1]
    assert texts(await agent.get(task["id"])) == WHOLE[:-1]
    assert [texts(listed) for listed in (await agent.list())["tasks"]] == [WHOLE[:-1]]


@no_zero
@every_store
@pytest.mark.requirement("history.zero-is-none", "history.zero-omits-field", "history.same-everywhere")
async def test_length_of_zero_leaves_the_history_out(serve: Serve) -> None:
    agent = await serve(interviews)
    task = await interviewed(agent, historyLength=0)
    assert "history" not in task
    assert "history" not in await agent.get(task["id"], historyLength=0)
    assert all("history" not in listed for listed in (await agent.list(historyLength=0))["tasks"])
    assert texts(await agent.get(task["id"])) == WHOLE[:-1]  # it is left out, not lost


@every_store
@pytest.mark.requirement("history.most-recent", "history.same-everywhere")
@pytest.mark.parametrize("length", [1, 2, 4, 5, 6, 1000])
async def test_length_gives_at_most_so_many_messages_the_most_recent_ones(serve: Serve, length: int) -> None:
    agent = await serve(interviews)
    task = await interviewed(agent, historyLength=length)
    expected = WHOLE[:-1][-length:]
    assert texts(task) == expected
    assert texts(await agent.get(task["id"], historyLength=length)) == expected
    assert texts((await agent.list(historyLength=length))["tasks"][0]) == expected


@no_zero
@pytest.mark.requirement("history.zero-is-none", "history.same-everywhere")
async def test_immediate_send_heeds_the_length(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    configuration = {"returnImmediately": True, "historyLength": 0}
    assert "history" not in await agent.task(configuration=configuration)


@no_zero
@pytest.mark.requirement("history.zero-is-none", "history.most-recent")
async def test_task_at_the_head_of_a_streamed_send_heeds_the_length(serve: Serve) -> None:
    agent = await serve(interviews)
    stream = await agent.stream("begin", configuration={"historyLength": 0})
    task = (await stream.rest())[0]["task"]
    assert "history" not in task
    stream = await agent.stream("one", taskId=task["id"], configuration={"historyLength": 1})
    assert texts((await stream.rest())[0]["task"]) == ["one"]
    assert texts(await agent.get(task["id"])) == WHOLE[:3]


@pytest.mark.requirement("validation.out-of-range", "history.same-everywhere", "validation.names-parameter")
async def test_negative_length_is_refused_everywhere(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, _ = await begun(agent, puppet)
    with refused("InvalidParamsError") as refusal:
        await agent.get(task["id"], historyLength=-1)
    assert "negative" in refusal.violations["historyLength"]
    with refused("InvalidParamsError") as refusal:
        await agent.list(historyLength=-1)
    assert "negative" in refusal.violations["historyLength"]
    for call in (agent.send, agent.stream):
        with refused("InvalidParamsError") as refusal:
            await call("go", configuration={"historyLength": -1})
        assert "negative" in refusal.violations["configuration.historyLength"]
    assert puppet.runs == 1


@every_store
async def test_question_and_answer_stand_in_the_history_once_and_in_their_order(serve: Serve) -> None:
    agent = await serve(interviews)
    task = await interviewed(agent)
    done = await agent.task("three", taskId=task["id"])
    assert texts(done) == [*WHOLE, "three"]
    assert [m["role"] for m in done["history"]] == ["ROLE_USER", "ROLE_AGENT"] * 3 + ["ROLE_USER"]
    assert len({m["messageId"] for m in done["history"]}) == 7
    assert {(m["taskId"], m["contextId"]) for m in done["history"]} == {(task["id"], task["contextId"])}
    assert await agent.get(task["id"]) == done


@every_store
async def test_agent_that_is_started_anew_reads_the_history_before_its_message(serve: Serve) -> None:
    async def recalls(turn: Turn) -> Any:
        yield [[m.role.value, m.text] for m in turn.history]
        if turn.text != "end":
            yield TaskStatus(TaskState.INPUT_REQUIRED, Message("q", Role.AGENT, (Part(text="More?"),)))

    agent = await serve(recalls)
    task = await agent.task("begin")
    task = await agent.task("go on", taskId=task["id"])
    task = await agent.task("end", taskId=task["id"])
    said = [["ROLE_USER", "begin"], ["ROLE_AGENT", "More?"], ["ROLE_USER", "go on"], ["ROLE_AGENT", "More?"]]
    assert [artifact["parts"][0]["data"] for artifact in task["artifacts"]] == [[], said[:2], said]


# --- files ------------------------------------------------------------------------------------------------------------


def upload(**fields: Any) -> Json:
    raw = base64.b64encode(FILE).decode()
    part = {"raw": raw, "filename": "data.bin", "mediaType": "application/octet-stream", "metadata": {"n": 1}}
    return message([{"text": "Read this."}, part], **fields)


async def returns_it(turn: Turn) -> Any:
    """Gives the file back that it was sent, or the size of the one that it gets as an answer."""
    if turn.files:
        yield Part(raw=turn.files[0].raw, filename="back.bin", media_type="application/octet-stream")
    else:
        answer = await turn.ask("Where is the file?")
        yield {"bytes": len(answer.files[0].raw or b"")}


@every_store
@pytest.mark.requirement("history.unset-is-unlimited")
async def test_file_of_the_callers_is_not_echoed_where_nobody_asked_for_history(serve: Serve) -> None:
    agent = await serve(make_agent(returns_it, input_modes=("*/*",)))
    sent = upload()
    task = await agent.task(sent)
    for shown in (task, await agent.get(task["id"]), (await agent.list(includeArtifacts=True))["tasks"][0]):
        text, file = shown["history"][0]["parts"]
        assert text == {"text": "Read this."}
        assert (file["raw"], file["filename"], file["mediaType"]) == ("", "data.bin", "application/octet-stream")
        assert file["metadata"] == {"n": 1, "omittedBytes": len(FILE)}
        assert shown["artifacts"][0]["parts"][0]["raw"] == sent["parts"][1]["raw"]  # results are always whole


@every_store
@pytest.mark.requirement("history.most-recent")
async def test_file_of_the_callers_is_whole_where_history_is_asked_for(serve: Serve) -> None:
    agent = await serve(make_agent(returns_it, input_modes=("*/*",)))
    sent = upload()
    task = await agent.task(sent, configuration={"historyLength": 10})
    listed = await agent.list(historyLength=1)
    for shown in (task, await agent.get(task["id"], historyLength=1), listed["tasks"][0]):
        assert shown["history"][0]["parts"] == sent["parts"]


@every_store
async def test_streams_do_not_echo_a_file_of_the_callers(serve: Serve) -> None:
    agent = await serve(make_agent(returns_it, input_modes=("*/*",)))
    first = await (await agent.stream(upload())).rest()
    assert first[0]["task"]["history"][0]["parts"][1]["raw"] == ""

    task = await agent.task("no file yet")
    subscribed = await agent.subscribe(task["id"])
    await subscribed.next()
    answer = await agent.stream(upload(taskId=task["id"]))
    snapshot = (await answer.next())["task"]
    assert snapshot["history"][-1]["parts"][1]["raw"] == ""
    await answer.rest()
    await subscribed.rest()
    done = await agent.get(task["id"])
    assert done["artifacts"][0]["parts"] == [{"data": {"bytes": len(FILE)}}]
    assert done["history"][-1]["parts"][1]["raw"] == ""


async def test_short_file_is_echoed(serve: Serve) -> None:
    agent = await serve(make_agent(hello, input_modes=("*/*",)))
    part = {"raw": base64.b64encode(b"short").decode(), "mediaType": "text/plain"}
    task = await agent.task([{"text": "Ada"}, part])
    assert task["history"][0]["parts"][1] == part


async def test_long_file_of_the_agents_in_a_status_is_kept(serve: Serve) -> None:
    puppet = Puppet()
    agent = await serve(puppet)
    task, act = await begun(agent, puppet)
    act.tell(lambda turn: turn.ask("See this.", FILE))
    await agent.until(task["id"], "INPUT_REQUIRED")
    act.tell(asks("And?"))
    await agent.send("seen", taskId=task["id"])
    asked = (await agent.get(task["id"]))["history"][1]
    assert base64.b64decode(asked["parts"][1]["raw"]) == FILE
