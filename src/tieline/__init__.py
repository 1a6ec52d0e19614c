"""Tieline: publish any agent, call any agent, over A2A (Agent2Agent) 1.0, 0.3, 0.2 and 0.1.

    from tieline import Turn, agent

    @agent(name="Hello", description="Greets people.")
    async def hello(turn: Turn):
        yield f"Hello, {turn.text}!"

`tieline serve hello.py` publishes it; `tieline.connect(url)` calls it. Names are loaded when first used, so that
`import tieline` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tieline.card import AgentCard, AgentExtension, AgentProvider, AgentSkill
    from tieline.client.content import Reply
    from tieline.client.credentials import (
        ApiKey,
        AuthorizationCode,
        Basic,
        Bearer,
        ClientCertificate,
        ClientCredentials,
        DeviceCode,
        DevicePrompt,
        OAuthToken,
    )
    from tieline.client.discovery import CardCache
    from tieline.client.following import Recovery
    from tieline.client.peer import Peer, connect
    from tieline.client.saved import saved_credentials
    from tieline.client.simple import CardResult, SendResult, SentTask, discover_agent_card, send_text
    from tieline.client.transport import Timeouts
    from tieline.engine.agent import Agent, agent
    from tieline.engine.service import Limits
    from tieline.engine.turn import Answer, Caller, Turn
    from tieline.errors import A2AError, Failed, Rejected
    from tieline.operation.observing import Telemetry
    from tieline.server.asgi import App, app
    from tieline.server.receiver import Notification, WebhookReceiver
    from tieline.server.serve import serve
    from tieline.stores.base import Retention, Store
    from tieline.types import (
        Artifact,
        AuthenticationInfo,
        Message,
        Part,
        Role,
        Task,
        TaskArtifactUpdateEvent,
        TaskPushNotificationConfig,
        TaskState,
        TaskStatus,
        TaskStatusUpdateEvent,
    )
    from tieline.wire.signing import CardSigner

__version__ = "0.1.0"

_HOMES = {
    "A2AError": "tieline.errors",
    "Agent": "tieline.engine.agent",
    "AgentCard": "tieline.card",
    "AgentExtension": "tieline.card",
    "AgentProvider": "tieline.card",
    "AgentSkill": "tieline.card",
    "Answer": "tieline.engine.turn",
    "ApiKey": "tieline.client.credentials",
    "App": "tieline.server.asgi",
    "Artifact": "tieline.types",
    "AuthenticationInfo": "tieline.types",
    "AuthorizationCode": "tieline.client.credentials",
    "Basic": "tieline.client.credentials",
    "Bearer": "tieline.client.credentials",
    "Caller": "tieline.engine.turn",
    "CardCache": "tieline.client.discovery",
    "CardResult": "tieline.client.simple",
    "CardSigner": "tieline.wire.signing",
    "ClientCertificate": "tieline.client.credentials",
    "ClientCredentials": "tieline.client.credentials",
    "DeviceCode": "tieline.client.credentials",
    "DevicePrompt": "tieline.client.credentials",
    "Failed": "tieline.errors",
    "Limits": "tieline.engine.service",
    "Message": "tieline.types",
    "Notification": "tieline.server.receiver",
    "OAuthToken": "tieline.client.credentials",
    "Part": "tieline.types",
    "Peer": "tieline.client.peer",
    "Recovery": "tieline.client.following",
    "Rejected": "tieline.errors",
    "Reply": "tieline.client.content",
    "Retention": "tieline.stores.base",
    "Role": "tieline.types",
    "SendResult": "tieline.client.simple",
    "SentTask": "tieline.client.simple",
    "Store": "tieline.stores.base",
    "Task": "tieline.types",
    "TaskArtifactUpdateEvent": "tieline.types",
    "TaskPushNotificationConfig": "tieline.types",
    "TaskState": "tieline.types",
    "TaskStatus": "tieline.types",
    "TaskStatusUpdateEvent": "tieline.types",
    "Telemetry": "tieline.operation.observing",
    "Timeouts": "tieline.client.transport",
    "Turn": "tieline.engine.turn",
    "WebhookReceiver": "tieline.server.receiver",
    "agent": "tieline.engine.agent",
    "app": "tieline.server.asgi",
    "connect": "tieline.client.peer",
    "discover_agent_card": "tieline.client.simple",
    "saved_credentials": "tieline.client.saved",
    "send_text": "tieline.client.simple",
    "serve": "tieline.server.serve",
}

__all__ = [
    "A2AError",
    "Agent",
    "AgentCard",
    "AgentExtension",
    "AgentProvider",
    "AgentSkill",
    "Answer",
    "ApiKey",
    "App",
    "Artifact",
    "AuthenticationInfo",
    "AuthorizationCode",
    "Basic",
    "Bearer",
    "Caller",
    "CardCache",
    "CardResult",
    "CardSigner",
    "ClientCertificate",
    "ClientCredentials",
    "DeviceCode",
    "DevicePrompt",
    "Failed",
    "Limits",
    "Message",
    "Notification",
    "OAuthToken",
    "Part",
    "Peer",
    "Recovery",
    "Rejected",
    "Reply",
    "Retention",
    "Role",
    "SendResult",
    "SentTask",
    "Store",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskPushNotificationConfig",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "Telemetry",
    "Timeouts",
    "Turn",
    "WebhookReceiver",
    "agent",
    "app",
    "connect",
    "discover_agent_card",
    "saved_credentials",
    "send_text",
    "serve",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tieline' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
