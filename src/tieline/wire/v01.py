"""A2A 0.1, and 0.2.0, which spoke the same: `tasks/send`. Pure, but for ids made where this dialect has none.

Callers name their tasks, parts say `type`, messages and artifacts have no id of their own. A value is read in one typed
step into the shape of the schema (v01_schema.py) and carried over into that of 1.0 (v01_values.py, v01_streams.py);
what does not fit the schema goes to lenient.py. What 0.1 has no field for stands in metadata (v01_metadata.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tieline.errors import A2AError, InvalidParams, InvalidPeerResponse, TaskEnded, UnsupportedOperation
from tieline.ids import new_id
from tieline.types import (
    CancelTaskRequest,
    Encoded,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    Metadata,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    StreamEvent,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    Value,
    decode,
    encode,
)
from tieline.wire import lenient
from tieline.wire import v01_schema as schema
from tieline.wire.dialect import EventEncoder, Json
from tieline.wire.methods import METHODS, Method
from tieline.wire.mistakes import telling_mistakes
from tieline.wire.v01_metadata import DIALECT, joined, split
from tieline.wire.v01_streams import Reader, Writer
from tieline.wire.v01_values import (
    MADE,
    MESSAGE,
    answered,
    read_config,
    read_message,
    read_task,
    restored_message,
    restored_task,
    written_config,
    written_message,
    written_task,
)
from tieline.wire.v1 import encoded

__all__ = ["V01"]

_METHODS: Final = {
    "tasks/send": METHODS["SendMessage"],
    "tasks/sendSubscribe": METHODS["SendStreamingMessage"],
    "tasks/get": METHODS["GetTask"],
    "tasks/cancel": METHODS["CancelTask"],
    "tasks/resubscribe": METHODS["SubscribeToTask"],
    "tasks/pushNotification/set": METHODS["CreateTaskPushNotificationConfig"],
    "tasks/pushNotification/get": METHODS["GetTaskPushNotificationConfig"],
}

_NOT_OF_SCHEMA: Final = (InvalidParams, msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What reading raises for what is not of the schema."""


class _V01:
    """See Dialect."""

    version = "0.1"
    versions = ("0.1", "0.2")  # of the 0.2 line, 0.2.0 only: which one is meant is told by the method
    methods: Mapping[str, Method] = _METHODS
    names: Mapping[str, str] = {method.name: name for name, method in _METHODS.items()}
    codes: Mapping[type[A2AError], int] = {TaskEnded: -32002}
    data_in_object = True
    new_task: Metadata | None = {DIALECT: "0.1"}
    has_final = True
    shows_ended = True
    resumes = False

    # --- a server -----------------------------------------------------------------------------------------------------

    @telling_mistakes
    def read_params(self, method: Method, params: Json) -> Any:
        request = method.request
        try:
            if request is SendMessageRequest:
                return _read_send(decode(params, schema.SendParams))
            if request is TaskPushNotificationConfig:
                read = decode(params, schema.TaskPushConfig)
                return read_config(read.push_notification_config, _required(read.id))
            named = decode(params, schema.IdParams)
        except InvalidParams as error:
            return _read_odd(params, request, error)
        id_ = _required(named.id)
        if request is GetTaskRequest:
            return GetTaskRequest(id_, None, named.history_length)
        if request is CancelTaskRequest:
            return CancelTaskRequest(id_, None, named.metadata)
        if request is GetTaskPushNotificationConfigRequest:
            return GetTaskPushNotificationConfigRequest(id_, id_)
        return SubscribeToTaskRequest(id_)

    def encode_answer(self, answer: Encoded[Task] | Encoded[Message]) -> bytes:
        value = answer.value
        if isinstance(value, Message):
            return encode(answered(value, value.context_id))
        return encode(written_task(value))

    def encode_task(self, task: Encoded[Task]) -> bytes:
        return encode(written_task(task.value))

    def encode_page(self, page: ListTasksResponse) -> bytes:
        raise _not_there("ListTasks")

    def encode_config(self, config: TaskPushNotificationConfig) -> bytes:
        return encode(schema.TaskPushConfig(config.task_id or "", written_config(config)))

    def encode_configs(self, configs: ListTaskPushNotificationConfigsResponse) -> bytes:
        raise _not_there("ListTaskPushNotificationConfigs")

    def encode_deleted(self) -> bytes:
        raise _not_there("DeleteTaskPushNotificationConfig")

    def event_encoder(self) -> EventEncoder:
        return Writer()

    # --- a client -----------------------------------------------------------------------------------------------------

    def encode_params(self, method: Method, request: Value) -> bytes:
        if method.name not in self.names:
            raise _not_there(method.name)
        if getattr(request, "tenant", None):
            raise InvalidParams.at("tenant", "cannot be said in A2A 0.1")
        if isinstance(request, SendMessageRequest):
            return encoded(_written_send(request))
        if isinstance(request, TaskPushNotificationConfig):
            return encoded(schema.TaskPushConfig(request.task_id or "", written_config(request)))
        if isinstance(request, GetTaskPushNotificationConfigRequest):
            return encoded(schema.IdParams(request.task_id))
        assert isinstance(request, (GetTaskRequest, CancelTaskRequest, SubscribeToTaskRequest))
        length = request.history_length if isinstance(request, GetTaskRequest) else None
        metadata = request.metadata if isinstance(request, CancelTaskRequest) else None
        return encoded(schema.IdParams(request.id, length, metadata))

    def decode_answer(self, data: Json) -> Task | Message:
        try:
            task = decode(data, schema.Task)
            if task.status.message is not None and split(task.metadata)[1].get("answer") == MESSAGE:
                return read_message(task.status.message, task.id, task.session_id, "status.message")
            return read_task(task)
        except _NOT_OF_SCHEMA:
            response = lenient.read_result(data, SendMessageResponse)
            if response.task is not None:
                return restored_task(response.task)
            if response.message is not None:
                return restored_message(response.message)
            raise InvalidPeerResponse("The answer is neither a task nor a message.") from None

    def decode_task(self, data: Json) -> Task:
        try:
            return read_task(decode(data, schema.Task))
        except _NOT_OF_SCHEMA:
            return restored_task(lenient.read_result(data, Task))

    def decode_page(self, data: Json) -> ListTasksResponse:
        raise _not_there("ListTasks")

    def decode_config(self, data: Json) -> TaskPushNotificationConfig:
        try:
            read = decode(data, schema.TaskPushConfig)
            return read_config(read.push_notification_config, read.id)
        except _NOT_OF_SCHEMA:
            return lenient.read_result(data, TaskPushNotificationConfig)

    def decode_configs(self, data: Json) -> ListTaskPushNotificationConfigsResponse:
        raise _not_there("ListTaskPushNotificationConfigs")

    def event_decoder(self) -> Callable[[Json], StreamEvent | None]:
        return Reader()


V01: Final = _V01()


def _not_there(name: str) -> UnsupportedOperation:
    return UnsupportedOperation(f"A2A 0.1 has no {name}.")


# --- requests ---------------------------------------------------------------------------------------------------------


def _read_send(params: schema.SendParams) -> SendMessageRequest:
    own, ours = split(params.metadata)
    now = ours.get("returnImmediately") is True
    length, modes, webhook = params.history_length, params.accepted_output_modes, params.push_notification
    configuration = None
    if modes or webhook is not None or length is not None or now:
        config = None if webhook is None else read_config(webhook, params.id)
        configuration = SendMessageConfiguration(modes, config, length, now)
    message = read_message(params.message, params.id, params.session_id, "message", MADE + new_id())
    return SendMessageRequest(_in_task(message, params.id, params.session_id), None, configuration, own)


def _in_task(message: Message, task_id: str | None, context_id: str | None) -> Message:
    """The message of a request in the task and session that it names, whatever its metadata says."""
    task_id, context_id = _required(task_id), context_id or None
    if message.task_id == task_id and message.context_id == context_id:
        return message
    return replace(message, task_id=task_id, context_id=context_id)


def _required(id_: str | None) -> str:
    if not id_:
        raise InvalidParams.at("id", "is required")
    return id_


def _read_odd(params: Json, request: type[Any], error: InvalidParams) -> Any:
    """A request in a shape that is not of 0.1, as it was meant; `error` is what 0.1 has to say of it."""
    members = msgspec.json.decode(params)
    if isinstance(members, dict) and "id" not in members:
        raise InvalidParams.at("id", "is required")
    try:
        read = lenient.read(params, request)
    except InvalidParams as other:
        unknown = other.violations and error.violations and "Invalid value" in error.violations[0].description
        raise other if unknown else error from None
    if not isinstance(read, SendMessageRequest):
        return read
    own, ours = split(read.metadata)
    configuration = read.configuration
    if ours.get("returnImmediately") is True:
        configuration = replace(configuration or SendMessageConfiguration(), return_immediately=True)
    message = replace(read.message, message_id=read.message.message_id or MADE + new_id())
    message = _in_task(restored_message(message), message.task_id, message.context_id)
    return SendMessageRequest(message, read.tenant, configuration, own)


def _written_send(request: SendMessageRequest) -> schema.SendParams:
    """The caller names the task: a first message's task has the id of the message, and a session of its own."""
    message = request.message
    task_id = message.task_id or message.message_id or new_id()
    context_id = message.context_id or (None if message.task_id else new_id())
    configuration = request.configuration or SendMessageConfiguration()
    webhook = configuration.task_push_notification_config
    return schema.SendParams(
        task_id,
        written_message(replace(message, task_id=task_id, context_id=context_id), task_id, context_id),
        context_id,
        configuration.accepted_output_modes,
        None if webhook is None else written_config(webhook),
        configuration.history_length,
        joined(request.metadata, {"tieline/returnImmediately": True} if configuration.return_immediately else {}),
    )
