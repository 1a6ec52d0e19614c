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

Here are the rpcs; what they carry is in protobuf03_content.py, protobuf03_requests.py and protobuf03_card.py.
"""

from __future__ import annotations

from typing import Any, Final

from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from google.protobuf.empty_pb2 import Empty

from tieline.types import GetExtendedAgentCardRequest
from tieline.wire.protobuf03_card import read_card, write_card
from tieline.wire.protobuf03_content import Content
from tieline.wire.protobuf03_requests import (
    no_tenant,
    read_cancel,
    read_config,
    read_configs,
    read_create,
    read_delete_config,
    read_get,
    read_get_config,
    read_list_configs,
    read_subscribe,
    write_cancel,
    write_config,
    write_config_name,
    write_configs,
    write_create,
    write_get,
    write_list_configs,
    write_task_name,
)
from tieline.wire.protobuf_rpcs import Form, Rpc, rpc, rpcs_by_name

__all__ = ["RPCS", "RPCS_OF_PYTHON", "SERVICE", "VERSION"]

SERVICE: Final = "a2a.v1.A2AService"
VERSION: Final = "0.3"

_CONFIG: Final[Form] = (pb.TaskPushNotificationConfig, read_config, write_config)


def _read_nothing(message: Any) -> None:
    """Empty."""


def _write_nothing(into: Any, value: object) -> None:
    """Empty."""


def _read_card_request(request: Any) -> GetExtendedAgentCardRequest:
    return GetExtendedAgentCardRequest()


def _write_card_request(into: Any, request: GetExtendedAgentCardRequest) -> None:
    no_tenant(request)


def _rpcs(*, base64_files: bool) -> dict[str, Rpc]:
    content = Content(base64_files=base64_files)
    send: Form = (pb.SendMessageRequest, content.read_send, content.write_send)
    task: Form = (pb.Task, content.read_task, content.write_task)
    event: Form = (pb.StreamResponse, content.read_event, content.write_event)
    create: Form = (pb.CreateTaskPushNotificationConfigRequest, read_create, write_create)
    get: Form = (pb.GetTaskPushNotificationConfigRequest, read_get_config, write_config_name)
    listing: Form = (pb.ListTaskPushNotificationConfigRequest, read_list_configs, write_list_configs)
    delete: Form = (pb.DeleteTaskPushNotificationConfigRequest, read_delete_config, write_config_name)
    configs: Form = (pb.ListTaskPushNotificationConfigResponse, read_configs, write_configs)
    subscribe: Form = (pb.TaskSubscriptionRequest, read_subscribe, write_task_name)
    return rpcs_by_name(
        (
            rpc("SendMessage", send, (pb.SendMessageResponse, content.read_answer, content.write_answer)),
            rpc("SendStreamingMessage", send, event, passing=content.write_passing_event),
            rpc("GetTask", (pb.GetTaskRequest, read_get, write_get), task),
            rpc("CancelTask", (pb.CancelTaskRequest, read_cancel, write_cancel), task),
            rpc("TaskSubscription", subscribe, event, operation="SubscribeToTask", passing=content.write_passing_event),
            rpc("CreateTaskPushNotificationConfig", create, _CONFIG),
            rpc("GetTaskPushNotificationConfig", get, _CONFIG),
            rpc("ListTaskPushNotificationConfig", listing, configs, operation="ListTaskPushNotificationConfigs"),
            rpc("DeleteTaskPushNotificationConfig", delete, (Empty, _read_nothing, _write_nothing)),
            rpc(
                "GetAgentCard",
                (pb.GetAgentCardRequest, _read_card_request, _write_card_request),
                (pb.AgentCard, read_card, write_card),
                operation="GetExtendedAgentCard",
            ),
        )
    )


RPCS: Final = _rpcs(base64_files=False)
"""The rpcs of A2A 0.3 §3.5.2 by their names on the wire."""

RPCS_OF_PYTHON: Final = _rpcs(base64_files=True)
"""The same for callers that are the official Python SDK."""
