"""The HTTP+JSON binding (A2A 1.0 §11)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from yarl import URL

from tieline.client.http import Answer, Http, check_authentication, check_json, not_an_answer, request_headers
from tieline.client.transport import Events, OneEvent
from tieline.errors import A2AError, InvalidPeerResponse, MethodNotFound, TaskNotFound
from tieline.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    Value,
)
from tieline.wire import rest
from tieline.wire.methods import METHODS, Method
from tieline.wire.rest_forms import RestForm
from tieline.wire.v1 import V1, encoded

__all__ = ["RestTransport"]

T = TypeVar("T")

_SEND = METHODS["SendMessage"]
_STREAM = METHODS["SendStreamingMessage"]
_GET = METHODS["GetTask"]
_LIST = METHODS["ListTasks"]
_CANCEL = METHODS["CancelTask"]
_SUBSCRIBE = METHODS["SubscribeToTask"]
_SET_WEBHOOK = METHODS["CreateTaskPushNotificationConfig"]
_GET_WEBHOOK = METHODS["GetTaskPushNotificationConfig"]
_LIST_WEBHOOKS = METHODS["ListTaskPushNotificationConfigs"]
_DELETE_WEBHOOK = METHODS["DeleteTaskPushNotificationConfig"]
_EXTENDED_CARD = METHODS["GetExtendedAgentCard"]

_ACCEPT = f"{rest.MEDIA_TYPE}, application/json"
_NO_BODY = b""
_ACCEPT_STREAM = f"text/event-stream, {_ACCEPT}"


class RestTransport:
    """One agent's REST interface. See Transport."""

    name = "HTTP+JSON"

    def __init__(self, http: Http, url: URL, form: RestForm) -> None:
        self._http = http
        self._form = form
        self._dialect = form.dialect(_NO_BODY, _NO_BODY)
        self._base = str(url.with_query(None).with_fragment(None)).rstrip("/")
        if form.prefix and not self._base.endswith(form.prefix):  # some cards have it in the URL
            self._base += form.prefix
        self._query = url.raw_query_string  # of the interface: sent with each call
        self._served = False  # something was answered here
        self._fixed = {method.path: self._at(method.path) for method in (_SEND, _STREAM)}  # the request is the body

    async def send(self, request: SendMessageRequest, extensions: Sequence[str]) -> Task | Message:
        return self._decoded(self._dialect.decode_answer, await self._call(_SEND, request, extensions))

    async def get(self, request: GetTaskRequest, extensions: Sequence[str]) -> Task:
        return self._decoded(self._dialect.decode_task, await self._call(_GET, request, extensions))

    async def list(self, request: ListTasksRequest, extensions: Sequence[str]) -> ListTasksResponse:
        return self._decoded(self._dialect.decode_page, await self._call(_LIST, request, extensions))

    async def cancel(self, request: CancelTaskRequest, extensions: Sequence[str]) -> Task:
        return self._decoded(self._dialect.decode_task, await self._call(_CANCEL, request, extensions))

    async def set_webhook(
        self, webhook: TaskPushNotificationConfig, extensions: Sequence[str]
    ) -> TaskPushNotificationConfig:
        return self._decoded(self._dialect.decode_config, await self._call(_SET_WEBHOOK, webhook, extensions))

    async def get_webhook(
        self, request: GetTaskPushNotificationConfigRequest, extensions: Sequence[str]
    ) -> TaskPushNotificationConfig:
        return self._decoded(self._dialect.decode_config, await self._call(_GET_WEBHOOK, request, extensions))

    async def list_webhooks(
        self, request: ListTaskPushNotificationConfigsRequest, extensions: Sequence[str]
    ) -> ListTaskPushNotificationConfigsResponse:
        return self._decoded(self._dialect.decode_configs, await self._call(_LIST_WEBHOOKS, request, extensions))

    async def delete_webhook(self, request: DeleteTaskPushNotificationConfigRequest, extensions: Sequence[str]) -> None:
        await self._call(_DELETE_WEBHOOK, request, extensions)

    async def extended_card(self, request: GetExtendedAgentCardRequest, extensions: Sequence[str]) -> bytes:
        body = await self._call(_EXTENDED_CARD, request, extensions)
        if self._form.is_error(body):
            raise self._form.read_error(0, body)
        return body

    async def open(
        self,
        request: SendMessageRequest | SubscribeToTaskRequest,
        extensions: Sequence[str],
        last_event_id: str | None = None,
    ) -> Events:
        method = _STREAM if isinstance(request, SendMessageRequest) else _SUBSCRIBE
        verb, url, body = self._encoded(method, request)
        headers = request_headers(self._headers(_ACCEPT_STREAM, body), extensions, last_event_id)
        decode = self._dialect.event_decoder()
        opened = await self._http.open(
            verb, url, headers, body, decode=lambda data: self._event(data, decode), last_event_id=last_event_id
        )
        if isinstance(opened, Answer):
            return OneEvent(self._decoded(decode, self._body(opened, method, request)))
        self._served = True
        return opened

    async def close(self) -> None:
        """See Transport.close: the connections are the session's."""

    async def _call(self, method: Method, request: Value, extensions: Sequence[str]) -> bytes:
        verb, url, body = self._encoded(method, request)
        headers = request_headers(self._headers(_ACCEPT, body), extensions)
        answer = await self._http.answer(verb, url, headers, body)
        return self._body(answer, method, request)

    def _encoded(self, method: Method, request: Value) -> tuple[str, URL, bytes | None]:
        if method.path in self._fixed:
            return method.verbs[0], self._fixed[method.path], self._dialect.encode_params(method, request)
        if method.body:
            encoded(request)  # refuses what cannot be written, as for every other request
        verb, path, body = rest.encode_request(method, request)
        if method is _SET_WEBHOOK and self._dialect is not V1:
            body = self._dialect.encode_params(method, request)
        if method.name in self._form.paths:
            path = path.replace(method.path, self._form.paths[method.name], 1)
        return self._form.verbs.get(method.name, verb), self._at(path), body

    def _headers(self, accept: str, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": accept, "A2A-Version": self._form.version}
        if body is not None:
            headers["Content-Type"] = self._form.media_type
        return headers

    def _event(self, data: bytes, decode: Callable[[bytes], StreamEvent | None]) -> StreamEvent | None:
        event = None
        with contextlib.suppress(InvalidPeerResponse):  # an error is none, either
            event = decode(data)
        if event is None and self._form.is_error(data):
            raise self._form.read_error(0, data)
        return event or decode(data)

    def _decoded(self, decode: Callable[[bytes], T], body: bytes) -> T:
        """A result. Raises the error that a body is, whatever its HTTP status said."""
        try:
            return decode(body)
        except InvalidPeerResponse:
            if self._form.is_error(body):
                raise self._form.read_error(0, body) from None
            raise

    def _at(self, path: str) -> URL:
        if self._query:
            path += ("&" if "?" in path else "?") + self._query
        return URL(self._base + path, encoded=True)

    def _body(self, answer: Answer, method: Method, request: Value) -> bytes:
        """The body of a response that succeeded; raises the error in one that did not."""
        if 200 <= answer.status < 300:
            if method is not _DELETE_WEBHOOK:  # whose answer says nothing, and may be empty
                check_json(answer)
            self._served = True
            return answer.body
        check_authentication(answer)
        about_task = answer.status == 404 and _names_task(request)
        if not self._form.is_error(answer.body):
            if about_task and self._served:
                raise TaskNotFound(_names_task(request) or "")
            raise not_an_answer(answer)
        error = self._form.read_error(answer.status, answer.body)
        if about_task and type(error) is MethodNotFound:
            # A server that gives no ErrorInfo: what is not there is the task.
            raise _task_not_found(_names_task(request) or "", error)
        raise error


def _names_task(request: Value) -> str | None:
    """The task that a request is about."""
    if isinstance(request, SendMessageRequest):
        return request.message.task_id
    return getattr(request, "task_id", None) or getattr(request, "id", None)


def _task_not_found(task_id: str, error: A2AError) -> TaskNotFound:
    found = TaskNotFound(task_id)
    if error.message:
        found.args = (error.message,)
    return found
