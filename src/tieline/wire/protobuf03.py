"""A2A 0.3 in protobuf: the values of 1.0 to and from the messages of package a2a.v1. Pure.

Tasks and webhooks have resource names here (`tasks/{id}`), data parts are objects, text and data parts have no file
name or media type, and a message names no other tasks. What 0.3 has no field for is carried as metadata under the names
that its JSON has for it (v03_metadata.py); where there is no metadata either, writing is refused:

| not in 0.3 over gRPC | what becomes of it |
|---|---|
| tenant | refused |
| metadata of CancelTask | refused |
| historyLength 0, which means all here | refused |
| in the card: the device code flow, `pkceRequired` | left out |

`blocking` has no presence: a message whose request does not say true is answered at once, as servers of 0.3 did.

The official Python SDK writes files as text in base64 where the definition wants their bytes, and reads them so:
`RPCS_OF_PYTHON` is for its callers.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from google.protobuf.empty_pb2 import Empty
from msgspec import UNSET
from msgspec.structs import replace

from tieline.card import (
    AgentCapabilities,
    AgentCard,
    AgentCardSignature,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    SecurityRequirement,
    SecurityScheme,
)
from tieline.types import (
    Artifact,
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    Message,
    Metadata,
    Part,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamEvent,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from tieline.wire.protobuf_fields import (
    Fault,
    inside,
    into_field,
    read_all,
    read_metadata,
    read_role,
    read_state,
    read_struct,
    read_timestamp,
    reader_of,
    required,
    role_number,
    state_number,
    write_all,
    write_count,
    write_fields,
    write_metadata,
    write_struct,
    write_text,
    write_texts,
    write_timestamp,
)
from tieline.wire.protobuf_rpcs import Form, Rpc, rpc, rpcs_by_name
from tieline.wire.v03_metadata import OF_DATA, OF_PART, WRAPPED, carried, carry, data_carried
from tieline.wire.v03_values import ENDS_STREAM

__all__ = ["RPCS", "RPCS_OF_PYTHON", "SERVICE", "VERSION"]

SERVICE: Final = "a2a.v1.A2AService"
VERSION: Final = "0.3"

_PATCHED: Final = "0.3.0"  # as cards of 0.3 write it
_FILENAME, _MEDIA_TYPE = "tieline/filename", "tieline/mediaType"
_REFERENCES: Final = "tieline/referenceTaskIds"
_PUSH_TASK: Final = "tieline/pushNotificationTaskId"
_OF_MESSAGE: Final = {_REFERENCES: list}
_OF_SEND: Final = {_PUSH_TASK: str}
_WAITING: Final = pb.SendMessageConfiguration(blocking=True)
_TASK_NAME: Final = re.compile(r"tasks/(.+)\Z")
_CONFIG_NAME: Final = re.compile(r"tasks/(.+)/pushNotificationConfigs/([^/]+)\Z")


def _no_tenant(request: Any) -> None:
    if request.tenant:
        raise Fault("tenant", "A2A 0.3 has no tenants over gRPC")


def _write_carrying(into: Any, metadata: Metadata | None, extra: Metadata, names: Mapping[str, type]) -> None:
    whole = carry(metadata, extra, names)
    if whole is not None:
        write_metadata(into, whole)


# --- tasks, messages and events ---------------------------------------------------------------------------------------


class _Content:
    """Parts, and all that has parts in it. `base64_files`: files are text in base64, as the Python SDK has them."""

    def __init__(self, *, base64_files: bool) -> None:
        self._base64_files = base64_files

    def read_part(self, part: Any) -> Part:
        kind = part.WhichOneof("part")
        metadata = read_metadata(part)
        if kind == "text":
            metadata, extra = carried(metadata, OF_PART)
            return Part(part.text, metadata=metadata, filename=extra.get(_FILENAME), media_type=extra.get(_MEDIA_TYPE))
        if kind == "data":
            data, metadata, extra = data_carried(inside("data", read_struct, part.data.data), metadata)
            return Part(data=data, metadata=metadata, filename=extra.get(_FILENAME), media_type=extra.get(_MEDIA_TYPE))
        if kind == "file":
            file = part.file
            filename, media_type = file.name or None, file.mime_type or None
            which = file.WhichOneof("file")
            if which == "file_with_uri":
                return Part(url=file.file_with_uri, metadata=metadata, filename=filename, media_type=media_type)
            if which == "file_with_bytes":
                raw = file.file_with_bytes
                if self._base64_files:
                    raw = _from_base64(raw)
                return Part(raw=raw, metadata=metadata, filename=filename, media_type=media_type)
            raise Fault("file", "wants exactly one of fileWithUri or fileWithBytes, got 0")
        raise Fault("", "wants exactly one of text, file or data, got 0")

    def write_part(self, into: Any, part: Part) -> None:
        if part.raw is not None or part.url is not None:
            file = into.file
            if part.raw is not None:
                raw = bytes(part.raw)
                file.file_with_bytes = base64.b64encode(raw) if self._base64_files else raw
            elif part.url is not None:
                write_text(file, "file_with_uri", part.url)
            if part.media_type:
                write_text(file, "mime_type", part.media_type)
            if part.filename:
                write_text(file, "name", part.filename)
            if part.metadata is not None:
                write_metadata(into, part.metadata)
            return
        extra: Metadata = {}
        if part.filename:
            extra[_FILENAME] = part.filename
        if part.media_type:
            extra[_MEDIA_TYPE] = part.media_type
        if part.data is UNSET:
            assert part.text is not None
            write_text(into, "text", part.text)
            _write_carrying(into, part.metadata, extra, OF_PART)
            return
        data = part.data
        if not isinstance(data, dict):
            data = {"value": data}
            extra[WRAPPED] = True
        into.data.SetInParent()
        try:
            write_struct(into.data.data, data, _LEVELS)
        except Fault as fault:
            raise (fault.within("data") if isinstance(part.data, dict) else _unwrapped(fault)) from None
        _write_carrying(into, part.metadata, extra, OF_DATA)

    def read_message(self, message: Any) -> Message:
        metadata, extra = carried(read_metadata(message), _OF_MESSAGE)
        references = extra.get(_REFERENCES, [])
        if not all(isinstance(reference, str) for reference in references):
            raise Fault(f"metadata.{_REFERENCES}", "has to be a list of strings")
        return Message(
            message.message_id,
            read_role(message.role),
            read_all("parts", self.read_part, message.content),
            message.context_id or None,
            message.task_id or None,
            metadata,
            tuple(message.extensions),
            tuple(references),
        )

    def write_message(self, into: Any, message: Message) -> None:
        into.SetInParent()
        write_text(into, "message_id", message.message_id)
        into.role = role_number(message.role)
        write_all("parts", self.write_part, into.content, message.parts)
        if message.context_id:
            write_text(into, "context_id", message.context_id)
        if message.task_id:
            write_text(into, "task_id", message.task_id)
        extra: Metadata = {_REFERENCES: list(message.reference_task_ids)} if message.reference_task_ids else {}
        _write_carrying(into, message.metadata, extra, _OF_MESSAGE)
        write_texts(into.extensions, message.extensions, "extensions")

    def read_status(self, status: Any) -> TaskStatus:
        return TaskStatus(
            read_state(status.state),
            inside("message", self.read_message, status.update) if status.HasField("update") else None,
            inside("timestamp", read_timestamp, status.timestamp) if status.HasField("timestamp") else None,
        )

    def write_status(self, into: Any, status: TaskStatus) -> None:
        into.SetInParent()
        into.state = state_number(status.state)
        if status.message is not None:
            into_field("message", self.write_message, into.update, status.message)
        if status.timestamp:
            into_field("timestamp", write_timestamp, into.timestamp, status.timestamp)

    def read_artifact(self, artifact: Any) -> Artifact:
        return Artifact(
            artifact.artifact_id,
            read_all("parts", self.read_part, artifact.parts),
            artifact.name or None,
            artifact.description or None,
            read_metadata(artifact),
            tuple(artifact.extensions),
        )

    def write_artifact(self, into: Any, artifact: Artifact) -> None:
        into.SetInParent()
        write_text(into, "artifact_id", artifact.artifact_id)
        write_all("parts", self.write_part, into.parts, artifact.parts)
        if artifact.name:
            write_text(into, "name", artifact.name)
        if artifact.description:
            write_text(into, "description", artifact.description)
        if artifact.metadata is not None:
            write_metadata(into, artifact.metadata)
        write_texts(into.extensions, artifact.extensions, "extensions")

    def read_task(self, task: Any) -> Task:
        return Task(
            task.id,
            inside("status", self.read_status, required(task, "status")),
            task.context_id or None,
            read_all("artifacts", self.read_artifact, task.artifacts),
            read_all("history", self.read_message, task.history),
            read_metadata(task),
        )

    def write_task(self, into: Any, task: Task) -> None:
        into.SetInParent()
        write_text(into, "id", task.id)
        into_field("status", self.write_status, into.status, task.status)
        if task.context_id:
            write_text(into, "context_id", task.context_id)
        write_all("artifacts", self.write_artifact, into.artifacts, task.artifacts)
        write_all("history", self.write_message, into.history, task.history)
        if task.metadata is not None:
            write_metadata(into, task.metadata)

    def read_answer(self, answer: Any) -> Task | Message:
        which = answer.WhichOneof("payload")
        if which == "task":
            return inside("task", self.read_task, answer.task)
        if which == "msg":
            return inside("message", self.read_message, answer.msg)
        raise Fault("", "has to hold exactly one of task and message, it holds none")

    def write_answer(self, into: Any, answer: Task | Message) -> None:
        if isinstance(answer, Task):
            into_field("task", self.write_task, into.task, answer)
        else:
            into_field("message", self.write_message, into.msg, answer)

    def read_event(self, response: Any) -> StreamEvent | None:
        """What a StreamResponse holds; None when it is something that this version does not know."""
        which = response.WhichOneof("payload")
        if which is None:
            return None
        if which == "artifact_update":
            event = response.artifact_update
            artifact = inside("artifactUpdate.artifact", self.read_artifact, required(event, "artifact"))
            return TaskArtifactUpdateEvent(
                event.task_id, event.context_id, artifact, event.append, event.last_chunk, read_metadata(event)
            )
        if which == "status_update":
            event = response.status_update
            status = inside("statusUpdate.status", self.read_status, required(event, "status"))
            return TaskStatusUpdateEvent(event.task_id, event.context_id, status, read_metadata(event))
        return self.read_answer(response)

    def write_event(self, into: Any, event: StreamEvent) -> None:
        if isinstance(event, TaskArtifactUpdateEvent):
            update = into.artifact_update
            into_field("artifactUpdate.artifact", self.write_artifact, update.artifact, event.artifact)
            update.append, update.last_chunk = event.append, event.last_chunk
        elif isinstance(event, TaskStatusUpdateEvent):
            update = into.status_update
            into_field("statusUpdate.status", self.write_status, update.status, event.status)
            update.final = event.status.state in ENDS_STREAM
        else:
            self.write_answer(into, event)
            return
        write_text(update, "task_id", event.task_id)
        write_text(update, "context_id", event.context_id)
        if event.metadata is not None:
            write_metadata(update, event.metadata)

    def read_send(self, request: Any) -> SendMessageRequest:
        metadata, extra = carried(read_metadata(request), _OF_SEND)
        given = request.configuration
        configuration = None
        if given != _WAITING:
            webhook = None
            if given.HasField("push_notification"):
                read = inside("configuration.pushNotificationConfig", _read_push, given.push_notification)
                webhook = replace(read, task_id=extra.get(_PUSH_TASK))
            configuration = SendMessageConfiguration(
                tuple(given.accepted_output_modes), webhook, given.history_length or None, not given.blocking
            )
        if not request.HasField("request"):
            raise Fault("message", "is required")
        return SendMessageRequest(inside("message", self.read_message, request.request), None, configuration, metadata)

    def write_send(self, into: Any, request: SendMessageRequest) -> None:
        _no_tenant(request)
        into_field("message", self.write_message, into.request, request.message)
        given = request.configuration
        configuration = into.configuration
        configuration.blocking = given is None or not given.return_immediately
        extra: Metadata = {}
        if given is not None:
            write_texts(configuration.accepted_output_modes, given.accepted_output_modes, "acceptedOutputModes")
            _write_history_length(configuration, given.history_length)
            webhook = given.task_push_notification_config
            if webhook is not None:
                _no_tenant(webhook)
                into_field("configuration", _write_push, configuration.push_notification, webhook)
                if webhook.task_id:
                    extra[_PUSH_TASK] = webhook.task_id
        _write_carrying(into, request.metadata, extra, _OF_SEND)


_LEVELS: Final = 92  # below the object of a data part, which is one message deeper than in 1.0


def _unwrapped(fault: Fault) -> Fault:
    """A fault in a value that was put into {"value": it}."""
    fault.field = fault.field.removeprefix("value").removeprefix(".")
    return fault.within("data")


def _from_base64(text: bytes) -> bytes:
    """What is written in base64; what is none is a file as it stands."""
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error:
        return text
    return raw if base64.b64encode(raw) == text else text


def _write_history_length(into: Any, length: int | None) -> None:
    if length == 0:
        raise Fault("historyLength", "0 means all in A2A 0.3 over gRPC: ask for 1")
    if length is not None:
        write_count(into, "history_length", length)


# --- requests about a task, and webhooks ------------------------------------------------------------------------------


def _task_id(name: str) -> str:
    match = _TASK_NAME.match(name)
    if match is None:
        raise Fault("name", "is required, as tasks/{id}" if not name else f"{name[:80]!r} is not tasks/{{id}}")
    return match.group(1)


def _config_id(name: str) -> tuple[str, str]:
    match = _CONFIG_NAME.match(name)
    if match is None:
        raise Fault("name", "is required, as tasks/{id}/pushNotificationConfigs/{id}")
    return match.group(1), match.group(2)


def _name_of(task_id: str) -> str:
    if not task_id or "/" in task_id:
        raise Fault("id", "has to be there, and without a slash, for A2A 0.3 over gRPC")
    return f"tasks/{task_id}"


def _write_task_name(into: Any, request: Any) -> None:
    _no_tenant(request)
    write_text(into, "name", _name_of(request.id))


def _read_get(request: Any) -> GetTaskRequest:
    return GetTaskRequest(_task_id(request.name), None, request.history_length or None)


def _write_get(into: Any, request: GetTaskRequest) -> None:
    _write_task_name(into, request)
    _write_history_length(into, request.history_length)


def _read_cancel(request: Any) -> CancelTaskRequest:
    return CancelTaskRequest(_task_id(request.name))


def _write_cancel(into: Any, request: CancelTaskRequest) -> None:
    _write_task_name(into, request)
    if request.metadata is not None:
        raise Fault("metadata", "A2A 0.3 has none for CancelTask over gRPC")


def _read_subscribe(request: Any) -> SubscribeToTaskRequest:
    return SubscribeToTaskRequest(_task_id(request.name))


def _read_push(config: Any) -> TaskPushNotificationConfig:
    if not config.url:
        raise Fault("url", "is required")
    authentication = None
    if config.HasField("authentication"):
        given = config.authentication
        authentication = AuthenticationInfo("".join(given.schemes[:1]), given.credentials or None)
    return TaskPushNotificationConfig(
        config.url, id=config.id or None, token=config.token or None, authentication=authentication
    )


def _write_push(into: Any, config: TaskPushNotificationConfig) -> None:
    write_text(into, "url", config.url)
    if config.id:
        write_text(into, "id", config.id)
    if config.token:
        write_text(into, "token", config.token)
    if config.authentication is not None:
        into.authentication.SetInParent()
        if config.authentication.scheme:
            write_texts(into.authentication.schemes, (config.authentication.scheme,), "authentication.scheme")
        if config.authentication.credentials:
            write_text(into.authentication, "credentials", config.authentication.credentials)


def _read_config(config: Any) -> TaskPushNotificationConfig:
    task_id, id_ = _config_id(config.name)
    read = inside("pushNotificationConfig", _read_push, config.push_notification_config)
    return replace(read, task_id=task_id, id=read.id or id_)


def _write_config(into: Any, config: TaskPushNotificationConfig) -> None:
    _no_tenant(config)
    write_text(into, "name", f"{_name_of(config.task_id or '')}/pushNotificationConfigs/{_named(config)}")
    _write_push(into.push_notification_config, config)


def _named(config: Any) -> str:
    """The id in a resource name: a webhook without one has that of its task."""
    return str(config.id or config.task_id)


def _read_create(request: Any) -> TaskPushNotificationConfig:
    read = inside("config.pushNotificationConfig", _read_push, request.config.push_notification_config)
    return replace(read, task_id=_task_id(request.parent), id=read.id or request.config_id or None)


def _write_create(into: Any, config: TaskPushNotificationConfig) -> None:
    _no_tenant(config)
    write_text(into, "parent", _name_of(config.task_id or ""))
    write_text(into, "config_id", _named(config))
    into_field("config", _write_config, into.config, config)


def _read_get_config(request: Any) -> GetTaskPushNotificationConfigRequest:
    return GetTaskPushNotificationConfigRequest(*_config_id(request.name))


def _read_delete_config(request: Any) -> DeleteTaskPushNotificationConfigRequest:
    return DeleteTaskPushNotificationConfigRequest(*_config_id(request.name))


def _write_config_name(into: Any, request: Any) -> None:
    _no_tenant(request)
    write_text(into, "name", f"{_name_of(request.task_id)}/pushNotificationConfigs/{request.id}")


def _read_list_configs(request: Any) -> ListTaskPushNotificationConfigsRequest:
    return ListTaskPushNotificationConfigsRequest(
        _task_id(request.parent), None, request.page_size or None, request.page_token or None
    )


def _write_list_configs(into: Any, request: ListTaskPushNotificationConfigsRequest) -> None:
    _no_tenant(request)
    write_text(into, "parent", _name_of(request.task_id))
    if request.page_size:
        write_count(into, "page_size", request.page_size)
    if request.page_token:
        write_text(into, "page_token", request.page_token)


def _read_configs(page: Any) -> ListTaskPushNotificationConfigsResponse:
    return ListTaskPushNotificationConfigsResponse(
        read_all("configs", _read_config, page.configs), page.next_page_token or None
    )


def _write_configs(into: Any, page: ListTaskPushNotificationConfigsResponse) -> None:
    write_all("configs", _write_config, into.configs, page.configs)
    if page.next_page_token:
        write_text(into, "next_page_token", page.next_page_token)


# --- the card ---------------------------------------------------------------------------------------------------------

_read_provider = reader_of(AgentProvider)
_read_extension = reader_of(AgentExtension)
_read_scheme = reader_of(SecurityScheme)
_read_requirement = reader_of(SecurityRequirement)
_read_plain_skill = reader_of(AgentSkill)
_read_signature = reader_of(AgentCardSignature)


def _read_skill(skill: Any) -> AgentSkill:
    requirements = read_all("security", _read_requirement, skill.security)
    return replace(_read_plain_skill(skill), security_requirements=requirements)


def _write_skill(into: Any, skill: AgentSkill) -> None:
    write_fields(into, skill)
    write_all("security", write_fields, into.security, skill.security_requirements)


def _read_card(card: Any) -> AgentCard:
    version = VERSION if card.protocol_version in ("", _PATCHED) else card.protocol_version
    interfaces = [AgentInterface(card.url, card.preferred_transport or "JSONRPC", version)]
    interfaces += [AgentInterface(each.url, each.transport, version) for each in card.additional_interfaces]
    capabilities = card.capabilities
    return AgentCard(
        name=card.name,
        description=card.description,
        supported_interfaces=tuple(dict.fromkeys(interfaces)),
        version=card.version,
        capabilities=AgentCapabilities(
            streaming=capabilities.streaming,
            push_notifications=capabilities.push_notifications,
            extensions=read_all("capabilities.extensions", _read_extension, capabilities.extensions),
            extended_agent_card=card.supports_authenticated_extended_card,
        ),
        default_input_modes=tuple(card.default_input_modes),
        default_output_modes=tuple(card.default_output_modes),
        skills=read_all("skills", _read_skill, card.skills),
        provider=inside("provider", _read_provider, card.provider) if card.HasField("provider") else None,
        documentation_url=card.documentation_url or None,
        icon_url=card.icon_url or None,
        security_schemes={name: inside(name, _read_scheme, each) for name, each in card.security_schemes.items()},
        security_requirements=read_all("security", _read_requirement, card.security),
        signatures=read_all("signatures", _read_signature, card.signatures),
    )


def _write_card(into: Any, card: AgentCard) -> None:
    interfaces = [each for each in card.supported_interfaces if each.protocol_version == VERSION]
    if not interfaces:
        raise Fault("supportedInterfaces", "names none of A2A 0.3")
    into.protocol_version = _PATCHED
    for name in ("name", "description", "version"):
        write_text(into, name, getattr(card, name))
    for name in ("documentation_url", "icon_url"):
        write_text(into, name, getattr(card, name) or "")
    write_text(into, "url", interfaces[0].url)
    write_text(into, "preferred_transport", interfaces[0].protocol_binding)
    for each in interfaces:
        into.additional_interfaces.add(url=each.url, transport=each.protocol_binding)
    if card.provider is not None:
        write_fields(into.provider, card.provider)
    into.capabilities.streaming = bool(card.capabilities.streaming)
    into.capabilities.push_notifications = bool(card.capabilities.push_notifications)
    write_all("capabilities.extensions", write_fields, into.capabilities.extensions, card.capabilities.extensions)
    into.supports_authenticated_extended_card = bool(card.capabilities.extended_agent_card)
    for scheme, given in card.security_schemes.items():
        if given.oauth2_security_scheme is not None and given.oauth2_security_scheme.flows.device_code is not None:
            continue  # came with 1.0
        into_field(scheme, write_fields, into.security_schemes[scheme], given)
    write_all("security", write_fields, into.security, card.security_requirements)
    write_texts(into.default_input_modes, card.default_input_modes, "defaultInputModes")
    write_texts(into.default_output_modes, card.default_output_modes, "defaultOutputModes")
    write_all("skills", _write_skill, into.skills, card.skills)
    write_all("signatures", write_fields, into.signatures, card.signatures)


# --- rpcs -------------------------------------------------------------------------------------------------------------

_CONFIG: Final[Form] = (pb.TaskPushNotificationConfig, _read_config, _write_config)


def _read_nothing(message: Any) -> None:
    """Empty."""


def _write_nothing(into: Any, value: object) -> None:
    """Empty."""


def _read_card_request(request: Any) -> GetExtendedAgentCardRequest:
    return GetExtendedAgentCardRequest()


def _write_card_request(into: Any, request: GetExtendedAgentCardRequest) -> None:
    _no_tenant(request)


def _rpcs(*, base64_files: bool) -> dict[str, Rpc]:
    content = _Content(base64_files=base64_files)
    send: Form = (pb.SendMessageRequest, content.read_send, content.write_send)
    task: Form = (pb.Task, content.read_task, content.write_task)
    event: Form = (pb.StreamResponse, content.read_event, content.write_event)
    create: Form = (pb.CreateTaskPushNotificationConfigRequest, _read_create, _write_create)
    get: Form = (pb.GetTaskPushNotificationConfigRequest, _read_get_config, _write_config_name)
    listing: Form = (pb.ListTaskPushNotificationConfigRequest, _read_list_configs, _write_list_configs)
    delete: Form = (pb.DeleteTaskPushNotificationConfigRequest, _read_delete_config, _write_config_name)
    configs: Form = (pb.ListTaskPushNotificationConfigResponse, _read_configs, _write_configs)
    subscribe: Form = (pb.TaskSubscriptionRequest, _read_subscribe, _write_task_name)
    return rpcs_by_name(
        (
            rpc("SendMessage", send, (pb.SendMessageResponse, content.read_answer, content.write_answer)),
            rpc("SendStreamingMessage", send, event),
            rpc("GetTask", (pb.GetTaskRequest, _read_get, _write_get), task),
            rpc("CancelTask", (pb.CancelTaskRequest, _read_cancel, _write_cancel), task),
            rpc("TaskSubscription", subscribe, event, operation="SubscribeToTask"),
            rpc("CreateTaskPushNotificationConfig", create, _CONFIG),
            rpc("GetTaskPushNotificationConfig", get, _CONFIG),
            rpc("ListTaskPushNotificationConfig", listing, configs, operation="ListTaskPushNotificationConfigs"),
            rpc("DeleteTaskPushNotificationConfig", delete, (Empty, _read_nothing, _write_nothing)),
            rpc(
                "GetAgentCard",
                (pb.GetAgentCardRequest, _read_card_request, _write_card_request),
                (pb.AgentCard, _read_card, _write_card),
                operation="GetExtendedAgentCard",
            ),
        )
    )


RPCS: Final = _rpcs(base64_files=False)
"""The rpcs of A2A 0.3 §3.5.2 by their names on the wire."""

RPCS_OF_PYTHON: Final = _rpcs(base64_files=True)
"""The same for callers that are the official Python SDK."""
