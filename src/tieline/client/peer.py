"""`connect`, and the Peer that it gives: an agent, wherever it is, as an object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType

from msgspec.structs import replace

from tieline.card import AgentCard, AgentInterface
from tieline.client.calls import Calls, streamed_answer, wait
from tieline.client.content import Content, Reply, message_of, reply_of
from tieline.client.credentials import Credential
from tieline.client.discovery import CardCache
from tieline.client.following import Recovery, rests
from tieline.client.http import Verify
from tieline.client.opening import Opened, Options, Reference, check_reference, in_order, opened
from tieline.client.origin import trusted_origins
from tieline.client.transport import Timeouts
from tieline.client.verification import CardVerification, KeySource, Trust
from tieline.errors import InvalidPeerResponse, PeerTimeout
from tieline.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Metadata,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)

__all__ = ["Connection", "Peer", "Webhook", "connect"]

_POLL_S = 2.0

Webhook = str | TaskPushNotificationConfig
"""The URL of a webhook, or all there is to say of one: its id too, and the credentials that it is to be called with."""


class Peer:
    """An agent that can be called. Made by `connect`; every call has a time limit and raises errors of tieline.errors.

    All calls raise the A2AError that the agent reports (TaskNotFound, UnsupportedOperation, ...), and PeerError for
    what is outside the protocol: Unreachable, PeerTimeout, AuthenticationRequired, InvalidPeerResponse.
    ExtensionSupportRequired is raised without a call where the card requires an extension that the caller does not
    name.
    """

    def __init__(self, found: Opened, *, extensions: Sequence[str] = (), recovery: Recovery | None = None) -> None:
        self._calls = Calls(found, extensions, recovery or Recovery())

    @property
    def card(self) -> AgentCard:
        """The agent's card."""
        return self._calls.card

    @property
    def card_verification(self) -> CardVerification:
        """Whether the card is signed by somebody who is known (A2A 1.0 §8.4.3): its `state`, key and reason."""
        return self._calls.card_verification

    @property
    def interface(self) -> AgentInterface:
        """The interface in use; another one when the first could not be reached."""
        return self._calls.route.way.interface

    @property
    def transport(self) -> str:
        """How the agent is called: "JSONRPC", "HTTP+JSON", "GRPC", or "direct" in this process."""
        return self._calls.route.way.transport.name

    async def close(self) -> None:
        """Close all connections; streams that are open end with Unreachable. Closing twice is allowed."""
        await self._calls.close()

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def refresh_card(self) -> AgentCard:
        """The card, asked for again if it has expired (A2A 1.0 §8.6.2). Interfaces stay as they were chosen.

        Raises:
            CardNotVerified: a signed card is required, and the new one is none.
        """
        return await self._calls.renew_card()

    async def extended_card(self, *, extensions: Sequence[str] = ()) -> AgentCard:
        """Ask for the card that callers who have authenticated may read (A2A 1.0 §3.1.11).

        It is `card` from then on, until `refresh_card` finds that the public one has another version.

        Raises:
            UnsupportedOperation: the card says that there is none; nothing was sent.
            AuthenticationRequired: the agent wants credentials, or others.
            CardNotVerified: a signed card is required, and this is none.
        """
        return await self._calls.extended_card(self._calls.extensions(extensions))

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
        poll_s: float = _POLL_S,
    ) -> Reply:
        """Send a message and follow what comes of it until there is an answer: text in, text out.

        Args:
            content: What to say.
            after: What this follows up: its context is kept, and its task until that has ended.
            context_id: The conversation it belongs to.
            task_id: The task it answers.
            metadata: Of the request.
            accepted_output_modes: Media types to be answered in.
            reference_task_ids: Other tasks that it speaks of.
            extensions: URIs to name beside those of `connect`.
            poll_s: The first pause between two looks at a task, where the agent does not stream. See `wait`.

        Returns:
            The agent's reply: its artifacts' text, or its message's; a question when `reply.state` is interrupted.

        Raises:
            TaskFailed: the task ended FAILED, REJECTED or CANCELED.
            TaskInDoubt: the connection broke and what became of the task cannot be told.
        """
        if after is not None:
            task_id, context_id = _following_up(after, task_id, context_id)
        request = self._request(
            content, task_id, context_id, metadata, accepted_output_modes, None, False, reference_task_ids, None
        )
        calls = self._calls
        named = calls.extensions(extensions)
        answer = await (streamed_answer(calls, request, named) if calls.streams else calls.send(request, named))
        if isinstance(answer, Task) and not rests(answer.state):
            answer = await wait(calls, answer.id, poll_s, named, task=answer)
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
        webhook: Webhook | None = None,
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
            webhook: Where the agent is to send what happens to the task, as of `set_webhook`.
            extensions: URIs to name beside those of `connect`.

        Raises:
            PushNotificationNotSupported: there is a webhook, and the card says that the agent sends nothing to any.
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
            webhook,
        )
        return await self._calls.send(request, self._calls.extensions(extensions))

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
        webhook: Webhook | None = None,
        extensions: Sequence[str] = (),
    ) -> AsyncGenerator[StreamEvent, None]:
        """Send a message and give every event as it comes (A2A 1.0 §3.1.2). Arguments as of `send`.

        The first event is the Task, or the one Message; some agents, those of 0.1 among them, begin with an update. A
        stream that breaks is taken up again by itself, and no piece of an artifact is given twice. It ends when the
        task ends or waits for its caller, whether or not the server closes it.

        Raises:
            UnsupportedOperation: the card says that the agent does not stream; nothing was sent.
            TaskInDoubt: the stream broke and could not be taken up again, or broke before the agent told of a task.
        """
        request = self._request(
            content,
            task_id,
            context_id,
            metadata,
            accepted_output_modes,
            history_length,
            False,
            reference_task_ids,
            webhook,
        )
        return self._calls.stream(request, self._calls.extensions(extensions))

    # --- tasks --------------------------------------------------------------------------------------------------------

    def subscribe(
        self, task_id: str, *, last_event_id: int | str | None = None, extensions: Sequence[str] = ()
    ) -> AsyncGenerator[StreamEvent, None]:
        """Follow a task until it ends (A2A 1.0 §3.1.6): the Task as it is, then every event.

        With the number of the last event that was seen, the stream goes on behind it where the server can.

        Raises:
            TaskNotFound; UnsupportedOperation: the task has ended, or the agent does not stream.
            TaskInDoubt: the stream broke and could not be taken up again.
        """
        number = None if last_event_id is None else str(last_event_id)
        named = self._calls.extensions(extensions)
        return self._calls.subscribe(task_id, named, until_input=False, last_event_id=number)

    async def get(self, task_id: str, *, history_length: int | None = None, extensions: Sequence[str] = ()) -> Task:
        """Read a task (A2A 1.0 §3.1.3). Raises TaskNotFound.

        `history_length`: the last so many messages; None is what the agent gives, 0 none.
        """
        request = GetTaskRequest(task_id, None, history_length)
        return await self._calls.get(request, self._calls.extensions(extensions))

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
        request = ListTasksRequest(
            None, context_id, status, page_size, page_token, history_length, after, include_artifacts
        )
        return await self._calls.list(request, self._calls.extensions(extensions))

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
        tokens: set[str] = set()
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
            token = page.next_page_token
            if token in tokens:
                raise InvalidPeerResponse("The agent gives the same pages of tasks again and again.")
            tokens.add(token)

    async def cancel(self, task_id: str, *, metadata: Metadata | None = None, extensions: Sequence[str] = ()) -> Task:
        """Stop a task (A2A 1.0 §3.1.5). Raises TaskNotFound, TaskNotCancelable."""
        request = CancelTaskRequest(task_id, None, metadata)
        return await self._calls.cancel(request, self._calls.extensions(extensions))

    async def wait(
        self,
        task_id: str,
        *,
        poll_s: float = _POLL_S,
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
        named = self._calls.extensions(extensions)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await wait(self._calls, task_id, poll_s, named)
        except TimeoutError:
            if not limit.expired():
                raise
            raise PeerTimeout(f"Task {task_id!r} is still at work after {timeout_s:g} s.") from None

    # --- webhooks -----------------------------------------------------------------------------------------------------

    async def set_webhook(
        self, task_id: str, webhook: Webhook, *, extensions: Sequence[str] = ()
    ) -> TaskPushNotificationConfig:
        """Have what happens to a task sent to a URL (A2A 1.0 §3.1.7); what receives it may be a WebhookReceiver.

        Args:
            task_id: The task.
            webhook: A URL that the agent can reach, or a TaskPushNotificationConfig with it, an `id` (where a task has
                several; else it has that of the task), a `token`, and the `authentication` by which the receiver knows
                the agent. One of the same id is replaced.
            extensions: URIs to name beside those of `connect`.

        Returns:
            The webhook as the agent has it, with its id.

        Raises:
            PushNotificationNotSupported: the card says that the agent sends no notifications; nothing was sent.
            TaskNotFound; InvalidParams: the agent does not call such a URL.
        """
        config = _config(webhook)
        config = replace(config, id=config.id or task_id, task_id=task_id)
        return await self._calls.set_webhook(config, self._calls.extensions(extensions))

    async def get_webhook(
        self, task_id: str, id: str | None = None, *, extensions: Sequence[str] = ()
    ) -> TaskPushNotificationConfig:
        """Read a webhook of a task (A2A 1.0 §3.1.8). Raises TaskNotFound.

        Without an id: the one that was set without.
        """
        request = GetTaskPushNotificationConfigRequest(task_id, id or task_id)
        return await self._calls.get_webhook(request, self._calls.extensions(extensions))

    async def list_webhooks(
        self, task_id: str, *, extensions: Sequence[str] = ()
    ) -> tuple[TaskPushNotificationConfig, ...]:
        """All webhooks of a task (A2A 1.0 §3.1.9). Raises TaskNotFound; UnsupportedOperation in 0.1."""
        named = self._calls.extensions(extensions)
        found: tuple[TaskPushNotificationConfig, ...] = ()
        token: str | None = None
        tokens: set[str] = set()
        while True:
            page = await self._calls.list_webhooks(
                ListTaskPushNotificationConfigsRequest(task_id, None, None, token), named
            )
            found += page.configs
            token = page.next_page_token
            if not token:
                return found
            if token in tokens:
                raise InvalidPeerResponse("The agent gives the same pages of webhooks again and again.")
            tokens.add(token)

    async def delete_webhook(self, task_id: str, id: str | None = None, *, extensions: Sequence[str] = ()) -> None:
        """Remove a webhook of a task (A2A 1.0 §3.1.10), also when it is not there any more.

        Without an id: the one that was set without. Raises TaskNotFound; UnsupportedOperation in 0.1.
        """
        request = DeleteTaskPushNotificationConfigRequest(task_id, id or task_id)
        await self._calls.delete_webhook(request, self._calls.extensions(extensions))

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
        webhook: Webhook | None,
    ) -> SendMessageRequest:
        message = message_of(content, task_id=task_id, context_id=context_id, reference_task_ids=reference_task_ids)
        configuration = None
        config = None
        if webhook is not None:
            self._calls.check_pushes()
            config = replace(_config(webhook), task_id=None)  # it is for the task of the message (§3.2.2)
        if accepted_output_modes or history_length is not None or return_immediately or config is not None:
            modes = (accepted_output_modes,) if isinstance(accepted_output_modes, str) else tuple(accepted_output_modes)
            configuration = SendMessageConfiguration(modes, config, history_length, return_immediately)
        return SendMessageRequest(message, None, configuration, metadata)


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
    credentials: Credential | Sequence[Credential] = (),
    trust: str | Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
    cookies: Mapping[str, str] | None = None,
    tenant: str | None = None,
    extensions: Sequence[str] = (),
    timeouts: Timeouts | None = None,
    recovery: Recovery | None = None,
    verify: Verify = True,
    cards: CardCache | None = None,
    card_keys: KeySource | Sequence[KeySource] = (),
    card_key_hosts: Sequence[str] = (),
    require_signed_card: bool = False,
    max_response_bytes: int = 256 * 1024 * 1024,
    max_event_bytes: int = 64 * 1024 * 1024,
) -> Connection:
    """Find an agent and choose how to call it: `async with connect("agent.example") as peer: await peer.ask("hi")`.

    Args:
        ref: "host:port", a URL (the card is looked for below its path, then at its host), a card's own URL, a card's
            file ("file:///card.json" or a path), an AgentCard; or an Agent, App or Service of this process, which is
            called without a network.
        transport: "JSONRPC", "HTTP+JSON" or "GRPC", or several in the order of preference, and no other; None is the
            card's order.
        version: The protocol version to use ("1.0", "0.3", "0.2" or "0.1"), and no other; None is what the card
            prefers. An agent that turns out to speak another one than its card says is called in that.
        credentials: What to show: Bearer, ApiKey, Basic, ClientCredentials, AuthorizationCode, DeviceCode, OAuthToken,
            ClientCertificate, or several where the card asks for them together. The card says where they go, and they
            go with calls to its origin alone, not with the fetch of the card, and not unencrypted to another machine.
        trust: Origins beside the card's that may have credentials, headers and all ("https://other.example").
        headers: Sent with each request, for the card too, and to the card's origin alone. Ignored in process.
        query: Added to the URL of each call, but not of the card. To the card's origin alone.
        cookies: Sent with each request, as `headers` are.
        tenant: Which tenant's agent, where the card does not say.
        extensions: URIs that every call names (A2A-Extensions).
        timeouts: Limits in seconds.
        recovery: How often a broken stream is taken up again.
        verify: Check certificates: True by the system's authorities, a path by those in that file, or an SSLContext.
        cards: Shares what is known of cards with other connections.
        card_keys: Whose signatures on the card are believed: files (a JWK set, a JWK, PEM) or https URLs of JWK sets.
            Without any, those are that the card's signatures name at the card's own origin.
        card_key_hosts: Hosts whose keys are believed, too, where a signature names them (`jku`).
        require_signed_card: Refuse an agent whose card is not verified, before anything is sent to it.
        max_response_bytes: Longer answers are refused.
        max_event_bytes: Longer events of a stream are refused.

    Raises (when entered or awaited):
        CardNotFound, InvalidCard: there is no card, or none that can be used.
        CardNotVerified: a signed card is required.
        VersionNotSupported: `version` is none that this client speaks.
        CredentialsUnfit: the credentials are not those that the card asks for.
        OriginNotTrusted: the card names an interface elsewhere, and there are credentials, headers or the like to keep.
        Unreachable, PeerTimeout, AuthenticationRequired, InvalidPeerResponse: the card could not be read.
        TypeError: `ref` is no reference; raised at once.
        ValueError: a header that cannot be sent, an origin, certificate or keys that are none, or an App with several
            agents.
        OSError: `verify`, `card_keys` or a certificate names a file that cannot be read.
    """
    check_reference(ref)
    options = Options(
        transports=in_order(transport),
        version=version,
        headers=headers or {},
        query=query or {},
        cookies=cookies or {},
        credentials=(credentials,) if isinstance(credentials, Credential) else tuple(credentials),
        trusted=trusted_origins(trust),
        tenant=tenant or None,
        timeouts=timeouts or Timeouts(),
        verify=verify,
        cards=cards or CardCache(),
        max_response_bytes=max_response_bytes,
        max_event_bytes=max_event_bytes,
        trust=Trust.of(card_keys, card_key_hosts, require_signed_card),
    )

    async def opening() -> Peer:
        return Peer(await opened(ref, options), extensions=extensions, recovery=recovery)

    return Connection(opening)


def _config(webhook: Webhook) -> TaskPushNotificationConfig:
    return TaskPushNotificationConfig(webhook) if isinstance(webhook, str) else webhook


def _following_up(
    after: Reply | Task | Message, task_id: str | None, context_id: str | None
) -> tuple[str | None, str | None]:
    """Task and context of a follow-up; what the caller names itself goes before."""
    told = (after.task or after.message) if isinstance(after, Reply) else after
    if isinstance(told, Task) and task_id is None and not told.status.state.terminal:
        task_id = told.id
    return task_id, context_id or (None if told is None else told.context_id)
