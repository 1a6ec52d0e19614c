"""What goes to stdout, in one of two forms: `text` for people, `json` with the protocol's own types (Appendix B)."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO, Final, Protocol, TextIO

import msgspec

from tieline.card import AgentCard
from tieline.cli.errors import EXIT_CODES, INTERNAL, CliError
from tieline.cli.notes import Notes
from tieline.cli.settings import REDACTED
from tieline.cli.text import Page, write_artifact, write_card, write_message, write_parts, write_status, write_task
from tieline.types import (
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    Message,
    SendMessageResponse,
    StreamEvent,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskStatusUpdateEvent,
    encode,
)

__all__ = ["JsonOutput", "Output", "TextOutput", "lost_stdout", "open_output"]

_C1: Final = re.compile(r"[\x7f-\x9f]")


class Output(Protocol):
    """Where a command puts its results. A field that only one form has is left out by the other."""

    def sent(self, message: Message) -> None:
        """What is about to be sent; shown to people who want to see everything."""

    def answer(self, answer: Task | Message) -> None:
        """The result of `send`."""

    def task(self, task: Task, *, history: bool = False) -> None:
        """The result of a command about one task. `history`: that is a part of what was asked for."""

    def tasks(self, page: ListTasksResponse) -> None:
        """A page of tasks."""

    def webhook(self, webhook: TaskPushNotificationConfig) -> None:
        """A webhook of a task."""

    def webhooks(self, webhooks: Sequence[TaskPushNotificationConfig]) -> None:
        """All webhooks of a task."""

    def notification(self, event: StreamEvent, line: tuple[str, str]) -> None:
        """What a webhook was sent: the event as JSON, a label and what it says as text; out before this returns."""

    def card(self, card: AgentCard, document: bytes, signed: str) -> None:
        """A card, with the JSON that it was read from, and what became of its signatures."""

    def event(self, event: StreamEvent) -> None:
        """The next event of a stream; out before this returns."""

    def end(self, task: Task) -> None:
        """The stream of a task is over and this is how it stands."""

    def document(self, value: dict[str, Any], fields: list[tuple[str, str]]) -> None:
        """A result that the protocol has no type for: `value` as JSON, `fields` as text."""

    def next(self, label: str, command: str) -> None:
        """A command that goes on from here."""

    def error(self, error: CliError) -> None:
        """The failure, instead of a result or behind what was streamed."""


def open_output(format_: str, notes: Notes, *, stream: bool, verbose: bool) -> Output:
    """The output that the settings ask for. Raises CliError when stdout is closed: what is done would be lost."""
    if sys.stdout is None:
        raise CliError(INTERNAL, "There is nowhere to put the result: stdout is closed.")
    if format_ == "json":
        return JsonOutput(sys.stdout.buffer, lines=stream)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that has no letter for it fails nothing
    return TextOutput(sys.stdout, notes, verbose=verbose)


def lost_stdout(notes: Notes, error: OSError) -> int:
    """Say on stderr that stdout takes nothing more, and let go of it; the exit code."""
    notes.line(f"Error: The result cannot be written to stdout: {error.strerror or type(error).__name__}.")
    notes.line(f"Code: {INTERNAL}")
    with contextlib.suppress(OSError, ValueError, AttributeError):  # None has no `close`
        sys.stdout.close()  # else the interpreter complains of it at its end
    return EXIT_CODES[INTERNAL]


class JsonOutput:
    """One document; with `lines` (--stream) one object a line."""

    def __init__(self, stream: BinaryIO, *, lines: bool) -> None:
        self._stream = stream
        self._lines = lines

    def sent(self, message: Message) -> None:
        """Not part of the result."""

    def answer(self, answer: Task | Message) -> None:
        if isinstance(answer, Task):
            self._write(encode(SendMessageResponse(task=answer)))
        else:
            self._write(encode(SendMessageResponse(message=answer)))

    def task(self, task: Task, *, history: bool = False) -> None:
        self._write(encode(task))

    def tasks(self, page: ListTasksResponse) -> None:
        if not self._lines:
            self._write(encode(page))
            return
        for task in page.tasks:
            self._write(encode(task))

    def webhook(self, webhook: TaskPushNotificationConfig) -> None:
        self._write(encode(webhook))

    def webhooks(self, webhooks: Sequence[TaskPushNotificationConfig]) -> None:
        if not self._lines:
            self._write(encode(ListTaskPushNotificationConfigsResponse(tuple(webhooks))))
            return
        for webhook in webhooks:
            self._write(encode(webhook))

    def notification(self, event: StreamEvent, line: tuple[str, str]) -> None:
        self._lines = True
        self.event(event)

    def card(self, card: AgentCard, document: bytes, signed: str) -> None:
        # As it came: a signature covers fields, too, that this version does not know (A2A 1.0 §8.4.1).
        self._write(document)

    def event(self, event: StreamEvent) -> None:
        if isinstance(event, Task):
            wrapped = StreamResponse(task=event)
        elif isinstance(event, Message):
            wrapped = StreamResponse(message=event)
        elif isinstance(event, TaskStatusUpdateEvent):
            wrapped = StreamResponse(status_update=event)
        else:
            wrapped = StreamResponse(artifact_update=event)
        self._write(encode(wrapped))

    def end(self, task: Task) -> None:
        """The last event has said it."""

    def document(self, value: dict[str, Any], fields: list[tuple[str, str]]) -> None:
        self._write(_encoded(value))

    def next(self, label: str, command: str) -> None:
        """Commands are for people; the identifiers are in the document."""

    def error(self, error: CliError) -> None:
        self._write(_encoded(error.envelope))

    def _write(self, document: bytes) -> None:
        text = msgspec.json.format(document, indent=-1 if self._lines else 2).decode()
        # DEL and C1 are legal in JSON, and a terminal may obey them. They can only stand in strings: escape them.
        safe = _C1.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
        self._stream.write(safe.encode() + b"\n")
        self._stream.flush()


def _encoded(value: dict[str, Any]) -> bytes:
    """JSON of what may repeat an argument or a file's name. Bytes in one that are no text are written as `\\udcff`."""
    try:
        return encode(value)
    except UnicodeEncodeError:
        return encode(_as_text(value))


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: _as_text(item) for name, item in value.items()}
    return [_as_text(item) for item in value] if isinstance(value, list | tuple) else value


class TextOutput:
    """Fields and blocks (§11.2). Failures go to stderr."""

    def __init__(self, stream: TextIO, notes: Notes, *, verbose: bool) -> None:
        self._page = Page(stream)
        self._notes = notes
        self._verbose = verbose
        self._artifact: str | None = None  # the artifact whose text block is open
        self._task: str | None = None  # the task whose identifiers were shown

    def sent(self, message: Message) -> None:
        if self._verbose:
            self._page.field("Sent", message.role.value)
            write_message(self._page, message, verbose=True)
            self._page.flush()

    def answer(self, answer: Task | Message) -> None:
        if isinstance(answer, Task):
            self.task(answer)
        else:
            write_message(self._page, answer, verbose=self._verbose)
            self._page.flush()

    def task(self, task: Task, *, history: bool = False) -> None:
        write_task(self._page, task, verbose=self._verbose, history=history)
        self._page.flush()

    def tasks(self, page: ListTasksResponse) -> None:
        for index, task in enumerate(page.tasks):
            if index:
                self._page.gap()
            self._page.field("Task ID", task.id)
            self._page.field("Context ID", task.context_id)
            self._page.field("State", task.state.value)
            self._page.field("Updated", task.status.timestamp)
            if task.status.message is not None:
                write_parts(self._page, task.status.message.parts, "Message", verbose=self._verbose)
            for artifact in task.artifacts:
                write_artifact(self._page, artifact, verbose=self._verbose)
        if page.tasks:
            self._page.gap()
        self._page.field("Tasks", f"{len(page.tasks)} of {page.total_size}")
        self._page.flush()

    def webhook(self, webhook: TaskPushNotificationConfig) -> None:
        self._webhook(webhook)
        self._page.flush()

    def webhooks(self, webhooks: Sequence[TaskPushNotificationConfig]) -> None:
        for index, webhook in enumerate(webhooks):
            if index:
                self._page.gap()
            self._webhook(webhook)
        if webhooks:
            self._page.gap()
        self._page.field("Webhooks", len(webhooks))
        self._page.flush()

    def _webhook(self, webhook: TaskPushNotificationConfig) -> None:
        """A webhook without its secrets."""
        self._page.field("Task ID", webhook.task_id)
        self._page.field("Webhook ID", webhook.id)
        self._page.field("URL", webhook.url)
        self._page.field("Token", REDACTED if webhook.token else None)
        if webhook.authentication is not None:
            given = f" {REDACTED}" if webhook.authentication.credentials else ""
            self._page.field("Authentication", f"{webhook.authentication.scheme}{given}")

    def notification(self, event: StreamEvent, line: tuple[str, str]) -> None:
        self._page.field(*line)
        self._page.flush()

    def card(self, card: AgentCard, document: bytes, signed: str) -> None:
        write_card(self._page, card, signed, verbose=self._verbose)
        self._page.flush()

    def event(self, event: StreamEvent) -> None:
        if isinstance(event, Message):
            write_message(self._page, event, verbose=self._verbose)
        elif isinstance(event, Task):
            self._artifact, self._task = None, event.id
            write_task(self._page, event, verbose=self._verbose)
        else:
            self._identify(event)
            if isinstance(event, TaskStatusUpdateEvent):
                self._artifact = None
                write_status(self._page, event.status, verbose=self._verbose)
            else:
                self._chunk(event)
        self._page.flush()

    def _identify(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
        """A stream that does not begin with the task still says which one it is about."""
        if self._task != event.task_id:
            self._page.field("Task ID", event.task_id)
            self._page.field("Context ID", event.context_id)
            self._task, self._artifact = event.task_id, None

    def _chunk(self, event: TaskArtifactUpdateEvent) -> None:
        """An artifact; the chunks of one text grow in one block, so that it reads as it was written."""
        artifact = event.artifact
        texts = [part.text for part in artifact.parts if part.text is not None]
        only_text = len(texts) == len(artifact.parts) and not self._verbose
        if only_text and event.append and self._artifact == artifact.artifact_id:
            self._page.more("".join(texts))
        elif only_text:
            self._page.field("Artifact", artifact.name or artifact.artifact_id)
            self._page.open("Text")
            self._page.more("".join(texts))
            self._artifact = artifact.artifact_id
        else:
            self._artifact = None
            write_artifact(self._page, artifact, verbose=self._verbose)

    def end(self, task: Task) -> None:
        self._artifact = None
        self._page.field("Task ID", task.id)
        self._page.field("Context ID", task.context_id)
        self._page.field("State", task.state.value)
        self._page.flush()

    def document(self, value: dict[str, Any], fields: list[tuple[str, str]]) -> None:
        for label, told in fields:
            self._page.field(label, told)
        self._page.flush()

    def next(self, label: str, command: str) -> None:
        self._page.field(label, command)
        self._page.flush()

    def error(self, error: CliError) -> None:
        self._page.close()
        self._page.flush()
        lines = [f"Error: {error}", f"Code: {error.code}"]
        if error.a2a_code is not None:
            lines.append(f"A2A code: {error.a2a_code}")
        if error.hint:
            lines.append(f"Hint: {error.hint}")
        for line in lines:
            self._notes.line(line.replace("\n", " "))
