"""The registry of what A2A 1.0 asks of a server and a client (sections 3 to 13), and what tests show of it.

`requirements.toml` holds the rows, `requirement_marks.py` collects which tests show which of them, and
`scripts/requirements` prints what is missing. Nothing here runs a test or knows pytest.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

__all__ = [
    "OLDER",
    "REGISTRY",
    "SECTIONS",
    "TRANSPORTS",
    "Feature",
    "Level",
    "RegistryError",
    "Requirement",
    "Shown",
    "Transport",
    "Who",
    "load",
    "missing",
    "section_key",
]

Level = Literal["MUST", "SHOULD"]
Who = Literal["server", "client", "both"]
Transport = Literal["direct", "jsonrpc", "rest", "grpc"]
Feature = Literal["push", "auth", "signing"]

# Requirement id -> transport -> ids of the tests that show it there.
Shown = Mapping[str, Mapping[str, Sequence[str]]]

REGISTRY: Final = Path(__file__).with_name("requirements.toml")
TRANSPORTS: Final[tuple[Transport, ...]] = get_args(Transport)
OLDER: Final = ("jsonrpc-0.3", "rest-0.3", "grpc-0.3", "jsonrpc-0.1")
"""Transports of versions before 1.0. Tests run over them, too, and show no row there: the rows are of 1.0."""

# The sections that a row may name. A row of a subsection that says nothing of its own stands under its parent.
SECTIONS: Final[Mapping[str, str]] = {
    "3.1.1": "Send Message",
    "3.1.2": "Send Streaming Message",
    "3.1.3": "Get Task",
    "3.1.4": "List Tasks",
    "3.1.5": "Cancel Task",
    "3.1.6": "Subscribe to Task",
    "3.1.7": "Create Push Notification Config",
    "3.1.8": "Get Push Notification Config",
    "3.1.9": "List Push Notification Configs",
    "3.1.10": "Delete Push Notification Config",
    "3.1.11": "Get Extended Agent Card",
    "3.2.2": "SendMessageConfiguration",
    "3.2.3": "Stream Response",
    "3.2.4": "History Length",
    "3.2.5": "Metadata",
    "3.2.6": "Service Parameters",
    "3.3.1": "Idempotency",
    "3.3.2": "Error Handling",
    "3.3.3": "Asynchronous Processing",
    "3.3.4": "Capability Validation",
    "3.4.1": "Context Identifiers",
    "3.4.2": "Task Identifiers",
    "3.4.3": "Multi-Turn Conversations",
    "3.5.1": "Update Mechanisms",
    "3.5.2": "Streaming Event Delivery",
    "3.6": "Versioning",
    "3.6.1": "Versioning: Client",
    "3.6.2": "Versioning: Server",
    "3.6.3": "Versioning: Tooling",
    "3.7": "Messages and Artifacts",
    "4": "Protocol Data Model",
    "4.1.1": "Task",
    "4.1.3": "TaskState",
    "4.1.4": "Message",
    "4.1.5": "Role",
    "4.1.6": "Part",
    "4.1.7": "Artifact",
    "4.2": "Streaming Events",
    "4.2.2": "TaskArtifactUpdateEvent",
    "4.3.1": "PushNotificationConfig",
    "4.3.2": "AuthenticationInfo",
    "4.3.3": "Push Notification Payload",
    "4.4": "Agent Discovery Objects",
    "4.4.4": "AgentExtension",
    "4.4.6": "AgentInterface",
    "4.5": "Security Objects",
    "4.5.4": "OAuth2SecurityScheme",
    "4.5.8": "AuthorizationCodeOAuthFlow",
    "4.6.1": "Extension Declaration",
    "4.6.2": "Extension Points",
    "4.6.3": "Extension Versioning",
    "5.1": "Functional Equivalence",
    "5.2": "Protocol Selection",
    "5.3": "Method Mapping",
    "5.4": "Error Code Mappings",
    "5.5": "JSON Field Naming",
    "5.6.1": "Timestamps",
    "5.7": "Field Presence",
    "7.1": "Protocol Security",
    "7.2": "Server Identity",
    "7.3": "Client Authentication",
    "7.4": "Server Authentication",
    "7.6.1": "In-Task Authorization: Agent",
    "7.6.2": "In-Task Authorization: Client",
    "7.6.3": "In-Task Authorization: Security",
    "7.6.4": "In-Task Authorization: Scope",
    "8.1": "Agent Card",
    "8.2": "Discovery",
    "8.3": "Protocol Declaration",
    "8.3.1": "Supported Interfaces",
    "8.3.2": "Client Protocol Selection",
    "8.4.1": "Card Canonicalization",
    "8.4.2": "Signature Format",
    "8.4.3": "Signature Verification",
    "8.6": "Caching",
    "8.6.1": "Caching: Server",
    "8.6.2": "Caching: Client",
    "9.1": "JSON-RPC: Protocol",
    "9.2": "JSON-RPC: Service Parameters",
    "9.3": "JSON-RPC: Request",
    "9.4": "JSON-RPC: Methods",
    "9.4.1": "JSON-RPC: SendMessage",
    "9.4.2": "JSON-RPC: SendStreamingMessage",
    "9.4.6": "JSON-RPC: SubscribeToTask",
    "9.4.8": "JSON-RPC: GetExtendedAgentCard",
    "9.5": "JSON-RPC: Errors",
    "10.1": "gRPC: Protocol",
    "10.2": "gRPC: Service Parameters",
    "10.4.6": "gRPC: SubscribeToTask",
    "10.6": "gRPC: Errors",
    "10.7": "gRPC: Streaming",
    "11.1": "REST: Protocol",
    "11.2": "REST: Service Parameters",
    "11.4": "REST: Bodies",
    "11.5": "REST: Query Parameters",
    "11.6": "REST: Errors",
    "11.7": "REST: Streaming",
    "13.1": "Authorization Scoping",
    "13.2": "Push Notification Security",
    "13.3": "Extended Agent Card Access",
}

_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*\.[a-z0-9]+(-[a-z0-9]+)*")


class RegistryError(ValueError):
    """A row of the registry is not well formed; the message names the row."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that a server or a client has to do, in one sentence of our own."""

    id: str  # "send.terminal-task-refused": stable, tests and documents refer to it
    section: str  # of the specification, a key of SECTIONS
    level: Level
    who: Who
    text: str
    over: tuple[Transport, ...]  # where it has to be shown, each of them; in the order of TRANSPORTS
    later: Feature | None = None  # what has to exist before anything can show it; None is: it can be shown now
    reason: str | None = None  # why it is later; set exactly when `later` is


def section_key(section: str) -> tuple[int, ...]:
    """Return the numbers of a section, for sorting: "3.1.10" comes after "3.1.9"."""
    return tuple(int(number) for number in section.split("."))


def load(path: Path = REGISTRY) -> tuple[Requirement, ...]:
    """Read the registry, in its order: by section, and as the specification has it within a section.

    Raises:
        RegistryError: a row is not well formed, an id is there twice, or the sections are out of order.
    """
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    if set(document) != {"requirement"}:
        raise RegistryError(f"{path.name} holds [[requirement]] tables and nothing else, not {sorted(document)}")
    rows = tuple(_requirement(table, number) for number, table in enumerate(document["requirement"], start=1))
    seen: set[str] = set()
    for before, row in zip((None, *rows), rows, strict=False):
        if row.id in seen:
            raise RegistryError(f"{row.id}: the id is there twice")
        if before is not None and section_key(before.section) > section_key(row.section):
            raise RegistryError(f"{row.id}: section {row.section} comes after {before.section}")
        seen.add(row.id)
    return rows


def missing(rows: Iterable[Requirement], shown: Shown) -> list[tuple[Requirement, tuple[Transport, ...]]]:
    """Return the rows that some transport has no test for, each with those transports.

    Rows that wait for a feature are never missing: nothing can show them yet.
    """
    found = []
    for row in rows:
        untested = tuple(transport for transport in row.over if not shown.get(row.id, {}).get(transport))
        if untested and row.later is None:
            found.append((row, untested))
    return found


def _requirement(table: Mapping[str, Any], number: int) -> Requirement:
    name = str(table.get("id", f"row {number}"))

    def check(holds: bool, what: str) -> None:
        if not holds:
            raise RegistryError(f"{name}: {what}")

    unknown = set(table) - {field.name for field in fields(Requirement)}
    check(not unknown, f"unknown keys {sorted(unknown)}")
    for key in ("id", "section", "level", "who", "text"):
        check(isinstance(table.get(key), str), f"{key} is a string")
    check(_ID.fullmatch(name) is not None, "an id is area.what-it-says, in lower case")
    check(table["section"] in SECTIONS, f"section {table['section']} is not a section with requirements")
    check(table["level"] in get_args(Level), f"level is one of {get_args(Level)}")
    check(table["who"] in get_args(Who), f"who is one of {get_args(Who)}")
    _check_sentence(name, "text", table["text"])

    later, reason = table.get("later"), table.get("reason")
    check(later is None or later in get_args(Feature), f"later is one of {get_args(Feature)}")
    check((later is None) == (reason is None), "later and reason come together")
    if reason is not None:
        check(isinstance(reason, str), "reason is a string")
        _check_sentence(name, "reason", reason)

    over = table.get("over")
    check(isinstance(over, list) and bool(over), "over is a list of at least one transport")
    transports = tuple(cast("list[Transport]", over))
    check(set(transports) <= set(TRANSPORTS), f"over names transports of {TRANSPORTS}")
    check(
        transports == tuple(transport for transport in TRANSPORTS if transport in transports),
        f"over names each transport once, in the order of {TRANSPORTS}",
    )
    return Requirement(
        id=name,
        section=table["section"],
        level=table["level"],
        who=table["who"],
        text=table["text"],
        over=transports,
        later=later,
        reason=reason,
    )


def _check_sentence(name: str, key: str, text: str) -> None:
    """A text that is more than one sentence is more than one requirement."""
    if not text.endswith(".") or text != text.strip() or re.search(r"[.!?]\s+[A-Z]", text):
        raise RegistryError(f"{name}: {key} is one sentence that ends with a full stop")
