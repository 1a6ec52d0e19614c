"""A2A 0.1 over a socket: `tasks/send` beside the other versions on one endpoint, with no client of ours."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import tieline
from tests.server.agents import asker, mixed, replier, worker
from tests.server.raw import JSON, Frame, Pairs, Wire, in_loop, request, serve
from tests.wire.v01_schema import faults
from tieline.errors import TaskNotFound
from tieline.wire.details import error_from_details

PLAIN: Pairs = [("Content-Type", "application/json")]


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"type": "text", "text": text}]}


def params(id_: str, text: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, "sessionId": "s-1", "message": message(text), **more}


def envelope(method: str, params: Any, id_: Any = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode()


async def call(port: int, method: str, params: Any, headers: Pairs = PLAIN, id_: Any = "c-1") -> Any:
    """The answer; that to a request for a stream, when it is refused, is the only frame of one."""
    async with Wire(port) as wire:
        await wire.write("POST", "/", envelope(method, params, id_), headers)
        status, given = await wire.head()
        if given["content-type"] == "text/event-stream":
            (answer,) = [frame.data async for frame in wire.frames()]
        else:
            answer = json.loads(await wire.body())
    assert (status, answer["jsonrpc"], answer["id"]) == (200, "2.0", id_)
    return answer


async def result(port: int, method: str, params: Any, headers: Pairs = PLAIN) -> Any:
    """The task that comes back, which is one of 0.1."""
    answer = await call(port, method, params, headers)
    assert "error" not in answer, answer
    assert list(faults("Task", answer["result"])) == []
    return answer["result"]


async def code(port: int, method: str, params: Any, headers: Pairs = PLAIN) -> int:
    answer = await call(port, method, params, headers)
    assert "result" not in answer, answer
    assert isinstance(answer["error"]["message"], str)
    found: int = answer["error"]["code"]
    return found


def text_of(task: Any) -> str:
    """What a task's artifacts say, else its status message."""
    parts = [part for artifact in task.get("artifacts", ()) for part in artifact["parts"]]
    return "".join(part["text"] for part in parts or task["status"].get("message", {"parts": ()})["parts"])


class Stream:
    """An open stream: its frames one by one."""

    def __init__(self, wire: Wire) -> None:
        self._frames = wire.frames()
        self.id = "s-1"

    @classmethod
    async def open(cls, wire: Wire, method: str, params: Any, path: str = "/") -> Stream:
        await wire.write("POST", path, envelope(method, params, "s-1"), PLAIN)
        status, headers = await wire.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        return cls(wire)

    async def next(self) -> Any:
        frame = await anext(self._frames)
        while frame.comment is not None:
            frame = await anext(self._frames)
        return self._event(frame)

    async def rest(self) -> list[Any]:
        return [self._event(frame) async for frame in self._frames if frame.comment is None]

    def _event(self, frame: Frame) -> Any:
        assert (frame.data["jsonrpc"], frame.data["id"]) == ("2.0", self.id)
        event = frame.data["result"]
        type_ = "TaskArtifactUpdateEvent" if "artifact" in event else "TaskStatusUpdateEvent"
        assert list(faults(type_, event)) == []
        return event


# --- tasks/send -------------------------------------------------------------------------------------------------------


@in_loop
async def test_an_unknown_id_makes_a_task_of_that_id() -> None:
    async with serve(tieline.app(worker())) as port:
        task = await result(port, "tasks/send", params("t-1", "it"))
        assert (task["id"], task["sessionId"], task["status"]["state"]) == ("t-1", "s-1", "completed")
        assert text_of(task) == "did it"
        assert task["history"] == [message("it")]
        assert await result(port, "tasks/get", {"id": "t-1"}) == task


@in_loop
async def test_an_agent_that_only_replies_makes_a_task_too() -> None:
    async with serve(tieline.app(replier())) as port:
        task = await result(port, "tasks/send", params("t-1", "hello"))
        assert (task["id"], task["status"]["state"], text_of(task)) == ("t-1", "completed", "hello")
        assert (await result(port, "tasks/get", {"id": "t-1"}))["status"]["state"] == "completed"


@in_loop
async def test_a_task_without_a_session_is_given_one() -> None:
    async with serve(tieline.app(worker())) as port:
        task = await result(port, "tasks/send", {"id": "t-1", "message": message("it")})
        assert task["sessionId"]


@in_loop
async def test_a_known_id_continues_the_task_that_asks() -> None:
    async with serve(tieline.app(asker())) as port:
        task = await result(port, "tasks/send", params("t-1", "begin"))
        assert (task["status"]["state"], text_of(task)) == ("input-required", "What?")
        task = await result(port, "tasks/send", params("t-1", "this"))
        assert (task["id"], task["status"]["state"], text_of(task)) == ("t-1", "completed", "you said this")
        assert [turn["role"] for turn in task["history"]] == ["user", "agent", "user"]


@in_loop
async def test_an_ended_task_takes_no_more_messages() -> None:
    async with serve(tieline.app(worker())) as port:
        before = await result(port, "tasks/send", params("t-1", "it"))
        assert await code(port, "tasks/send", params("t-1", "again")) == -32002
        assert await code(port, "tasks/sendSubscribe", params("t-1", "again")) == -32002
        assert await code(port, "tasks/cancel", {"id": "t-1"}) == -32002
        assert await result(port, "tasks/get", {"id": "t-1"}) == before


@pytest.mark.parametrize(
    ("text", "state", "metadata"),
    [("fail", "failed", None), ("crash", "failed", None), ("reject", "failed", {"tieline/state": "rejected"})],
)
@in_loop
async def test_a_task_that_comes_to_nothing_has_failed(text: str, state: str, metadata: Any) -> None:
    async with serve(tieline.app(mixed())) as port:
        task = await result(port, "tasks/send", params("t-1", text))
        assert (task["status"]["state"], task.get("metadata")) == (state, metadata)


@in_loop
async def test_parts_of_all_kinds_go_in_and_come_out_with_the_tags_of_0_1() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "echo"},
        {"type": "file", "file": {"name": "a.csv", "mimeType": "text/csv", "bytes": "YSxi"}},
        {"type": "file", "file": {"name": "b", "mimeType": "text/plain", "uri": "https://caller.example/b"}},
        {"type": "data", "data": {"big": 2**70, "words": "é 漢字"}},
    ]
    kinds = [{"kind": part["type"], **part} for part in parts]
    for part in kinds:
        del part["type"]
    async with serve(tieline.app(mixed())) as port:
        for id_, given in (("t-1", parts), ("t-2", kinds)):
            task = await result(port, "tasks/send", {"id": id_, "message": {"role": "user", "parts": given}})
            assert [part for artifact in task["artifacts"] for part in artifact["parts"]] == parts


@pytest.mark.parametrize("path", ["/", "/subscribe"])
@in_loop
async def test_a_message_may_come_to_either_path(path: str) -> None:
    async with serve(tieline.app(worker())) as port:
        reply = await request(port, "POST", path, envelope("tasks/send", params("t-1", "it")), PLAIN)
        assert reply.json()["result"]["status"]["state"] == "completed"


# --- other operations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/resubscribe"])
@in_loop
async def test_an_id_that_nobody_has_named_is_not_found(method: str) -> None:
    async with serve(tieline.app(worker())) as port:
        assert await code(port, method, {"id": "nobody's"}) == -32001


@in_loop
async def test_history_length_gives_the_last_messages() -> None:
    async with serve(tieline.app(asker())) as port:
        await result(port, "tasks/send", params("t-1", "begin"))
        task = await result(port, "tasks/send", params("t-1", "this", historyLength=1))
        assert task["history"] == [message("this")]
        assert "history" not in await result(port, "tasks/get", {"id": "t-1", "historyLength": 0})
        assert len((await result(port, "tasks/get", {"id": "t-1", "historyLength": 2}))["history"]) == 2
        assert len((await result(port, "tasks/get", {"id": "t-1"}))["history"]) == 3
        assert await code(port, "tasks/get", {"id": "t-1", "historyLength": -1}) == -32602


@in_loop
async def test_a_task_at_work_is_canceled() -> None:
    async with serve(tieline.app(mixed())) as port, Wire(port) as wire:
        stream = await Stream.open(wire, "tasks/sendSubscribe", params("t-1", "wait"))
        while (await stream.next())["status"]["state"] != "working":
            pass
        assert (await result(port, "tasks/get", {"id": "t-1"}))["status"]["state"] == "working"
        assert (await result(port, "tasks/cancel", {"id": "t-1"}))["status"]["state"] == "canceled"
        last = (await stream.rest())[-1]
        assert (last["status"]["state"], last["final"]) == ("canceled", True)


@in_loop
async def test_a_webhook_is_refused_where_there_are_none() -> None:
    config = {"url": "https://caller.example/hook"}
    async with serve(tieline.app(worker())) as port:
        await result(port, "tasks/send", params("t-1", "it"))
        webhook = {"id": "t-1", "pushNotificationConfig": config}
        assert await code(port, "tasks/pushNotification/set", webhook) == -32003
        assert await code(port, "tasks/pushNotification/get", {"id": "t-1"}) == -32003
        assert await code(port, "tasks/send", params("t-2", "it", pushNotification=config)) == -32003
        assert await code(port, "tasks/get", {"id": "t-2"}) == -32001


@in_loop
async def test_an_agent_that_does_not_stream_says_so() -> None:
    async with serve(tieline.app(worker(streaming=False))) as port:
        assert await code(port, "tasks/sendSubscribe", params("t-1", "it")) == -32004
        assert await code(port, "tasks/get", {"id": "t-1"}) == -32001


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/subscribe"])
@in_loop
async def test_a_stream_tells_statuses_and_artifacts_and_which_is_the_last(path: str) -> None:
    async with serve(tieline.app(worker())) as port, Wire(port) as wire:
        stream = await Stream.open(wire, "tasks/sendSubscribe", params("t-1", "it"), path)
        events = await stream.rest()
        assert {event["id"] for event in events} == {"t-1"}
        states = [event["status"]["state"] for event in events if "status" in event]
        assert (states[0], states[-1]) == ("submitted", "completed")
        assert [event["final"] for event in events if "status" in event] == [False] * (len(states) - 1) + [True]
        assert "status" in events[-1]
        artifacts = [event["artifact"] for event in events if "artifact" in event]
        assert {artifact["index"] for artifact in artifacts} == {0}
        assert [artifact.get("append", False) for artifact in artifacts] == [False] + [True] * (len(artifacts) - 1)
        assert "".join(part["text"] for artifact in artifacts for part in artifact["parts"]) == "did it"
        assert text_of(await result(port, "tasks/get", {"id": "t-1"})) == "did it"


@in_loop
async def test_a_stream_ends_when_the_agent_asks_and_the_answer_opens_the_next() -> None:
    async with serve(tieline.app(asker())) as port:
        async with Wire(port) as wire:
            events = await (await Stream.open(wire, "tasks/sendSubscribe", params("t-1", "begin"))).rest()
            assert (events[-1]["status"]["state"], events[-1]["final"]) == ("input-required", True)
        async with Wire(port) as wire:
            events = await (await Stream.open(wire, "tasks/sendSubscribe", params("t-1", "this"))).rest()
            assert (events[-1]["status"]["state"], events[-1]["final"]) == ("completed", True)
            assert [event["final"] for event in events if "status" in event].count(True) == 1


@in_loop
async def test_an_agent_that_only_replies_ends_its_stream_with_a_status() -> None:
    async with serve(tieline.app(replier())) as port, Wire(port) as wire:
        events = await (await Stream.open(wire, "tasks/sendSubscribe", params("t-1", "hello"))).rest()
        last = events[-1]
        assert (last["id"], last["status"]["state"], last["final"]) == ("t-1", "completed", True)
        assert text_of(last) == "hello"


@in_loop
async def test_a_stream_that_drops_is_taken_up_again_with_the_task_as_it_is() -> None:
    async with serve(tieline.app(mixed())) as port:
        async with Wire(port) as wire:
            stream = await Stream.open(wire, "tasks/sendSubscribe", params("t-1", "wait"))
            while (await stream.next())["status"]["state"] != "working":
                pass
        async with Wire(port) as wire:
            stream = await Stream.open(wire, "tasks/resubscribe", {"id": "t-1"})
            first = await stream.next()
            assert (first["id"], first["status"]["state"], first["final"]) == ("t-1", "working", False)
            await result(port, "tasks/cancel", {"id": "t-1"})
            assert (await stream.rest())[-1]["final"] is True
        async with Wire(port) as wire:  # what has ended meanwhile is picked up, too
            (last,) = await (await Stream.open(wire, "tasks/resubscribe", {"id": "t-1"})).rest()
            assert (last["status"]["state"], last["final"]) == ("canceled", True)
        assert (await result(port, "tasks/get", {"id": "t-1"}))["status"]["state"] == "canceled"


# --- beside other versions --------------------------------------------------------------------------------------------


@in_loop
async def test_a_task_of_0_1_is_read_in_1_0_and_0_3() -> None:
    async with serve(tieline.app(worker())) as port:
        await result(port, "tasks/send", params("t-1", "it"))
        latest = (await call(port, "GetTask", {"id": "t-1"}, JSON))["result"]
        assert (latest["contextId"], latest["status"]["state"]) == ("s-1", "TASK_STATE_COMPLETED")
        assert latest["artifacts"][0]["parts"] == [{"text": "did it"}]
        (said,) = latest["history"]
        assert said["messageId"]
        assert (said["taskId"], said["contextId"], said["role"]) == ("t-1", "s-1", "ROLE_USER")
        older = (await call(port, "tasks/get", {"id": "t-1"}, [*PLAIN, ("A2A-Version", "0.3")]))["result"]
        assert (older["kind"], older["contextId"], older["status"]["state"]) == ("task", "s-1", "completed")


@in_loop
async def test_a_task_of_1_0_is_read_in_0_1() -> None:
    sent = {"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "it"}]}}
    async with serve(tieline.app(worker())) as port:
        task = (await call(port, "SendMessage", sent, JSON))["result"]["task"]
        for version in ("0.1", "0.1.0"):
            told = await result(port, "tasks/get", {"id": task["id"]}, [*PLAIN, ("A2A-Version", version)])
            assert (told["sessionId"], told["status"]["state"], text_of(told)) == (
                task["contextId"],
                "completed",
                "did it",
            )
            assert told["history"][0]["metadata"] == {"tieline/messageId": "m-1"}


@in_loop
async def test_a_question_asked_in_0_1_is_answered_in_1_0() -> None:
    async with serve(tieline.app(asker())) as port:
        await result(port, "tasks/send", params("t-1", "begin"))
        sent = {"message": {"messageId": "m-1", "taskId": "t-1", "role": "ROLE_USER", "parts": [{"text": "this"}]}}
        task = (await call(port, "SendMessage", sent, JSON))["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert text_of(await result(port, "tasks/get", {"id": "t-1"})) == "you said this"


@pytest.mark.parametrize("version", ["0.1", "0.1.0", "0.2", "0.2.0"])
@in_loop
async def test_the_version_may_be_named(version: str) -> None:
    async with serve(tieline.app(worker(), strict=True)) as port:
        headers = [*PLAIN, ("A2A-Version", version)]
        assert (await result(port, "tasks/send", params("t-1", "it"), headers))["status"]["state"] == "completed"


@in_loop
async def test_only_callers_of_0_1_may_name_a_task() -> None:
    sent = {"message": {"messageId": "m-1", "taskId": "t-1", "role": "ROLE_USER", "parts": [{"text": "it"}]}}
    async with serve(tieline.app(worker())) as port:
        assert await code(port, "SendMessage", sent, JSON) == -32001


@in_loop
async def test_two_callers_never_meet_on_one_task_id() -> None:
    """A caller of 1.0 with a tenant has the task. To one of 0.1, who has none, it is not there: what it sends to that
    id begins a task of its own, as any id that is not there does.
    """
    sent = {"tenant": "acme", "message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "begin"}]}}
    async with serve(tieline.app(asker())) as port:
        task = (await call(port, "SendMessage", sent, JSON))["result"]["task"]
        assert await code(port, "tasks/get", {"id": task["id"]}) == -32001
        own = await result(port, "tasks/send", params(task["id"], "mine"))
        assert own["sessionId"] != task["contextId"]
        assert "begin" not in json.dumps(own)
        kept = (await call(port, "GetTask", {"id": task["id"], "tenant": "acme"}, JSON))["result"]
        assert kept["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


@in_loop
async def test_the_data_of_an_error_is_an_object_and_says_what_is_wrong() -> None:
    async with serve(tieline.app(worker())) as port:
        body = envelope("tasks/get", {"id": "none"})
        error = (await request(port, "POST", "/", body, [*PLAIN, ("A2A-Version", "0.1")])).json()["error"]
        (info,) = error["data"]["details"]
        assert (error["code"], info["reason"], info["metadata"]) == (-32001, "TASK_NOT_FOUND", {"taskId": "none"})
        again = error_from_details(error["data"], rpc_code=error["code"], message=error["message"])
        assert (type(again), again.metadata) == (TaskNotFound, {"taskId": "none"})


# --- the card, and what is refused ------------------------------------------------------------------------------------


@in_loop
async def test_the_oldest_card_is_at_its_path_for_everybody() -> None:
    async with serve(tieline.app(worker())) as port:
        reply = await request(port, "GET", "/.well-known/agent.json")
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, "*")
        card = reply.json()
        assert (card["name"], card["url"]) == ("Worker", f"http://127.0.0.1:{port}/")
        assert card["capabilities"]["streaming"] is True
        assert {"version", "skills"} <= card.keys()
        options = await request(port, "OPTIONS", "/.well-known/agent.json")
        assert (options.status, options.headers["access-control-allow-origin"]) == (204, "*")


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"message": message("x")}, "id: is required"),
        ({"id": "", "message": message("x")}, "id: is required"),
        ({"id": "t"}, "message: is required"),
        ({"id": "t", "message": {"role": "user"}}, "message.parts: is required"),
        ({"id": "t", "message": {"role": "user", "parts": []}}, "message.parts: at least one part is required"),
        ({"id": "t", "message": {"role": "user", "parts": [{"type": "text"}]}}, "message.parts[0].text: is required"),
        ({"id": "t" * 5000, "message": message("x")}, "id: must be"),
    ],
)
@in_loop
async def test_bad_params_are_refused_with_the_id_of_the_request_and_what_is_wrong(bad: Any, words: str) -> None:
    async with serve(tieline.app(worker())) as port:
        for method in ("tasks/send", "tasks/sendSubscribe"):
            answer = await call(port, method, bad, id_=7)
            assert answer["error"]["code"] == -32602
            assert words in answer["error"]["message"]


@in_loop
async def test_a_method_that_0_1_has_not_is_refused_in_0_1() -> None:
    async with serve(tieline.app(worker())) as port:
        assert await code(port, "tasks/list", {}) == -32601
        assert await code(port, "message/send", {}, [*PLAIN, ("A2A-Version", "0.1")]) == -32601


@in_loop
async def test_a_message_sent_again_while_its_task_runs_is_heard_once() -> None:
    started: list[str] = []
    go_on = asyncio.Event()

    @tieline.agent(name="Slow")
    async def slow(turn: tieline.Turn) -> str:
        started.append(turn.text)
        await go_on.wait()
        answer = await turn.ask("Again?")
        return f"done {answer}"

    async with serve(tieline.app(slow)) as port:
        first = asyncio.ensure_future(result(port, "tasks/send", params("t-1", "go")))
        while not started:  # noqa: ASYNC110 - the agent tells nobody else
            await asyncio.sleep(0.01)
        async with Wire(port) as wire:
            await wire.write("POST", "/", envelope("tasks/sendSubscribe", params("t-1", "go")), PLAIN)
            await wire.head()
            frames = wire.frames()
            states = [(await anext(frames)).data["result"]["status"]["state"]]
            go_on.set()
            states += [frame.data["result"]["status"]["state"] async for frame in frames]
        assert states == ["working", "input-required"]
        assert (await first)["status"]["state"] == "input-required"
        assert started == ["go"]
        done = await result(port, "tasks/send", params("t-1", "go"))  # now it is an answer
        assert text_of(done) == "done go"
