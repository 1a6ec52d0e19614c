"""The `text` format: `Label: value` lines, and blocks for what does not fit on one (CLI specification §11.2).

    Label:
      any number of lines, each indented by two spaces
                                                            <- an empty line ends the block

The indentation goes beyond the specification: a line of the content can be taken neither for a field nor for the end.
"""

from __future__ import annotations

from typing import Any, Final, TextIO

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tieline.card import AgentCard, SecurityScheme
from tieline.cli.notes import printable
from tieline.types import Artifact, Message, Part, Task, TaskStatus, encode

__all__ = [
    "Page",
    "describe_scheme",
    "joined_parts",
    "write_artifact",
    "write_card",
    "write_message",
    "write_parts",
    "write_status",
    "write_task",
]

_INDENT: Final = "  "


class Page:
    """A stream of fields and blocks. What is given is made safe for a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._open = False  # a block is open
        self._at_start = True  # of a line within it
        self._blank = True  # the line above is empty, or there is none

    def field(self, label: str, value: object) -> None:
        """One line; nothing for None or an empty text."""
        if value is None or value == "":
            return
        self.close()
        text = printable(str(value)).replace("\n", " ")
        self._stream.write(f"{label}: {text}\n")
        self._blank = False

    def block(self, label: str, text: str) -> None:
        self.open(label)
        self.more(text)
        self.close()

    def open(self, label: str) -> None:
        """Begin a block that grows by `more`, until the next field or block."""
        self.close()
        self._stream.write(f"{label}:\n")
        self._open = self._at_start = True

    def more(self, text: str) -> None:
        for index, line in enumerate(printable(text).split("\n")):
            if index:
                self._stream.write(f"{_INDENT}\n" if self._at_start else "\n")
                self._at_start = True
            if line:
                self._stream.write(_INDENT + line if self._at_start else line)
                self._at_start = False

    def close(self) -> None:
        """End the open block, if there is one."""
        if self._open:
            self._stream.write("\n" if self._at_start else "\n\n")
            self._open, self._blank = False, True

    def gap(self) -> None:
        """An empty line between two things of a list."""
        self.close()
        if not self._blank:
            self._stream.write("\n")
            self._blank = True

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, "stdout") from None


def write_task(page: Page, task: Task, *, verbose: bool, history: bool = False) -> None:
    """A task: its identifiers and state, then what it has to say, and its artifacts; its history, if that is wanted."""
    page.field("Task ID", task.id)
    page.field("Context ID", task.context_id)
    write_status(page, task.status, verbose=verbose)
    if verbose:
        _json(page, "Metadata", task.metadata)
    for artifact in task.artifacts:
        write_artifact(page, artifact, verbose=verbose)
    if verbose or history:
        for message in task.history:
            page.field("History", message.role.value)
            write_message(page, message, verbose=verbose)


def write_status(page: Page, status: TaskStatus, *, verbose: bool) -> None:
    page.field("State", status.state.value)
    if verbose:
        page.field("Updated", status.timestamp)
    if status.message is not None:
        write_parts(page, status.message.parts, "Message", verbose=verbose)
        if verbose:
            _json(page, "Metadata", status.message.metadata)


def write_message(page: Page, message: Message, *, verbose: bool) -> None:
    """A message, as the answer that it is or as one of a history."""
    page.field("Message ID", message.message_id)
    page.field("Context ID", message.context_id)
    page.field("Task ID", message.task_id)
    if verbose:
        page.field("Role", message.role.value)
        page.field("Extensions", ", ".join(message.extensions))
        page.field("Reference tasks", ", ".join(message.reference_task_ids))
        _json(page, "Metadata", message.metadata)
    write_parts(page, message.parts, "Text", verbose=verbose)


def write_artifact(page: Page, artifact: Artifact, *, verbose: bool) -> None:
    page.field("Artifact", artifact.name or artifact.artifact_id)
    if verbose:
        page.field("Artifact ID", artifact.artifact_id)
        page.field("Description", artifact.description)
        page.field("Extensions", ", ".join(artifact.extensions))
        _json(page, "Metadata", artifact.metadata)
    # Chunks of a streamed text may stand as parts of their own: they join without a seam.
    parts = artifact.parts if verbose else joined_parts(artifact)
    write_parts(page, parts, "Text", verbose=verbose, seam="")


def joined_parts(artifact: Artifact) -> tuple[Part, ...]:
    """The parts of an artifact, chunks of one text or of one named file joined to what they are chunks of."""
    joined: list[Part] = []
    for part in artifact.parts:
        last = joined[-1] if joined else None
        if last is not None and (last.filename, last.media_type) == (part.filename, part.media_type):
            if last.text is not None and part.text is not None:
                joined[-1] = replace(last, text=last.text + part.text)
                continue
            if last.raw is not None and part.raw is not None and part.filename is not None:
                joined[-1] = replace(last, raw=last.raw + part.raw)
                continue
        joined.append(part)
    return tuple(joined)


def write_parts(page: Page, parts: tuple[Part, ...], text_label: str, *, verbose: bool, seam: str = "\n") -> None:
    """Every part in its form; texts that follow each other are one block, unless they are to be told apart."""
    texts: list[str] = []
    for part in parts:
        if part.text is not None and not verbose:
            texts.append(part.text)
            continue
        _texts(page, text_label, texts, seam)
        if part.text is not None:
            page.field("Media type", part.media_type)
            page.block(text_label, part.text)
        else:
            write_part(page, part)
        if verbose:
            _json(page, "Metadata", part.metadata)
    _texts(page, text_label, texts, seam)


def _texts(page: Page, label: str, texts: list[str], seam: str) -> None:
    if texts:
        page.block(label, seam.join(texts))
        texts.clear()


def write_part(page: Page, part: Part) -> None:
    """A data part as JSON; a file by name, media type and size, or where it is."""
    if part.data is not UNSET:
        page.field("Media type", part.media_type)
        _json(page, "Data", part.data)
        return
    page.field("File", part.filename or "(no name)")
    page.field("Media type", part.media_type or "application/octet-stream")
    if part.raw is not None:
        page.field("Size", f"{len(part.raw)} bytes")
    page.field("URL", part.url)


def _json(page: Page, label: str, value: Any) -> None:
    if value is None and label != "Data":
        return
    page.block(label, msgspec.json.format(encode(value), indent=2).decode())


def write_card(page: Page, card: AgentCard, signed: str, *, verbose: bool) -> None:
    """Identity, capabilities, interfaces, security schemes, skills, and what became of the signatures."""
    page.field("Name", card.name)
    page.field("Description", card.description)
    page.field("Version", card.version)
    if card.provider is not None:
        page.field("Provider", f"{card.provider.organization} <{card.provider.url}>")
    page.field("Documentation", card.documentation_url)
    if verbose:
        page.field("Icon", card.icon_url)
    capabilities = card.capabilities
    page.field("Streaming", _yes(capabilities.streaming))
    page.field("Push notifications", _yes(capabilities.push_notifications))
    page.field("Extended card", _yes(capabilities.extended_agent_card))
    for extension in capabilities.extensions:
        page.field("Extension", f"{extension.uri}{' (required)' if extension.required else ''}")
        if verbose:
            page.field("Extension description", extension.description)
            _json(page, "Extension parameters", extension.params)
    page.field("Input modes", ", ".join(card.default_input_modes))
    page.field("Output modes", ", ".join(card.default_output_modes))
    for interface in card.supported_interfaces:
        tenant = f", tenant {interface.tenant}" if interface.tenant else ""
        page.field("Interface", f"{interface.protocol_binding} {interface.protocol_version} at {interface.url}{tenant}")
    for name, scheme in card.security_schemes.items():
        page.field("Security scheme", f"{name}: {describe_scheme(scheme)}")
    for requirement in card.security_requirements:
        needed = [
            f"{name} ({', '.join(scopes.list)})" if scopes.list else name
            for name, scopes in requirement.schemes.items()
        ]
        page.field("Security requirement", " and ".join(needed) or "none")
    page.field("Signatures", f"{len(card.signatures)}, {signed}" if card.signatures else "none")
    for skill in card.skills:
        page.field("Skill", f"{skill.name} ({skill.id})")
        page.field("Skill description", skill.description)
        page.field("Skill tags", ", ".join(skill.tags))
        if verbose:
            for example in skill.examples:
                page.field("Skill example", example)
            page.field("Skill input modes", ", ".join(skill.input_modes))
            page.field("Skill output modes", ", ".join(skill.output_modes))


def describe_scheme(scheme: SecurityScheme) -> str:
    """A security scheme in one line."""
    if (key := scheme.api_key_security_scheme) is not None:
        return f"API key in the {key.location} {key.name!r}"
    if (http := scheme.http_auth_security_scheme) is not None:
        return f"HTTP {http.scheme}{f' ({http.bearer_format})' if http.bearer_format else ''}"
    if (oauth2 := scheme.oauth2_security_scheme) is not None:
        flows = [name for name in oauth2.flows.__struct_fields__ if getattr(oauth2.flows, name) is not None]
        return f"OAuth 2 ({flows[0].replace('_', ' ')})"
    if (oidc := scheme.open_id_connect_security_scheme) is not None:
        return f"OpenID Connect ({oidc.open_id_connect_url})"
    return "mutual TLS"


def _yes(value: bool | None) -> str:
    return "yes" if value else "no"
