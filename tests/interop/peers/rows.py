"""The rows of the matrix: what a client does with the puppet (puppet.py), and what it reports.

Each client in Python is a `Caller` on its SDK; rows.mjs is the same in JavaScript. Nothing is judged here: a row gives
what the caller saw, and matrix.py says what that has to be. Events and answers are dicts in one form for all SDKs:

    {"kind": "task", "id", "context", "state", "words", "artifacts": {name: parts}}
    {"kind": "status", "id", "context", "state", "words"}
    {"kind": "artifact", "id", "context", "name", "parts"}
    {"kind": "message", "role", "parts"}

States are the specification's names without their prefix; parts as in puppet.py.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from tests.interop.peers.hook import Hook

__all__ = ["RESTING", "TEXT", "TOKEN", "Caller", "NotOffered", "main"]

Value = dict[str, Any]

ROW_LIMIT_S = 20.0
REST_LIMIT_S = 10.0
POLL_S = 0.05
RESTING = {"COMPLETED", "FAILED", "CANCELED", "REJECTED", "INPUT_REQUIRED", "AUTH_REQUIRED"}

TEXT = (
    "fox 🦊, family 👩‍👩‍👧‍👦, flag 🇺🇳, 漢字 かな 한글, العربية עברית, e\u0301 é, ‮override‬, "
    "tab\t lf\n crlf\r\n, \x01\x1f\x7f\x85, \u2028\u2029, \ufeff, \U0001f9d1\u200d\U0001f680 \\u0041 \"'</script>&amp;"
)
BIG = 2**53 + 1
TOKEN = "token of the matrix"
FILES_SENT: list[Value] = [
    {"raw": "AAEC/f7/", "name": "données №1.bin", "type": "application/x-thing"},
    {"url": "https://files.example/in?x=1&y=%20#part", "name": "in.pdf", "type": "application/pdf"},
]
DATA: Value = {
    "null": None,
    "true": True,
    "number": 7,
    "half": 0.5,
    "empty": {},
    "list": [],
    "nested": {"kind": "text", "type": "text", "snake_case": [1, [2, {"camelCase": None}]]},
    "ключ": "значение",
}


class NotOffered(Exception):
    """This client has no such call."""


class Caller(ABC):
    """One SDK's client for one agent and binding. Calls raise what the SDK raises."""

    @abstractmethod
    async def card(self) -> Value:
        """The card: {"name", "description", "streaming", "skills": [id]}."""

    @abstractmethod
    async def send(self, parts: list[Value], *, task_id: str | None = None, context_id: str | None = None) -> Value:
        """Send a message and wait for the answer, without a stream: a task or a message."""

    @abstractmethod
    def stream(self, parts: list[Value]) -> AsyncGenerator[Value, None]:
        """Send a message and give the events."""

    async def subscribe(self, task_id: str) -> AsyncGenerator[Value, None]:
        """Follow a task."""
        raise NotOffered
        yield {}

    @abstractmethod
    async def get(self, task_id: str) -> Value:
        """Read a task."""

    async def cancel(self, task_id: str) -> Value:
        """Cancel a task."""
        raise NotOffered

    async def set_webhook(self, task_id: str, id: str, url: str, token: str) -> str:
        """Have what happens to a task told to a webhook; the URL that the answer has."""
        raise NotOffered

    async def get_webhook(self, task_id: str, id: str) -> str:
        """The URL of a webhook."""
        raise NotOffered

    async def list_webhooks(self, task_id: str) -> list[str]:
        """The ids of a task's webhooks."""
        raise NotOffered

    async def delete_webhook(self, task_id: str, id: str) -> None:
        """Take a webhook away."""
        raise NotOffered

    @abstractmethod
    def name_of(self, error: Exception) -> str | None:
        """The specification's name of an error that the SDK raised, "TaskNotFound"; None when it cannot be told."""

    # --- shorthands of the rows ---------------------------------------------------------------------------------------

    async def say(self, text: str, *more: Value, **ids: str) -> Value:
        """Send, then read the task until it rests."""
        return await self.rested(await self.send([{"text": text}, *more], **ids))

    async def rested(self, answer: Value) -> Value:
        async with asyncio.timeout(REST_LIMIT_S):
            while answer["kind"] == "task" and answer["state"] not in RESTING:
                await asyncio.sleep(POLL_S)
                answer = await self.get(answer["id"])
        return answer

    async def error_of(self, call: Awaitable[Value] | AsyncGenerator[Value, None]) -> Value:
        """What a call fails with: {"error": name or "unnamed", "as": the SDK's class and words}; else its answer."""
        try:
            if isinstance(call, AsyncGenerator):
                return {"error": None, "answer": [short(event) async for event in call]}
            return {"error": None, "answer": short(await call)}
        except NotOffered:
            return {"error": "not offered"}
        except Exception as error:
            return {"error": self.name_of(error) or "unnamed", "as": f"{type(error).__name__}: {error}"[:300]}


def text_of(parts: list[Value]) -> str:
    return "".join(part.get("text") or "" for part in parts)


def short(value: Value) -> Value:
    """An answer without its ids."""
    kept: Value = {key: value[key] for key in ("kind", "role", "state", "words") if key in value}
    if "parts" in value:
        kept["text"] = text_of(value["parts"])
    if "artifacts" in value:
        kept["artifacts"] = {name: text_of(parts) for name, parts in value["artifacts"].items()}
    return kept


def chunks_of(events: list[Value]) -> list[str]:
    return [text_of(event["parts"]) for event in events if event["kind"] == "artifact"]


def last_state(events: list[Value]) -> str | None:
    return next((event["state"] for event in reversed(events) if "state" in event), None)


# --- rows -------------------------------------------------------------------------------------------------------------


async def card(caller: Caller) -> Any:
    return await caller.card()


async def message(caller: Caller) -> Any:
    return short(await caller.send([{"text": "message hello"}]))


async def task(caller: Caller) -> Any:
    sent = await caller.send([{"text": "task hello"}])
    ended = await caller.rested(sent)
    return {"ended": short(ended), "read": short(await caller.get(ended["id"]))}


async def blocking(caller: Caller) -> Any:
    return short(await caller.send([{"text": "task hello"}]))


async def fail(caller: Caller) -> Any:
    return short(await caller.say("fail No paper."))


async def stream(caller: Caller) -> Any:
    key = str(uuid.uuid4())
    events: list[Value] = []
    released: str | None = None
    async for event in caller.stream([{"text": f"stream {key}"}]):
        events.append(event)
        if released is None and event["kind"] == "artifact":
            released = text_of(event["parts"])
            await caller.send([{"text": f"release {key}"}])
    read = await caller.get(next(event["id"] for event in events if "id" in event))
    return {
        "released at": released,
        "chunks": chunks_of(events),
        "last": last_state(events),
        "read": short(read)["artifacts"],
    }


async def question(caller: Caller) -> Any:
    asked = await caller.say("ask")
    events = [event async for event in caller.stream([{"text": "ask"}])]
    answered = await caller.say("green 🟢", task_id=asked["id"], context_id=asked["context"])
    return {
        "asked": short(asked),
        "answered": short(answered),
        "same task": answered.get("id") == asked["id"],
        "same context": answered.get("context") == asked["context"],
        "streamed": last_state(events),
    }


async def cancel(caller: Caller) -> Any:
    events: list[Value] = []
    answer: Value | None = None
    async for event in caller.stream([{"text": "hold"}]):
        events.append(event)
        if answer is None and event.get("words") == "waiting":
            answer = await caller.cancel(event["id"])
    task_id = next(event["id"] for event in events if "id" in event)
    read = await caller.get(task_id)
    return {"answer": answer and answer["state"], "stream": last_state(events), "read": read["state"]}


async def resubscribe(caller: Caller) -> Any:
    key = str(uuid.uuid4())
    before: list[Value] = []
    async with aclosing(caller.stream([{"text": f"stream {key}"}])) as broken:
        async for event in broken:
            before.append(event)
            if event["kind"] == "artifact":
                break
    task_id = before[-1]["id"]
    after: list[Value] = []
    async for event in caller.subscribe(task_id):
        after.append(event)
        if len(after) == 1:
            await caller.send([{"text": f"release {key}"}])
    return {"before": chunks_of(before), "after": chunks_of(after), "last": last_state(after)}


async def files(caller: Caller) -> Any:
    made = await caller.say("files")
    sent = await caller.say("describe", *FILES_SENT)
    return {"from the agent": made["artifacts"]["files"], "at the agent": text_of(sent["artifacts"]["seen"])}


async def unicode(caller: Caller) -> Any:
    return (await caller.say("echo", {"text": TEXT}))["artifacts"]


async def data(caller: Caller) -> Any:
    return (await caller.say("echo", {"data": DATA}))["artifacts"]


async def integers(caller: Caller) -> Any:
    answer = await caller.say("numbers", {"data": {"big": BIG, "negative": -BIG, "small": 7}})
    came, at_agent = answer["artifacts"]["numbers"]
    return {"at the agent": at_agent["text"], "back here": json.dumps(came["data"], sort_keys=True)}


async def others(caller: Caller, task_id: str, url: str) -> Any:
    """Another webhook is set and taken away: the ids of those that are left."""
    try:
        await caller.set_webhook(task_id, "another", url, TOKEN)
        await caller.delete_webhook(task_id, "another")
        return await caller.list_webhooks(task_id)
    except NotOffered:
        return "not offered"
    except Exception as error:  # the server may not have it
        return f"{type(error).__name__}: {error}"[:300]


async def push(caller: Caller) -> Any:
    asked = await caller.say("ask")
    id_ = asked["id"]
    async with Hook() as hook:
        made = await caller.set_webhook(id_, "hook", hook.url, TOKEN)
        read = await caller.get_webhook(id_, "hook")
        left = await others(caller, id_, f"{hook.url}/another")
        await caller.say("green 🟢", task_id=id_, context_id=asked["context"])
        headers, _ = await hook.told("COMPLETED")
    return {
        "made": made == hook.url,
        "read": read == hook.url,
        "left": left,
        "told": "COMPLETED",
        "token": headers.get("x-a2a-notification-token"),
    }


async def unknown_task(caller: Caller) -> Any:
    return {
        "get": await caller.error_of(caller.get("no-such-task")),
        "send": await caller.error_of(caller.send([{"text": "task x"}], task_id="no-such-task")),
        "cancel": await caller.error_of(caller.cancel("no-such-task")),
        "subscribe": await caller.error_of(caller.subscribe("no-such-task")),
    }


async def ended_task(caller: Caller) -> Any:
    done = await caller.say("task hello")
    ids = {"task_id": done["id"], "context_id": done["context"]}
    return {
        "send": await caller.error_of(caller.send([{"text": "task more"}], **ids)),
        "cancel": await caller.error_of(caller.cancel(done["id"])),
        "subscribe": await caller.error_of(caller.subscribe(done["id"])),
    }


async def bearer(caller: Caller) -> Any:
    """At a server that wants the bearer token which the caller finds in INTEROP_TOKEN."""
    return await message(caller)


ROWS: tuple[Callable[[Caller], Awaitable[Any]], ...] = (
    card,
    message,
    task,
    blocking,
    fail,
    stream,
    question,
    cancel,
    resubscribe,
    files,
    unicode,
    data,
    integers,
    push,
    unknown_task,
    ended_task,
    bearer,
)


async def report(caller: Caller, only: list[str]) -> Value:
    found: Value = {}
    for row in ROWS:
        if only and row.__name__ not in only:
            continue
        try:
            async with asyncio.timeout(ROW_LIMIT_S):
                found[row.__name__] = {"saw": await row(caller)}
        except NotOffered:
            found[row.__name__] = {"not offered": True}
        except Exception as error:  # one row's end is not that of the others
            last = traceback.format_exc().strip().splitlines()[-14:]
            found[row.__name__] = {"error": f"{type(error).__name__}: {error}"[:600], "trace": last}
    return found


def main(connect: Callable[[str, str], Any]) -> None:
    """Run as `client URL BINDING [ROW ...]`: `connect(url, binding)` is an async context manager over a Caller.

    Prints one JSON object: {row: {"saw"} or {"error", "trace"} or {"not offered"}}. Two more calls print the task that
    they bring: `client URL BINDING say TEXT [TASK_ID CONTEXT_ID]` and `client URL BINDING read TASK_ID`.
    """

    async def one(call: str, *words: str) -> Value:
        async with connect(sys.argv[1], sys.argv[2]) as caller:
            if call == "read":
                return {"saw": await caller.get(words[0])}
            return {"saw": await caller.say(words[0], **dict(zip(("task_id", "context_id"), words[1:], strict=False)))}

    async def work() -> Value:
        if sys.argv[3:4] in (["say"], ["read"]):
            return await one(*sys.argv[3:])
        try:
            async with connect(sys.argv[1], sys.argv[2]) as caller:
                return await report(caller, sys.argv[3:])
        except Exception as error:
            told = {
                "error": f"connecting: {type(error).__name__}: {error}"[:600],
                "trace": traceback.format_exc().splitlines()[-14:],
            }
            return {row.__name__: told for row in ROWS if not sys.argv[3:] or row.__name__ in sys.argv[3:]}

    json.dump(asyncio.run(work()), sys.stdout)
