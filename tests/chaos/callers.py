"""Callers: they begin tasks, answer, cancel and watch, each over other replicas, and go on elsewhere when cut off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp

from tests.chaos.agents import LEASE_S
from tests.chaos.plan import Task
from tests.chaos.replicas import Replica, Replicas
from tests.chaos.seen import Subscriber, Work, state_of
from tieline import Message, Part, Peer, Role, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from tieline import Task as TaskValue
from tieline.errors import A2AError, TaskInDoubt, Unreachable

__all__ = ["Callers"]

_HEADERS: Final = {"A2A-Version": "1.0", "Accept": "text/event-stream, application/json"}
_POLL_S: Final = 0.3
_AGAIN_S: Final = 0.05
_CUT: Final = (aiohttp.ClientError, ConnectionError)


class _Stuck(Exception):
    """There was no news for longer than there may be none."""


class Callers:
    """What all callers share: the replicas, connections to them, and a peer for each agent through the balancer.

    `grace_s`: what anything may take beside the lease and the pauses of the agent. `zero`: the start, by the monotonic
    clock.
    """

    def __init__(
        self, replicas: Replicas, session: aiohttp.ClientSession, peers: dict[str, Peer], *, grace_s: float, zero: float
    ) -> None:
        self._grace_s = grace_s
        self._replicas = replicas
        self._session = session
        self._peers = peers
        self._zero = zero
        self.refused = 0  # answers of 5xx

    async def do(self, plan: Task, name: str) -> Work:
        """One task, to its end."""
        work = Work(plan, name, f"m-{name}", f"a-{name}", 0.0, zero=self._zero)
        work.began = work.now()
        try:
            if plan.way == "client":
                await self._by_client(work)
            elif plan.way == "poll":
                await self._by_polling(work)
            else:
                await self._by_streams(work)
        except _Stuck as stuck:
            work.fault(str(stuck))
        except Exception as error:  # a caller's own mistake is a fault, too, and has to be seen with its task
            work.fault(f"{type(error).__name__}: {error}")
        work.ended = work.now()
        return work

    # --- event streams ------------------------------------------------------------------------------------------------

    async def _by_streams(self, work: Work) -> None:
        plan = work.plan
        sender = Subscriber(work, "the sender")
        helpers: list[asyncio.Task[None]] = []
        asked = begun = False

        def heard() -> None:
            nonlocal asked, begun
            if not begun:
                begun = True
                if plan.watched:
                    helpers.append(asyncio.ensure_future(self._watch(work)))
            if plan.asks and not asked and sender.state == "INPUT_REQUIRED":
                asked = True
                helpers.append(asyncio.ensure_future(self._answer(work)))
            if plan.cancel_behind is not None and sender.last >= plan.cancel_behind and not cancelling:
                cancelling.append(asyncio.ensure_future(self._cancel(work)))

        cancelling: list[asyncio.Task[None]] = []
        body = _message(work.message_id, plan.words)
        if plan.twice:
            other = Subscriber(work, "the sender's double")
            helpers.append(asyncio.ensure_future(self._follow(other, body, 1)))
        try:
            await self._follow(sender, body, 0, heard)
            await asyncio.gather(*helpers, *cancelling)
        finally:
            for helper in (*helpers, *cancelling):
                helper.cancel()

    async def _watch(self, work: Work) -> None:
        await self._follow(Subscriber(work, "a watcher"), None, 2)

    async def _answer(self, work: Work) -> None:
        subscriber = Subscriber(work, "who answers")
        await self._follow(subscriber, _message(work.answer_id, work.plan.answer, work.task_id), 3, answers=True)

    async def _cancel(self, work: Work) -> None:
        status, answer = await self._call(work, "POST", f"/tasks/{work.task_id}:cancel", {}, 4)
        if status == 200:
            work.note(f"the cancel was answered: {state_of(answer)}")
            work.told(state_of(answer))
            if state_of(answer) != "CANCELED":
                work.fault(f"a cancel was answered with a task that is {state_of(answer)}")
        else:
            work.note(f"the cancel was refused: {_words(answer)}")
            if _reason(answer) != "TASK_NOT_CANCELABLE":
                work.fault(f"a cancel was refused with {status}: {_words(answer)}")

    async def _follow(
        self,
        subscriber: Subscriber,
        body: dict[str, Any] | None,
        turn: int,
        heard: Callable[[], None] = lambda: None,
        *,
        answers: bool = False,
    ) -> None:
        """Follow a task to its end, over as many streams as it takes.

        `body`: sent until the first event has come. `turn`: which of the plan's replicas is the first to be turned to.
        """
        work = subscriber.work
        while not subscriber.over:
            replica = self._replica(work, turn)
            turn += 1
            sends = body is not None and subscriber.last == 0
            behind = subscriber.last if body is not None or subscriber.last else None
            opening = self._stream(work, replica, body if sends else None, behind)
            how = "send" if sends else f"subscribe behind {behind}"
            try:
                async with opening as response:
                    if response.status != 200:
                        answer = json.loads(await response.read())
                        work.note(f"{subscriber.name}: {how} at {replica.number}: {response.status} {_words(answer)}")
                        if self._refusal(subscriber, response.status, answer, sends, answers):
                            return
                        await asyncio.sleep(_AGAIN_S)
                        continue
                    if answers:
                        work.answered = True
                    work.note(f"{subscriber.name}: {how} at {replica.number}: open")
                    await self._read(subscriber, response, None if sends else behind, heard)
                    work.note(f"{subscriber.name}: ended behind {subscriber.last}, {subscriber.state}")
                    if not subscriber.over and subscriber.state != "INPUT_REQUIRED":
                        work.fault(f"{subscriber.name}: the stream ended where the task was {subscriber.state}")
            except _CUT as error:
                work.note(f"{subscriber.name}: {how} at {replica.number}: cut behind {subscriber.last}: {error!r}")
                await asyncio.sleep(_AGAIN_S)

    def _refusal(self, subscriber: Subscriber, status: int, answer: Any, sends: bool, answers: bool) -> bool:
        """Whether a refused stream is the end of it."""
        work = subscriber.work
        if status >= 500:
            self.refused += 1
            work.fault(f"{subscriber.name} was refused with {status}: {_words(answer)}")
            return False
        ended = "is already" in _words(answer) or _reason(answer) == "UNSUPPORTED_OPERATION"
        if ended and answers and sends:
            return True  # it has ended meanwhile: the verdict looks how
        if ended and subscriber.last == 0 and not sends:
            return True  # a watcher came too late
        work.fault(f"{subscriber.name} was refused with {status} behind {subscriber.last}: {_words(answer)}")
        return True

    @asynccontextmanager
    async def _stream(
        self, work: Work, replica: Replica, body: dict[str, Any] | None, behind: int | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        base = f"{replica.url}/{work.plan.agent}"
        if body is not None:
            opening = self._session.post(f"{base}/message:stream", json=body, headers=_HEADERS)
        else:
            resuming = {} if behind is None else {"Last-Event-ID": str(behind)}
            opening = self._session.get(f"{base}/tasks/{work.task_id}:subscribe", headers={**_HEADERS, **resuming})
        response = await self._in_time(work, opening, "a stream does not open", 0.0)
        try:
            yield response
        finally:
            response.close()

    async def _read(
        self, subscriber: Subscriber, response: aiohttp.ClientResponse, behind: int | None, heard: Callable[[], None]
    ) -> None:
        work = subscriber.work
        first, rest = True, b""
        since = work.now()
        while True:
            waits = subscriber.state == "INPUT_REQUIRED"
            longest = LEASE_S + self._grace_s if waits else 0.0  # of the answer, beside its consequences
            chunk = await self._in_time(
                work, response.content.readany(), f"{subscriber.name}: silence behind {subscriber.last}", longest, since
            )
            if not chunk:
                break
            rest += chunk
            while b"\n\n" in rest:
                frame, rest = rest.split(b"\n\n", 1)
                if frame.startswith(b":"):
                    continue  # it keeps the connection alive, and is no news
                fields = dict(line.split(b": ", 1) for line in frame.split(b"\n"))
                if b'"error"' in fields[b"data"][:10]:
                    work.fault(f"{subscriber.name}: the stream broke off: {fields[b'data']!r}")
                    return
                subscriber.hear(int(fields.get(b"id", b"0")), fields[b"data"], first=first, behind=behind)
                first = False
                since = work.now()
                heard()

    # --- polling ------------------------------------------------------------------------------------------------------

    async def _by_polling(self, work: Work) -> None:
        plan = work.plan
        body = {**_message(work.message_id, plan.words), "configuration": {"returnImmediately": True}}
        status, answer = await self._call(work, "POST", "/message:send", body, 0)
        if status != 200:
            work.fault(f"the message was refused with {status}: {_words(answer)}")
            return
        task = answer["task"]
        work.known_as(task["id"])
        text, state, turn, since = "", state_of(task), 1, work.now()
        last: object = None
        while True:
            work.told(state)
            if work.told_ends:
                return
            if state == "INPUT_REQUIRED" and not work.answered:
                body = _message(work.answer_id, plan.answer, work.task_id)
                status, answer = await self._call(
                    work, "POST", "/message:send", {**body, "configuration": {"returnImmediately": True}}, turn
                )
                work.answered = status == 200
                since = work.now()
                if status != 200 and _reason(answer) != "UNSUPPORTED_OPERATION":
                    work.fault(f"an answer was refused with {status}: {_words(answer)}")
            await asyncio.sleep(_POLL_S)
            turn += 1
            status, answer = await self._call(work, "GET", f"/tasks/{work.task_id}", None, turn)
            if status != 200:
                work.fault(f"GetTask of a task that was told: {status} {_words(answer)}")
                return
            new = _text(answer)
            if not new.startswith(text):
                work.fault(f"GetTask told {new!r} behind {text!r}")
            told = (new, answer["status"])
            if told != last:  # its timestamp is new, too, when the agent was started again
                last, since = told, work.now()
            text, state = new, state_of(answer)
            work.longest_s = max(work.longest_s, work.now() - since)
            if work.now() - since > self._patience(work):
                raise _Stuck(f"GetTask told nothing new for {work.now() - since:.1f} s: {state}")

    async def _call(
        self, work: Work, verb: str, path: str, body: dict[str, Any] | None, turn: int
    ) -> tuple[int, dict[str, Any]]:
        """One request, at another replica as often as it is cut off."""
        while True:
            replica = self._replica(work, turn)
            turn += 1
            try:
                request = self._session.request(
                    verb, f"{replica.url}/{work.plan.agent}{path}", json=body, headers=_HEADERS
                )
                async with await self._in_time(work, request, f"{verb} {path} is not answered", 0.0) as response:
                    given = await self._in_time(work, response.json(), f"{verb} {path} is not answered", 0.0)
                    if response.status < 500:
                        return response.status, given
                    self.refused += 1
                    work.fault(f"{verb} {path} at {replica.number}: {response.status} {_words(given)}")
            except _CUT as error:
                work.note(f"{verb} {path} at {replica.number}: {error!r}")
            await asyncio.sleep(_AGAIN_S)

    # --- tieline's client ---------------------------------------------------------------------------------------------

    async def _by_client(self, work: Work) -> None:
        plan = work.plan
        peer = self._peers[plan.agent]
        texts: list[str] = []
        message = Message(work.message_id, Role.USER, (Part(text=plan.words),))
        state = await self._stream_by_client(work, peer, message, texts)
        if state == "INPUT_REQUIRED":
            answer = Message(work.answer_id, Role.USER, (Part(text=plan.answer),), None, work.task_id)
            state = await self._stream_by_client(work, peer, answer, texts)
        if state not in work.told_ends:
            work.fault(f"the client's stream ended where the task was {state}")
        work.texts.append("".join(texts))

    async def _stream_by_client(self, work: Work, peer: Peer, message: Message, texts: list[str]) -> str | None:
        """One stream to its end, sent again with the same id while it is not known whether it has arrived."""
        while True:
            state = None
            try:
                async for event in peer.stream(message):
                    if state in work.told_ends:
                        work.fault(f"the client gave {event!r} behind the end")
                    if isinstance(event, TaskValue):
                        work.known_as(event.id)
                        texts[:] = [part.text or "" for artifact in event.artifacts for part in artifact.parts]
                        state = event.state.removeprefix("TASK_STATE_")
                    elif isinstance(event, TaskStatusUpdateEvent):
                        state = event.status.state.removeprefix("TASK_STATE_")
                    elif isinstance(event, TaskArtifactUpdateEvent):
                        texts += [part.text or "" for part in event.artifact.parts]
                    work.told(state)
                work.note(f"the client's stream of {message.message_id} ended: {state}")
                work.answered = work.answered or message.message_id == work.answer_id
                return state
            except (TaskInDoubt, Unreachable) as error:
                work.note(f"the client is in doubt of {message.message_id}: {error}")
                if state is not None:
                    work.fault(f"the client gave up a task that it had been told of: {error}")
                    return state
                await asyncio.sleep(_AGAIN_S)
            except A2AError as error:
                work.note(f"the client was refused with {message.message_id}: {error}")
                if message.message_id != work.answer_id:
                    work.fault(f"the client was refused: {error!r}")
                    return state
                task = await peer.get(work.task_id or "")
                texts[:] = [part.text or "" for artifact in task.artifacts for part in artifact.parts]
                state = task.state.removeprefix("TASK_STATE_")
                work.told(state)
                return state

    # --- time ---------------------------------------------------------------------------------------------------------

    def _replica(self, work: Work, turn: int) -> Replica:
        order = work.plan.replicas
        return self._replicas.living(order[turn % len(order)])

    def _patience(self, work: Work) -> float:
        """How long there may be no news: one that goes on after a crash does again, silently, what it had done."""
        plan = work.plan
        pause_s = plan.pause_ms / 1000
        again = plan.chunks * (1 + plan.asks) if plan.agent == "tough" else 1
        return LEASE_S + self._grace_s + again * pause_s

    async def _in_time(
        self, work: Work, waiting: Awaitable[Any], words: str, more_s: float, since: float | None = None
    ) -> Any:
        """What comes within the time that it may take. Raises _Stuck."""
        began = work.now() if since is None else since
        left = self._patience(work) + more_s - (work.now() - began)
        try:
            async with asyncio.timeout(max(left, 0.01)):
                return await waiting
        except TimeoutError:
            raise _Stuck(f"{words} for {work.now() - began:.1f} s") from None
        finally:
            work.longest_s = max(work.longest_s, work.now() - began - more_s)


def _message(message_id: str, text: str, task_id: str | None = None) -> dict[str, Any]:
    about: dict[str, Any] = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    if task_id is not None:
        about["taskId"] = task_id
    return {"message": about}


def _text(task: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for artifact in task.get("artifacts", ()) for part in artifact["parts"])


def _words(answer: Any) -> str:
    return str(answer.get("error", {}).get("message", answer))


def _reason(answer: Any) -> str | None:
    for detail in answer.get("error", {}).get("details", ()):
        if "reason" in detail:
            return str(detail["reason"])
    return None
