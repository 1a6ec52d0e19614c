"""The agent card in the protobuf of A2A 0.3. Pure.

The device code flow and `pkceRequired` came with 1.0: they are left out.
"""

from __future__ import annotations

from typing import Any, Final

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
from tieline.wire.protobuf_fields import Fault, inside, into_field, read_all, write_all, write_text, write_texts
from tieline.wire.protobuf_structs import reader_of, write_fields

__all__ = ["read_card", "write_card"]

_VERSION: Final = "0.3"
_PATCHED: Final = "0.3.0"  # as cards of 0.3 write it

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


def read_card(card: Any) -> AgentCard:
    """The card."""
    version = _VERSION if card.protocol_version in ("", _PATCHED) else card.protocol_version
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


def write_card(into: Any, card: AgentCard) -> None:
    """The card, for callers of 0.3. Raises Fault when it names no interface of theirs."""
    interfaces = [each for each in card.supported_interfaces if each.protocol_version == _VERSION]
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
