"""What a request has to be before anything is begun for it, and the tokens and keys that are made of one. Pure."""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b

from tieline.card import AgentSkill
from tieline.engine.agent import Agent, may_use
from tieline.engine.turn import Caller
from tieline.errors import (
    ContentTypeNotSupported,
    ExtensionSupportRequired,
    InvalidParams,
    PermissionDenied,
)
from tieline.stores.base import Position
from tieline.types import Message, Part, Role, SendMessageRequest, encode

__all__ = [
    "check_extensions",
    "check_history_length",
    "check_message",
    "check_named",
    "from_page_token",
    "message_key",
    "page_token",
    "same_message",
    "task_key",
]

_NAME_CHARACTERS = 256


def check_extensions(agent: Agent, caller: Caller) -> None:
    """Check that the caller speaks what the agent requires. Raises ExtensionSupportRequired."""
    required = agent.required_extensions
    if required and not required.issubset(caller.extensions):
        raise ExtensionSupportRequired(required.difference(caller.extensions))


def check_history_length(length: int | None, field: str) -> None:
    """Check a number of messages. Raises InvalidParams."""
    if length is not None and length < 0:
        raise InvalidParams.at(field, f"must not be negative, got {length}")


def check_message(agent: Agent, request: SendMessageRequest, caller: Caller) -> None:
    """Check that the agent can take the message.

    Raises InvalidParams, ContentTypeNotSupported, ExtensionSupportRequired, PermissionDenied.
    """
    message = request.message
    check_extensions(agent, caller)
    if agent.guarded_skills:
        _check_skills(agent, request, caller)
    if not message.message_id:
        raise InvalidParams.at("message.messageId", "must not be empty")
    if message.role is not Role.USER:
        raise InvalidParams.at("message.role", "must be ROLE_USER")
    if not message.parts:
        raise InvalidParams.at("message.parts", "at least one part is required")
    configuration = request.configuration
    if configuration is not None:
        check_history_length(configuration.history_length, "configuration.historyLength")
    for index, part in enumerate(message.parts):
        media_type = _media_type(part)
        if media_type is not None and not agent.accepts(media_type):
            accepted = ", ".join(sorted(agent.accepted_types))
            raise ContentTypeNotSupported(
                f"message.parts[{index}] is {media_type}; this agent takes {accepted}.",
                metadata={"mediaType": media_type, "supported": accepted},
            )


def _check_skills(agent: Agent, request: SendMessageRequest, caller: Caller) -> None:
    """Check that the caller may use what it asks for: the skills that the metadata name, else any."""
    named = {
        name
        for metadata in (request.message.metadata, request.metadata)
        if isinstance(name := (metadata or {}).get("skillId"), str)
    }
    asked = [skill for skill_id in sorted(named) if (skill := agent.guarded_skills.get(skill_id)) is not None]
    if not asked:
        if agent.has_open_skill or any(may_use(skill, caller) for skill in agent.guarded_skills.values()):
            return
        asked = [next(iter(agent.guarded_skills.values()))]
    for skill in asked:
        if not may_use(skill, caller):
            raise _not_for(skill, caller)


def _not_for(skill: AgentSkill, caller: Caller) -> PermissionDenied:
    requirement = skill.security_requirements[0].schemes
    lacking = sorted({scope for scopes in requirement.values() for scope in scopes.list} - caller.scopes)
    if lacking and caller.schemes.issuperset(requirement):
        return PermissionDenied.for_scopes(f"The skill {skill.id}", lacking)
    ways = ", or ".join(" and ".join(sorted(each.schemes)) for each in skill.security_requirements)
    return PermissionDenied(f"The skill {skill.id} is for callers who authenticate by {ways}.")


def check_named(task_id: str) -> None:
    """Check the name that a caller has given its task. Raises InvalidParams."""
    if len(task_id) > _NAME_CHARACTERS or not task_id.isprintable():
        raise InvalidParams.at("id", f"must be printable and have at most {_NAME_CHARACTERS} characters")


def _media_type(part: Part) -> str | None:
    """What a part is, as far as it says; None is unknown."""
    if part.media_type:
        return part.media_type
    if part.text is not None:
        return "text/plain"
    return None if part.raw is not None or part.url is not None else "application/json"


def message_key(scope: str, message: Message) -> bytes:
    """By what a message is known when it comes again: its caller, its id, its context and what it says.

    An id that is used for something else is another message: many programs count theirs from 1.
    """
    words = (scope, message.message_id, message.context_id, message.parts)
    return blake2b(encode(words), digest_size=16).digest()


def task_key(scope: str, task_id: str) -> bytes:
    """By what the message is known that begins a task which its caller has named."""
    return blake2b(encode((scope, task_id)), digest_size=16).digest()


def same_message(message: Message, other: Message) -> bool:
    """Whether two messages of one caller to one task are one, sent twice."""
    return message.message_id == other.message_id and message.role == other.role and message.parts == other.parts


def page_token(position: Position) -> str:
    """A position in a list as its callers carry it."""
    updated, task_id = position
    return base64.urlsafe_b64encode(f"{updated} {task_id}".encode("utf-8", "surrogatepass")).decode().rstrip("=")


def from_page_token(token: str) -> Position:
    """The position that a token is of. Raises InvalidParams."""
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        updated, between, task_id = text.decode("utf-8", "surrogatepass").partition(" ")
        if not (updated.isascii() and updated.isdigit()) or len(updated) > 18 or not between:
            raise ValueError
        return int(updated), task_id
    except (ValueError, binascii.Error):
        raise InvalidParams.at("pageToken", "is not a token that this server has given") from None
