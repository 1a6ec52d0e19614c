"""The agent card and what is in it (A2A 1.0 §4.4, §4.5). Values as in tieline.types."""

from __future__ import annotations

from tieline.types import Metadata, Value

__all__ = [
    "APIKeySecurityScheme",
    "AgentCapabilities",
    "AgentCard",
    "AgentCardSignature",
    "AgentExtension",
    "AgentInterface",
    "AgentProvider",
    "AgentSkill",
    "AuthorizationCodeOAuthFlow",
    "ClientCredentialsOAuthFlow",
    "DeviceCodeOAuthFlow",
    "HTTPAuthSecurityScheme",
    "ImplicitOAuthFlow",
    "MutualTlsSecurityScheme",
    "OAuth2SecurityScheme",
    "OAuthFlows",
    "OpenIdConnectSecurityScheme",
    "PasswordOAuthFlow",
    "SecurityRequirement",
    "SecurityScheme",
    "StringList",
    "bars_calls",
    "check_card",
]

WELL_KNOWN_PATH = "/.well-known/agent-card.json"
"""Where a card is found below its agent's URL (A2A 1.0 §8.2)."""

OLD_WELL_KNOWN_PATH = "/.well-known/agent.json"
"""Where it was before A2A 0.3."""

JWKS_PATH = "/.well-known/jwks.json"
"""Where the keys that an agent's card is signed with are found below its URL, where we serve it."""


class AgentInterface(Value, frozen=True, gc=False):
    """One way to reach the agent (§4.4.6). `protocol_binding` is JSONRPC, HTTP+JSON, GRPC or a URI."""

    url: str
    protocol_binding: str
    protocol_version: str  # Major.Minor
    tenant: str | None = None


class AgentProvider(Value, frozen=True, gc=False):
    """Who offers the agent (§4.4.2)."""

    url: str
    organization: str


class AgentExtension(Value, frozen=True, gc=False):
    """An extension that the agent speaks (§4.4.4). `required`: a caller that does not name it is refused."""

    uri: str = ""
    description: str | None = None
    required: bool = False
    params: Metadata | None = None


class AgentCapabilities(Value, frozen=True, gc=False):
    """What the agent can do beyond the minimum (§4.4.3). None is not declared, which means no."""

    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[AgentExtension, ...] = ()
    extended_agent_card: bool | None = None


class StringList(Value, frozen=True, gc=False):
    """A list of strings where protobuf wants a message."""

    list: tuple[str, ...] = ()


class SecurityRequirement(Value, frozen=True, gc=False):
    """Schemes that are needed together, each with its scopes (§4.5)."""

    schemes: dict[str, StringList] = {}


class AgentSkill(Value, frozen=True, gc=False):
    """Something that the agent is good at (§4.4.5). Empty modes mean those of the card."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security_requirements: tuple[SecurityRequirement, ...] = ()


class AgentCardSignature(Value, frozen=True, gc=False):
    """A JWS over the card (§8.4.2)."""

    protected: str
    signature: str
    header: Metadata | None = None


class APIKeySecurityScheme(Value, frozen=True, gc=False):
    """A key in a header, query parameter or cookie called `name` (§4.5.2). `location`: header, query or cookie."""

    location: str
    name: str
    description: str | None = None


class HTTPAuthSecurityScheme(Value, frozen=True, gc=False):
    """An HTTP authentication scheme such as Bearer or Basic (§4.5.3)."""

    scheme: str
    description: str | None = None
    bearer_format: str | None = None


class AuthorizationCodeOAuthFlow(Value, frozen=True, gc=False):
    """§4.5.8. Scopes by name with what they mean."""

    authorization_url: str
    token_url: str
    scopes: dict[str, str]
    refresh_url: str | None = None
    pkce_required: bool = False


class ClientCredentialsOAuthFlow(Value, frozen=True, gc=False):
    """§4.5.9."""

    token_url: str
    scopes: dict[str, str]
    refresh_url: str | None = None


class ImplicitOAuthFlow(Value, frozen=True, gc=False):
    """Deprecated by the protocol; read, never offered."""

    authorization_url: str | None = None
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class PasswordOAuthFlow(Value, frozen=True, gc=False):
    """Deprecated by the protocol; read, never offered."""

    token_url: str | None = None
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class DeviceCodeOAuthFlow(Value, frozen=True, gc=False):
    """§4.5.10."""

    device_authorization_url: str
    token_url: str
    scopes: dict[str, str]
    refresh_url: str | None = None


class OAuthFlows(Value, frozen=True, gc=False):
    """Exactly one flow (§4.5.7).

    Raises ValueError when none or more than one is given.
    """

    authorization_code: AuthorizationCodeOAuthFlow | None = None
    client_credentials: ClientCredentialsOAuthFlow | None = None
    implicit: ImplicitOAuthFlow | None = None
    password: PasswordOAuthFlow | None = None
    device_code: DeviceCodeOAuthFlow | None = None

    def __post_init__(self) -> None:
        _exactly_one(self)


class OAuth2SecurityScheme(Value, frozen=True, gc=False):
    """OAuth 2 (§4.5.4)."""

    flows: OAuthFlows
    description: str | None = None
    oauth2_metadata_url: str | None = None


class OpenIdConnectSecurityScheme(Value, frozen=True, gc=False):
    """OpenID Connect discovery (§4.5.5)."""

    open_id_connect_url: str
    description: str | None = None


class MutualTlsSecurityScheme(Value, frozen=True, gc=False):
    """A client certificate (§4.5.6)."""

    description: str | None = None


class SecurityScheme(Value, frozen=True, gc=False):
    """Exactly one way to authenticate (§4.5.1).

    Raises ValueError when none or more than one is given.
    """

    api_key_security_scheme: APIKeySecurityScheme | None = None
    http_auth_security_scheme: HTTPAuthSecurityScheme | None = None
    oauth2_security_scheme: OAuth2SecurityScheme | None = None
    open_id_connect_security_scheme: OpenIdConnectSecurityScheme | None = None
    mtls_security_scheme: MutualTlsSecurityScheme | None = None

    def __post_init__(self) -> None:
        _exactly_one(self)


class AgentCard(Value, frozen=True, gc=False):
    """An agent's description of itself (§4.4.1). `supported_interfaces` stand in the server's order of preference."""

    name: str
    description: str
    supported_interfaces: tuple[AgentInterface, ...]
    version: str
    capabilities: AgentCapabilities
    default_input_modes: tuple[str, ...]
    default_output_modes: tuple[str, ...]
    skills: tuple[AgentSkill, ...]
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    security_schemes: dict[str, SecurityScheme] = {}
    security_requirements: tuple[SecurityRequirement, ...] = ()
    signatures: tuple[AgentCardSignature, ...] = ()
    icon_url: str | None = None


def _exactly_one(value: Value) -> None:
    count = sum(getattr(value, name) is not None for name in value.__struct_fields__)
    if count != 1:
        wanted = ", ".join(value.__struct_encode_fields__)
        raise ValueError(f"wants exactly one of {wanted}, got {count}")


def check_card(card: AgentCard) -> list[str]:
    """What is wrong with a card that decoded: one sentence a fault, each beginning with the field's path.

    A required list must have an entry and a required string must not be empty (§5.7); an interface has to name
    where it is and what it speaks (§8.3.1); a security requirement has to name a declared scheme.
    """
    faults = [f"{path}: must not be empty" for path, value in _required(card) if not value]
    for index, interface in enumerate(card.supported_interfaces):
        at = f"supportedInterfaces[{index}]"
        if interface.protocol_binding in ("JSONRPC", "HTTP+JSON") and not interface.url.lower().startswith(
            ("http://", "https://")
        ):
            faults.append(f"{at}.url: must be an absolute http or https URL, got {interface.url!r}")
    ids = [skill.id for skill in card.skills]
    faults += [f"skills: the id {id_!r} is used twice" for id_ in sorted({i for i in ids if ids.count(i) > 1})]
    requirements = [*card.security_requirements, *(r for s in card.skills for r in s.security_requirements)]
    named = {name for requirement in requirements for name in requirement.schemes}
    faults += [
        f"securityRequirements: {name!r} is not in securitySchemes" for name in named - set(card.security_schemes)
    ]
    return faults


def bars_calls(fault: str) -> bool:
    """Whether a fault that `check_card` has found leaves nothing to call: what is no card, or where nobody is.

    An agent whose card lacks a description, skills or the like can be called all the same.
    """
    path = fault.partition(": ")[0]
    return path == "name" or path.startswith("supportedInterfaces")


def _required(card: AgentCard) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = [
        ("name", card.name),
        ("description", card.description),
        ("version", card.version),
        ("supportedInterfaces", card.supported_interfaces),
        ("defaultInputModes", card.default_input_modes),
        ("defaultOutputModes", card.default_output_modes),
        ("skills", card.skills),
    ]
    if card.provider is not None:
        rows += [("provider.url", card.provider.url), ("provider.organization", card.provider.organization)]
    for index, signature in enumerate(card.signatures):
        at = f"signatures[{index}]"
        rows += [(f"{at}.protected", signature.protected), (f"{at}.signature", signature.signature)]
    for index, interface in enumerate(card.supported_interfaces):
        at = f"supportedInterfaces[{index}]"
        rows += [
            (f"{at}.url", interface.url),
            (f"{at}.protocolBinding", interface.protocol_binding),
            (f"{at}.protocolVersion", interface.protocol_version),
        ]
    for index, skill in enumerate(card.skills):
        at = f"skills[{index}]"
        rows += [(f"{at}.id", skill.id), (f"{at}.name", skill.name), (f"{at}.description", skill.description)]
        rows += [(f"{at}.tags", skill.tags)]
    return rows
