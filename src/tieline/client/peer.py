"""`connect`, and the Peer that it gives: an agent, wherever it is, as an object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from types import TracebackType
from typing import TypeVar

from tieline.card import AgentCard, AgentInterface
from tieline.client.content import Content, message_of
from tieline.client.discovery import CardCache
from tieline.client.following import Following
from tieline.client.http import Verify
from tieline.client.opening import Opened, Options, Reference, in_order, opened
from tieline.client.reply import Reply, reply_of
from tieline.client.route import Way
from tieline.client.seen import Seen
from tieline.client.timeouts import Recovery, Timeouts
from tieline.client.transport import Events
from tieline.engine.fold import Fold, NotAllowed
from tieline.errors import (
    ExtensionSupportRequired,
    InvalidParams,
    InvalidPeerResponse,
    MethodNotFound,
    PeerTimeout,
    TaskInDoubt,
    TaskNotFound,
    Unreachable,
    UnsupportedOperation,
)
from tieline.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Metadata,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    Task,
    TaskState,
    TaskStatusUpdateEvent,
)

__all__ = ["Connection", "Peer", "connect"]

T = TypeVar("T")

_LONGEST_POLL_S = 30.0


class Peer:
    """An agent that can be called. Made by `connect`; every call has a time limit and raises errors of tieline.errors.

    All calls raise the A2AError that the agent reports (TaskNotFound, UnsupportedOperation, ...), and PeerError for
    what is outside the protocol: Unreachable, PeerTimeout, AuthenticationRequired, InvalidPeerResponse.
    ExtensionSupportRequired is raised without a call where the card requires an extension that the caller does not
    name.
    """

    def __init__(self, found: Opened, *, extensions: Sequence[str] = (), recovery: Recovery | None = None) -> None:
        self._found = found
        self._route = found.route
        self._extensions = _checked_uris(extensions)
        self._recovery = recovery or Recovery()
        self._closed = False
        self._take_card(found.card)

    def _take_card(self, card: AgentCard) -> None:
        self._card = card
        self._streams = bool(card.capabilities.streaming)
        self._required = frozenset(e.uri for e in card.capabilities.extensions if e.required)

    @property
    def card(self) -> AgentCard:
        """The agent's card."""
        return self._card

    @property
    def interface(self) -> AgentInterface:
        """The interface in use; another one when the first could not be reached."""
        return self._route.way.interface

    @property
    def transport(self) -> str:
        """How the agent is called: "JSONRPC", "HTTP+JSON", or "direct" in this process."""
        return self._route.way.transport.name

    async def close(self) -> None:
        """Close all connections; streams that are open end with Unreachable. Closing twice is allowed."""
        self._closed = True
        await self._found.close()

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def refresh_card(self) -> AgentCard:
        """The card, asked for again if it has expired (A2A 1.0 §8.6.2). Interfaces stay as they were chosen."""
        self._take_card(await self._found.renew())
        return self._card

    # --- sending ------------------------------------------------------------------------------------------------------

    async def ask(
        self,
        content: Content,
        *,
        after: Reply | Task | Message | None = None,
        context_id: str | None = None,
        task_id: str | None = None,
        metadata: Metadata | None = None,
        accepted_output_modes: Sequence[str] = (),
        reference_task_ids: Sequence[str] = (),
        extensions: Sequence[str] = (),
    ) -> Reply:
        """Send a message and follow what comes of it until there is an answer: text in, text out.

        Args:
            content: What to say.
            after: What this follows up: its context is kept, and its task while that waits for an answer.
            context_id: The conversation it belongs to.
            task_id: The task it answers.
            metadata: Of the request.
            accepted_output_modes: Media types to be answered in.
            reference_task_ids: Other tasks that it speaks of.
            extensions: URIs to name beside those of `connect`.

        Returns:
            The agent's reply: its artifacts' text, or its message's; a question when `reply.state` is interrupted.

        Raises:
            TaskFailed: the task ended FAILED, REJECTED or CANCELED.
            TaskInDoubt: the connection broke and what became of the task cannot be told.
        """
        if after is not None:
            task_id, context_id = _following_up(after, task_id, context_id)
        request = self._request(
            content, task_id, context_id, metadata, accepted_output_modes, None, False, reference_task_ids
        )
        named = self._named(extensions)
        answer = await (self._answer_by_stream(request, named) if self._streams else self._send(request, named))
        if isinstance(answer, Task) and not _rests(answer):
            answer = await self.wait(answer.id)
        return reply_of(answer)

    async def send(
        self,
        content: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Metadata | None = None,
        accepted_output_modes: Sequence[str] = (),
        history_length: int | None = None,
        return_immediately: bool = False,
        reference_task_ids: Sequence[str] = (),
        extensions: Sequence[str] = (),
    ) -> Task | Message:
        """Send a message (A2A 1.0 §3.1.1); the agent answers when the task rests or ends.

        Args:
            content: What to say.
            task_id: The task it answers.
            context_id: The conversation it belongs to.
            metadata: Of the request.
            accepted_output_modes: Media types to be answered in.
            history_length: Messages of history in the answer; None is what the agent gives, 0 none.
            return_immediately: Do not wait for the task, only for its beginning.
            reference_task_ids: Other tasks that it speaks of.
            extensions: URIs to name beside those of `connect`.

        Raises:
            TaskInDoubt: the connection broke behind the request. It is not sent again.
        """
        request = self._request(
            content,
            task_id,
            context_id,
            metadata,
            accepted_output_modes,
            history_length,
            return_immediately,
            reference_task_ids,
        )
        return await self._send(request, self._named(extensions))

    def stream(
        self,
        content: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Metadata | None = None,
        accepted_output_modes: Sequence[str] = (),
        history_length: int | None = None,
        reference_task_ids: Sequence[str] = (),
        extensions: Sequence[str] = (),
    ) -> AsyncGenerator[StreamEvent, None]:
        """Send a message and give every event as it comes (A2A 1.0 §3.1.2). Arguments as of `send`.

        The first event is the Task, or the one Message. A stream that breaks is taken up again by itself, and no piece
        of an artifact is given twice. It ends when the task ends or waits for its caller.

        Raises:
            UnsupportedOperation: the card says that the agent does not stream; nothing was sent.
            TaskInDoubt: the stream broke and could not be taken up again, or broke before the agent told of a task.
        """
        request = self._request(
            content, task_id, context_id, metadata, accepted_output_modes, history_length, False, reference_task_ids
        )
        return self._stream(request, self._named(extensions))

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def subscribe(
        self, task_id: str, *, last_event_id: int | str | None = None, extensions: Sequence[str] = ()
    ) -> AsyncGenerator[StreamEvent, None]:
        """Follow a task until it ends (A2A 1.0 §3.1.6): the Task as it is, then every event.

        With the number of the last event that was seen, the stream goes on behind it where the server can.

        Raises:
            TaskNotFound; UnsupportedOperation: the task has ended, or the agent does not stream.
            TaskInDoubt: the stream broke and could not be taken up again.
        """
        named = self._named(extensions)
        self._check_streaming()
        number = None if last_event_id is None else str(last_event_id)
        events = await self._subscribe(task_id, number, named)
        async with aclosing(self._followed(events, Seen(task_id), named, until_input=False, number=number)) as followed:
            async for event in followed:
                yield event

    async def get(self, task_id: str, *, history_length: int | None = None, extensions: Sequence[str] = ()) -> Task:
        """Read a task (A2A 1.0 §3.1.3). Raises TaskNotFound.

        `history_length`: the last so many messages; None is what the agent gives, 0 none.
        """
        return await self._get(task_id, history_length, self._named(extensions))

    async def list(
        self,
        *,
        context_id: str | None = None,
        status: TaskState | None = None,
        page_size: int | None = None,
        page_token: str | None = None,
        history_length: int | None = None,
        status_timestamp_after: datetime | str | None = None,
        include_artifacts: bool | None = None,
        extensions: Sequence[str] = (),
    ) -> ListTasksResponse:
        """Read a page of the caller's tasks, the last changed first (A2A 1.0 §3.1.4).

        Args:
            context_id: Only tasks of this conversation.
            status: Only tasks in this state.
            page_size: 1 to 100; None is what the agent takes, 50 usually.
            page_token: `next_page_token` of the page before.
            history_length: Messages of history a task.
            status_timestamp_after: Only tasks changed since: an aware datetime, or an RFC 3339 string.
            include_artifacts: Whether tasks come with their artifacts.
            extensions: URIs to name beside those of `connect`.
        """
        after = status_timestamp_after
        if isinstance(after, datetime):
            after = after.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        named = self._named(extensions)

        def call(way: Way) -> Awaitable[ListTasksResponse]:
            request = ListTasksRequest(
                way.interface.tenant,
                context_id,
                status,
                page_size,
                page_token,
                history_length,
                after,
                include_artifacts,
            )
            return way.transport.list(request, named)

        return await self._route.call(call)

    async def list_all(
        self,
        *,
        context_id: str | None = None,
        status: TaskState | None = None,
        page_size: int | None = None,
        history_length: int | None = None,
        status_timestamp_after: datetime | str | None = None,
        include_artifacts: bool | None = None,
        extensions: Sequence[str] = (),
    ) -> AsyncGenerator[Task, None]:
        """All tasks that match, page by page. Arguments as of `list`."""
        token: str | None = None
        while token != "":
            page = await self.list(
                context_id=context_id,
                status=status,
                page_size=page_size,
                page_token=token,
                history_length=history_length,
                status_timestamp_after=status_timestamp_after,
                include_artifacts=include_artifacts,
                extensions=extensions,
            )
            for task in page.tasks:
                yield task
            if page.next_page_token == token:
                raise InvalidPeerResponse("The agent gives the same page of tasks again and again.")
            token = page.next_page_token

    async def cancel(self, task_id: str, *, metadata: Metadata | None = None, extensions: Sequence[str] = ()) -> Task:
        """Stop a task (A2A 1.0 §3.1.5). Raises TaskNotFound, TaskNotCancelable."""
        named = self._named(extensions)

        def call(way: Way) -> Awaitable[Task]:
            return way.transport.cancel(CancelTaskRequest(task_id, way.interface.tenant, metadata), named)

        return await self._route.call(call)

    async def wait(
        self,
        task_id: str,
        *,
        poll_s: float = 2.0,
        timeout_s: float | None = None,
        extensions: Sequence[str] = (),
    ) -> Task:
        """Wait until a task ends or waits for its caller: by subscription where the card allows it, else by polling.

        Args:
            task_id: The task.
            poll_s: The first pause between two looks; it grows by half each time, to 30 s.
            timeout_s: How long to wait; None is as long as it takes.
            extensions: URIs to name beside those of `connect`.

        Raises:
            PeerTimeout: `timeout_s` ran out; the task goes on.
            TaskNotFound, TaskInDoubt.
        """
        named = self._named(extensions)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await self._wait(task_id, poll_s, named)
        except TimeoutError:
            if not limit.expired():
                raise
            raise PeerTimeout(f"Task {task_id!r} is still at work after {timeout_s:g} s.") from None

    # --- inside -------------------------------------------------------------------------------------------------------

    def _named(self, extensions: Sequence[str]) -> tuple[str, ...]:
        """All extensions that a call names. Raises ExtensionSupportRequired (A2A 1.0 §4.4.4)."""
        named = self._extensions
        if extensions:
            named = _checked_uris((*named, *extensions))
        if self._required and not self._required.issubset(named):
            raise ExtensionSupportRequired(self._required.difference(named))
        return named

    def _check_streaming(self) -> None:
        if not self._streams:
            raise UnsupportedOperation(f"The card of {self._card.name!r} says that this agent does not stream.")

    def _request(
        self,
        content: Content,
        task_id: str | None,
        context_id: str | None,
        metadata: Metadata | None,
        accepted_output_modes: Sequence[str],
        history_length: int | None,
        return_immediately: bool,
        reference_task_ids: Sequence[str],
    ) -> Callable[[str | None], SendMessageRequest]:
        """A request, but for the tenant of the interface that it will go to."""
        message = message_of(content, task_id=task_id, context_id=context_id, reference_task_ids=reference_task_ids)
        configuration = None
        if accepted_output_modes or history_length is not None or return_immediately:
            configuration = SendMessageConfiguration(
                tuple(accepted_output_modes), None, history_length, return_immediately
            )
        return lambda tenant: SendMessageRequest(message, tenant, configuration, metadata)

    async def _send(
        self, request: Callable[[str | None], SendMessageRequest], named: tuple[str, ...]
    ) -> Task | Message:
        async def call(way: Way) -> Task | Message:
            sent = request(way.interface.tenant)
            try:
                return await way.transport.send(sent, named)
            except Unreachable as error:
                raise _in_doubt(sent, error) from error

        return await self._route.call(call)

    async def _stream(
        self, request: Callable[[str | None], SendMessageRequest], named: tuple[str, ...]
    ) -> AsyncGenerator[StreamEvent, None]:
        self._check_streaming()
        told_task: str | None = None

        async def call(way: Way) -> Events:
            nonlocal told_task
            sent = request(way.interface.tenant)
            told_task = sent.message.task_id
            try:
                return await way.transport.open(sent, named)
            except Unreachable as error:
                raise _in_doubt(sent, error) from error

        events = await self._route.call(call)
        following = self._followed(events, Seen(), named, until_input=True, number=None)
        try:
            async for event in following:
                yield event
        except TaskInDoubt as error:
            if error.task_id is None and told_task is not None:
                raise TaskInDoubt(str(error), task_id=told_task) from error
            raise
        finally:
            await following.aclose()

    def _followed(
        self, events: Events, seen: Seen, named: tuple[str, ...], *, until_input: bool, number: str | None
    ) -> AsyncGenerator[StreamEvent, None]:
        following = Following(
            seen,
            subscribe=(lambda task_id, after: self._subscribe(task_id, after, named)) if self._streams else None,
            read_task=lambda task_id: self._get(task_id, None, named),
            recovery=self._recovery,
            closed=lambda: self._closed,
            until_input=until_input,
            last_event_id=number,
        )
        return following.events(events)

    async def _subscribe(self, task_id: str, last_event_id: str | None, named: tuple[str, ...]) -> Events:
        def call(way: Way) -> Awaitable[Events]:
            return way.transport.open(SubscribeToTaskRequest(task_id, way.interface.tenant), named, last_event_id)

        return await self._route.call(call)

    async def _get(self, task_id: str, history_length: int | None, named: tuple[str, ...]) -> Task:
        def call(way: Way) -> Awaitable[Task]:
            return way.transport.get(GetTaskRequest(task_id, way.interface.tenant, history_length), named)

        return await self._route.call(call)

    async def _answer_by_stream(
        self, request: Callable[[str | None], SendMessageRequest], named: tuple[str, ...]
    ) -> Task | Message:
        """What a stream comes to. A task that its events do not tell whole is read."""
        fold: Fold | None = None
        whole = True
        task_id = ""
        async with aclosing(self._stream(request, named)) as events:
            async for event in events:
                if isinstance(event, Message):
                    if not task_id:
                        return event
                    continue
                if isinstance(event, Task):
                    fold = Fold(event)
                    task_id = event.id
                    continue
                task_id = event.task_id
                if fold is None:
                    whole = False
                else:
                    try:
                        fold.apply(event)
                    except NotAllowed:
                        whole = False
                if isinstance(event, TaskStatusUpdateEvent) and event.status.state is TaskState.AUTH_REQUIRED:
                    break  # the stream stays open, but the next move is the caller's
        if fold is not None and whole:
            return fold.task()
        return await self._get(task_id, None, named)

    async def _wait(self, task_id: str, poll_s: float, named: tuple[str, ...]) -> Task:
        task = await self._get(task_id, None, named)
        if _rests(task):
            return task
        pause = 0.0 if self._streams and await self._followed_to_rest(task_id, named) else poll_s
        failures = 0
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, max(poll_s, _LONGEST_POLL_S)) or poll_s
            try:
                task = await self._get(task_id, None, named)
                failures = 0
            except (Unreachable, PeerTimeout) as error:
                failures += 1
                if failures > self._recovery.attempts:
                    raise TaskInDoubt(f"Task {task_id!r} cannot be read any more. {error}", task_id=task_id) from error
            if _rests(task):
                return task

    async def _followed_to_rest(self, task_id: str, named: tuple[str, ...]) -> bool:
        """Follow a task until it rests or ends; False when it cannot be followed."""
        try:
            events = await self._subscribe(task_id, None, named)
        except (UnsupportedOperation, MethodNotFound, TaskNotFound, Unreachable, PeerTimeout):
            return False
        async with aclosing(self._followed(events, Seen(task_id), named, until_input=True, number=None)) as followed:
            async for event in followed:
                if isinstance(event, (Task, TaskStatusUpdateEvent)) and _at_rest(event.status.state):
                    break
        return True


class Connection:
    """What `connect` gives: await it for a Peer to close yourself, or use it with `async with`."""

    def __init__(self, opening: Callable[[], Awaitable[Peer]]) -> None:
        self._opening = opening
        self._peer: Peer | None = None

    def __await__(self) -> Generator[None, None, Peer]:
        return self._opening().__await__()

    async def __aenter__(self) -> Peer:
        self._peer = await self._opening()
        return self._peer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            await peer.close()


def connect(
    ref: Reference,
    *,
    transport: str | Sequence[str] | None = None,
    version: str | None = None,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
    cookies: Mapping[str, str] | None = None,
    tenant: str | None = None,
    extensions: Sequence[str] = (),
    timeouts: Timeouts | None = None,
    recovery: Recovery | None = None,
    verify: Verify = True,
    cards: CardCache | None = None,
    max_response_bytes: int = 256 * 1024 * 1024,
    max_event_bytes: int = 64 * 1024 * 1024,
) -> Connection:
    """Find an agent and choose how to call it: `async with connect("agent.example") as peer: await peer.ask("hi")`.

    Args:
        ref: "host:port", a URL (the card is looked for below its path, then at its host), a card's own URL, a card's
            file ("file:///card.json" or a path), an AgentCard; or an Agent, App or Service of this process, which is
            called without a network.
        transport: "JSONRPC" or "HTTP+JSON", or several in the order of preference; None is the card's order.
        version: The protocol version to use, and no other; None is the highest that both sides speak.
        headers: Sent with each request, for the card too; credentials belong here. Ignored in process.
        query: Added to the URL of each call, but not of the card: where a server wants its API key there.
        cookies: Sent with each request, as `headers` are.
        tenant: Which tenant's agent, where the card does not say.
        extensions: URIs that every call names (A2A-Extensions).
        timeouts: Limits in seconds.
        recovery: How often a broken stream is taken up again.
        verify: Check certificates: True by the system's authorities, a path by those in that file, or an SSLContext.
        cards: Shares what is known of cards with other connections.
        max_response_bytes: Longer answers are refused.
        max_event_bytes: Longer events of a stream are refused.

    Raises (when entered or awaited):
        CardNotFound, InvalidCard: there is no card, or none that can be used.
        VersionNotSupported: `version` is none that this client speaks.
        Unreachable, PeerTimeout, AuthenticationRequired, InvalidPeerResponse: the card could not be read.
        ValueError: a header that cannot be sent, or an App with several agents.
    """
    options = Options(
        transports=in_order(transport),
        version=version,
        headers=headers or {},
        query=query or {},
        cookies=cookies or {},
        tenant=tenant or None,
        timeouts=timeouts or Timeouts(),
        verify=verify,
        cards=cards or CardCache(),
        max_response_bytes=max_response_bytes,
        max_event_bytes=max_event_bytes,
    )

    async def opening() -> Peer:
        return Peer(await opened(ref, options), extensions=extensions, recovery=recovery)

    return Connection(opening)


def _following_up(
    after: Reply | Task | Message, task_id: str | None, context_id: str | None
) -> tuple[str | None, str | None]:
    """Task and context of a follow-up; what the caller names itself goes before."""
    if isinstance(after, Reply):
        if after.task is None and after.message is None:
            return task_id, context_id
        after = after.task if after.task is not None else after.message  # type: ignore[assignment]
    if isinstance(after, Task) and task_id is None and not after.status.state.terminal:
        task_id = after.id
    return task_id, context_id or after.context_id


def _in_doubt(sent: SendMessageRequest, error: Unreachable) -> TaskInDoubt:
    return TaskInDoubt(
        f"The message may have arrived, or not. {error}",
        task_id=sent.message.task_id,
        context_id=sent.message.context_id,
    )


def _checked_uris(uris: Sequence[str]) -> tuple[str, ...]:
    """Each URI once. Raises InvalidParams for one that would not stay one in a header."""
    for uri in uris:
        if not uri or any(character in uri for character in "\r\n\0, "):
            raise InvalidParams.at("extensions", f"{uri!r} is not the URI of an extension")
    return tuple(dict.fromkeys(uris))


def _rests(task: Task) -> bool:
    return _at_rest(task.status.state)


def _at_rest(state: TaskState) -> bool:
    return state.terminal or state.interrupted
