"""The data model of A2A 1.0 as a table, to hold against every answer (sections 3.2, 4.1, 4.2, 4.4 and 4.5).

Written down from the protobuf definition, independent of the types that the server uses. `faults` lists what is wrong
with a JSON value: fields that the specification does not have, required ones that are missing or empty, unions with
none or several of their members, wrong JSON types.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

__all__ = ["STATES", "TERMINAL", "faults"]

TERMINAL: Final = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"})
STATES: Final = TERMINAL | {
    "TASK_STATE_SUBMITTED",
    "TASK_STATE_WORKING",
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_AUTH_REQUIRED",
}

# "!" marks what has to be there and must not be empty, "[...]" a list, "<...>" an object of such values by name,
# "|" a member of the union that has exactly one.
_SHAPES: Final[dict[str, dict[str, str]]] = {
    "SendMessageResponse": {"task": "|Task", "message": "|Message"},
    "StreamResponse": {
        "task": "|Task",
        "message": "|Message",
        "statusUpdate": "|TaskStatusUpdateEvent",
        "artifactUpdate": "|TaskArtifactUpdateEvent",
    },
    "ListTasksResponse": {
        "tasks": "[Task]",
        "nextPageToken": "string",
        "pageSize": "integer",
        "totalSize": "integer",
    },
    "Task": {
        "id": "string!",
        "contextId": "string",
        "status": "TaskStatus!",
        "artifacts": "[Artifact]",
        "history": "[Message]",
        "metadata": "object",
    },
    "TaskStatus": {"state": "TaskState!", "message": "Message", "timestamp": "timestamp"},
    "Message": {
        "messageId": "string!",
        "contextId": "string",
        "taskId": "string",
        "role": "Role!",
        "parts": "[Part]!",
        "metadata": "object",
        "extensions": "[string]",
        "referenceTaskIds": "[string]",
    },
    "Part": {
        "text": "|string",
        "raw": "|bytes",
        "url": "|string",
        "data": "|any",
        "metadata": "object",
        "filename": "string",
        "mediaType": "string",
    },
    "Artifact": {
        "artifactId": "string!",
        "name": "string",
        "description": "string",
        "parts": "[Part]!",
        "metadata": "object",
        "extensions": "[string]",
    },
    "TaskStatusUpdateEvent": {
        "taskId": "string!",
        "contextId": "string!",
        "status": "TaskStatus!",
        "metadata": "object",
    },
    "TaskArtifactUpdateEvent": {
        "taskId": "string!",
        "contextId": "string!",
        "artifact": "Artifact!",
        "append": "boolean",
        "lastChunk": "boolean",
        "metadata": "object",
    },
    "TaskPushNotificationConfig": {
        "tenant": "string",
        "id": "string!",
        "taskId": "string!",
        "url": "string!",
        "token": "string",
        "authentication": "AuthenticationInfo",
    },
    "AuthenticationInfo": {"scheme": "string!", "credentials": "string"},
    "ListTaskPushNotificationConfigsResponse": {
        "configs": "[TaskPushNotificationConfig]",
        "nextPageToken": "string",
    },
    "AgentCard": {
        "name": "string!",
        "description": "string!",
        "supportedInterfaces": "[AgentInterface]!",
        "provider": "AgentProvider",
        "version": "string!",
        "documentationUrl": "string",
        "capabilities": "AgentCapabilities!",
        "securitySchemes": "<SecurityScheme>",
        "securityRequirements": "[SecurityRequirement]",
        "defaultInputModes": "[string]!",
        "defaultOutputModes": "[string]!",
        "skills": "[AgentSkill]!",
        "signatures": "[AgentCardSignature]",
        "iconUrl": "string",
    },
    "AgentInterface": {
        "url": "string!",
        "protocolBinding": "string!",
        "tenant": "string",
        "protocolVersion": "string!",
    },
    "AgentProvider": {"url": "string!", "organization": "string!"},
    "AgentCapabilities": {
        "streaming": "boolean",
        "pushNotifications": "boolean",
        "extensions": "[AgentExtension]",
        "extendedAgentCard": "boolean",
    },
    "AgentExtension": {"uri": "string", "description": "string", "required": "boolean", "params": "object"},
    "AgentSkill": {
        "id": "string!",
        "name": "string!",
        "description": "string!",
        "tags": "[string]!",
        "examples": "[string]",
        "inputModes": "[string]",
        "outputModes": "[string]",
        "securityRequirements": "[SecurityRequirement]",
    },
    "AgentCardSignature": {"protected": "string!", "signature": "string!", "header": "object"},
    "SecurityRequirement": {"schemes": "<StringList>"},
    "StringList": {"list": "[string]"},
    "SecurityScheme": {
        "apiKeySecurityScheme": "|APIKeySecurityScheme",
        "httpAuthSecurityScheme": "|HTTPAuthSecurityScheme",
        "oauth2SecurityScheme": "|OAuth2SecurityScheme",
        "openIdConnectSecurityScheme": "|OpenIdConnectSecurityScheme",
        "mtlsSecurityScheme": "|MutualTlsSecurityScheme",
    },
    "APIKeySecurityScheme": {"description": "string", "location": "string!", "name": "string!"},
    "HTTPAuthSecurityScheme": {"description": "string", "scheme": "string!", "bearerFormat": "string"},
    "OAuth2SecurityScheme": {"description": "string", "flows": "OAuthFlows!", "oauth2MetadataUrl": "string"},
    "OpenIdConnectSecurityScheme": {"description": "string", "openIdConnectUrl": "string!"},
    "MutualTlsSecurityScheme": {"description": "string"},
    "OAuthFlows": {
        "authorizationCode": "|AuthorizationCodeOAuthFlow",
        "clientCredentials": "|ClientCredentialsOAuthFlow",
        "implicit": "|ImplicitOAuthFlow",
        "password": "|PasswordOAuthFlow",
        "deviceCode": "|DeviceCodeOAuthFlow",
    },
    "AuthorizationCodeOAuthFlow": {
        "authorizationUrl": "string!",
        "tokenUrl": "string!",
        "refreshUrl": "string",
        "scopes": "<string>!",
        "pkceRequired": "boolean",
    },
    "ClientCredentialsOAuthFlow": {"tokenUrl": "string!", "refreshUrl": "string", "scopes": "<string>!"},
    "ImplicitOAuthFlow": {"authorizationUrl": "string", "refreshUrl": "string", "scopes": "<string>"},
    "PasswordOAuthFlow": {"tokenUrl": "string", "refreshUrl": "string", "scopes": "<string>"},
    "DeviceCodeOAuthFlow": {
        "deviceAuthorizationUrl": "string!",
        "tokenUrl": "string!",
        "refreshUrl": "string",
        "scopes": "<string>!",
    },
}
# A list or object that has to be there, but may be empty: a list without tasks is an answer, a flow may have no scopes.
_MAY_BE_EMPTY: Final = frozenset({"tasks", "scopes"})
_REQUIRED_BUT_EMPTY: Final = {"ListTasksResponse": ("tasks", "nextPageToken", "pageSize", "totalSize")}

_PLAIN: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
}
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def faults(value: Any, shape: str, path: str = "") -> list[str]:
    """What is wrong with a JSON value that has to be of `shape`, each with its path; empty when nothing is."""
    if shape in _SHAPES:
        return _object_faults(value, shape, path or shape)
    if shape.startswith("["):
        if not isinstance(value, list):
            return [f"{path}: is not a list"]
        return [fault for i, item in enumerate(value) for fault in faults(item, shape[1:-1], f"{path}[{i}]")]
    if shape.startswith("<"):
        if not isinstance(value, dict):
            return [f"{path}: is not an object"]
        return [fault for name, item in value.items() for fault in faults(item, shape[1:-1], f"{path}.{name}")]
    return [] if _is_plain(value, shape) else [f"{path}: {value!r} is not of type {shape}"]


def _object_faults(value: Any, shape: str, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: is not an object"]
    fields = _SHAPES[shape]
    found = [f"{path}.{name}: is no field of {shape}" for name in value if name not in fields]
    members = [name for name, kind in fields.items() if kind.startswith("|")]
    if members and sum(name in value for name in members) != 1:
        found.append(f"{path}: has to have exactly one of {', '.join(members)}, has {sorted(value)}")
    for name, kind in fields.items():
        if name not in value:
            if kind.endswith("!") or name in _REQUIRED_BUT_EMPTY.get(shape, ()):
                found.append(f"{path}.{name}: is missing")
            continue
        given = value[name]
        if kind.endswith("!") and given in ("", [], {}) and name not in _MAY_BE_EMPTY and name != "capabilities":
            found.append(f"{path}.{name}: is empty")
        found += faults(given, kind.strip("!|"), f"{path}.{name}")
    return found


def _is_plain(value: Any, kind: str) -> bool:
    if kind == "any":
        return True
    if kind == "TaskState":
        return value in STATES
    if kind == "Role":
        return value in ("ROLE_USER", "ROLE_AGENT")
    if kind == "timestamp":
        return isinstance(value, str) and _TIMESTAMP.fullmatch(value) is not None
    if kind == "bytes":
        try:
            return isinstance(value, str) and base64.b64decode(value, validate=True) is not None
        except binascii.Error:
            return False
    return isinstance(value, _PLAIN[kind]) and (kind == "boolean" or not isinstance(value, bool))
