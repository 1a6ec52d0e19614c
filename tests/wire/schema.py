"""The messages of A2A 1.0 as its normative protobuf definition has them (package lf.a2a.v1), retyped.

One line a field: JSON name, proto name, type, and what it is: `!` required, `?` explicit presence, `|` one of a union.
A type in brackets is repeated, `{}` a map with strings as keys.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tieline import card, types

__all__ = ["ENUMS", "MESSAGES", "Field", "struct_of"]


class Field(NamedTuple):
    json: str
    proto: str
    type: str
    required: bool
    optional: bool
    one_of: bool


_TABLE = """
SendMessageConfiguration
    acceptedOutputModes accepted_output_modes [string]
    taskPushNotificationConfig task_push_notification_config TaskPushNotificationConfig
    historyLength history_length int32 ?
    returnImmediately return_immediately bool
Task
    id id string !
    contextId context_id string
    status status TaskStatus !
    artifacts artifacts [Artifact]
    history history [Message]
    metadata metadata Struct
TaskStatus
    state state TaskState !
    message message Message
    timestamp timestamp Timestamp
Part
    text text string |
    raw raw bytes |
    url url string |
    data data Value |
    metadata metadata Struct
    filename filename string
    mediaType media_type string
Message
    messageId message_id string !
    contextId context_id string
    taskId task_id string
    role role Role !
    parts parts [Part] !
    metadata metadata Struct
    extensions extensions [string]
    referenceTaskIds reference_task_ids [string]
Artifact
    artifactId artifact_id string !
    name name string
    description description string
    parts parts [Part] !
    metadata metadata Struct
    extensions extensions [string]
TaskStatusUpdateEvent
    taskId task_id string !
    contextId context_id string !
    status status TaskStatus !
    metadata metadata Struct
TaskArtifactUpdateEvent
    taskId task_id string !
    contextId context_id string !
    artifact artifact Artifact !
    append append bool
    lastChunk last_chunk bool
    metadata metadata Struct
AuthenticationInfo
    scheme scheme string !
    credentials credentials string
AgentInterface
    url url string !
    protocolBinding protocol_binding string !
    tenant tenant string
    protocolVersion protocol_version string !
AgentCard
    name name string !
    description description string !
    supportedInterfaces supported_interfaces [AgentInterface] !
    provider provider AgentProvider
    version version string !
    documentationUrl documentation_url string ?
    capabilities capabilities AgentCapabilities !
    securitySchemes security_schemes {SecurityScheme}
    securityRequirements security_requirements [SecurityRequirement]
    defaultInputModes default_input_modes [string] !
    defaultOutputModes default_output_modes [string] !
    skills skills [AgentSkill] !
    signatures signatures [AgentCardSignature]
    iconUrl icon_url string ?
AgentProvider
    url url string !
    organization organization string !
AgentCapabilities
    streaming streaming bool ?
    pushNotifications push_notifications bool ?
    extensions extensions [AgentExtension]
    extendedAgentCard extended_agent_card bool ?
AgentExtension
    uri uri string
    description description string
    required required bool
    params params Struct
AgentSkill
    id id string !
    name name string !
    description description string !
    tags tags [string] !
    examples examples [string]
    inputModes input_modes [string]
    outputModes output_modes [string]
    securityRequirements security_requirements [SecurityRequirement]
AgentCardSignature
    protected protected string !
    signature signature string !
    header header Struct
TaskPushNotificationConfig
    tenant tenant string
    id id string
    taskId task_id string
    url url string !
    token token string
    authentication authentication AuthenticationInfo
StringList
    list list [string]
SecurityRequirement
    schemes schemes {StringList}
SecurityScheme
    apiKeySecurityScheme api_key_security_scheme APIKeySecurityScheme |
    httpAuthSecurityScheme http_auth_security_scheme HTTPAuthSecurityScheme |
    oauth2SecurityScheme oauth2_security_scheme OAuth2SecurityScheme |
    openIdConnectSecurityScheme open_id_connect_security_scheme OpenIdConnectSecurityScheme |
    mtlsSecurityScheme mtls_security_scheme MutualTlsSecurityScheme |
APIKeySecurityScheme
    description description string
    location location string !
    name name string !
HTTPAuthSecurityScheme
    description description string
    scheme scheme string !
    bearerFormat bearer_format string
OAuth2SecurityScheme
    description description string
    flows flows OAuthFlows !
    oauth2MetadataUrl oauth2_metadata_url string
OpenIdConnectSecurityScheme
    description description string
    openIdConnectUrl open_id_connect_url string !
MutualTlsSecurityScheme
    description description string
OAuthFlows
    authorizationCode authorization_code AuthorizationCodeOAuthFlow |
    clientCredentials client_credentials ClientCredentialsOAuthFlow |
    implicit implicit ImplicitOAuthFlow |
    password password PasswordOAuthFlow |
    deviceCode device_code DeviceCodeOAuthFlow |
AuthorizationCodeOAuthFlow
    authorizationUrl authorization_url string !
    tokenUrl token_url string !
    refreshUrl refresh_url string
    scopes scopes {string} !
    pkceRequired pkce_required bool
ClientCredentialsOAuthFlow
    tokenUrl token_url string !
    refreshUrl refresh_url string
    scopes scopes {string} !
ImplicitOAuthFlow
    authorizationUrl authorization_url string
    refreshUrl refresh_url string
    scopes scopes {string}
PasswordOAuthFlow
    tokenUrl token_url string
    refreshUrl refresh_url string
    scopes scopes {string}
DeviceCodeOAuthFlow
    deviceAuthorizationUrl device_authorization_url string !
    tokenUrl token_url string !
    refreshUrl refresh_url string
    scopes scopes {string} !
SendMessageRequest
    tenant tenant string
    message message Message !
    configuration configuration SendMessageConfiguration
    metadata metadata Struct
GetTaskRequest
    tenant tenant string
    id id string !
    historyLength history_length int32 ?
ListTasksRequest
    tenant tenant string
    contextId context_id string
    status status TaskState
    pageSize page_size int32 ?
    pageToken page_token string
    historyLength history_length int32 ?
    statusTimestampAfter status_timestamp_after Timestamp
    includeArtifacts include_artifacts bool ?
ListTasksResponse
    tasks tasks [Task] !
    nextPageToken next_page_token string !
    pageSize page_size int32 !
    totalSize total_size int32 !
CancelTaskRequest
    tenant tenant string
    id id string !
    metadata metadata Struct
GetTaskPushNotificationConfigRequest
    tenant tenant string
    taskId task_id string !
    id id string !
DeleteTaskPushNotificationConfigRequest
    tenant tenant string
    taskId task_id string !
    id id string !
SubscribeToTaskRequest
    tenant tenant string
    id id string !
ListTaskPushNotificationConfigsRequest
    tenant tenant string
    taskId task_id string !
    pageSize page_size int32
    pageToken page_token string
GetExtendedAgentCardRequest
    tenant tenant string
SendMessageResponse
    task task Task |
    message message Message |
StreamResponse
    task task Task |
    message message Message |
    statusUpdate status_update TaskStatusUpdateEvent |
    artifactUpdate artifact_update TaskArtifactUpdateEvent |
ListTaskPushNotificationConfigsResponse
    configs configs [TaskPushNotificationConfig]
    nextPageToken next_page_token string
"""

ENUMS: Final = {
    "TaskState": (
        "TASK_STATE_UNSPECIFIED",
        "TASK_STATE_SUBMITTED",
        "TASK_STATE_WORKING",
        "TASK_STATE_COMPLETED",
        "TASK_STATE_FAILED",
        "TASK_STATE_CANCELED",
        "TASK_STATE_INPUT_REQUIRED",
        "TASK_STATE_REJECTED",
        "TASK_STATE_AUTH_REQUIRED",
    ),
    "Role": ("ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"),
}
"""Names by number: the first is 0."""


def _read(table: str) -> dict[str, tuple[Field, ...]]:
    messages: dict[str, tuple[Field, ...]] = {}
    name = ""
    for line in table.strip().splitlines():
        if not line.startswith(" "):
            name = line
            messages[name] = ()
            continue
        json, proto, type_, *marks = line.split()
        mark = marks[0] if marks else ""
        messages[name] += (Field(json, proto, type_, mark == "!", mark == "?", mark == "|"),)
    return messages


MESSAGES: Final = _read(_TABLE)


def struct_of(name: str) -> type[Any]:
    """Our class of a message."""
    found: type[Any] = getattr(types, name, None) or getattr(card, name)
    return found
