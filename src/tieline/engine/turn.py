"""What an agent sees: the message it was sent, and the ways to answer."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from tieline.engine.content import Content, TextStream, part_of, parts_of
from tieline.ids import new_id
from tieline.types import Artifact, Message, Metadata, Part, Task, TaskState, own_copy

if TYPE_CHECKING:
    from tieline.engine.run import Run

__all__ = ["Answer", "ArtifactWriter", "Caller", "Turn"]


class Caller(msgspec.Struct, frozen=True):
    """Who calls: as the server has authenticated it, with what the request said of itself."""

    principal: str = ""  # "" is anonymous
    tenant: str = ""  # the only one that it may name; "" may name any
    version: str = "1.0"
    extensions: tuple[str, ...] = ()  # URIs named in A2A-Extensions
    scopes: frozenset[str] = frozenset()  # what it may do, as whoever has authenticated it says
    claims: Mapping[str, Any] = {}  # of the JWT that it has shown
    schemes: frozenset[str] = frozenset()  # names of the security schemes that it has authenticated by


class Answer(str):
    """The caller's answer to `ask`: a str, its text, with the whole message beside it."""

    message: Message

    def __new__(cls, message: Message) -> Answer:
        self = super().__new__(cls, message.text)
        self.message = own_copy(message) if _has_free_form(message) else message
        return self

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.message.parts

    @property
    def files(self) -> tuple[Part, ...]:
        """The parts with bytes or a URL."""
        return tuple(part for part in self.message.parts if part.raw is not None or part.url is not None)

    @property
    def data(self) -> Any:
        """The value of the first data part; None when there is none."""
        return _first_data(self.message)


class Turn:
    """One run of an agent: what it was asked, and how it answers.

    Beside these methods an agent answers by yielding or returning: str (a chunk of the artifact "response"), dict or
    list (a data part of it), Part or a list of Parts, Artifact, TaskStatus or TaskState.
    """

    __slots__ = ("_run", "message")

    def __init__(self, run: Run, message: Message) -> None:
        self._run = run
        self.message = own_copy(message) if _has_free_form(message) else message  # the agent may change what it reads

    # --- what was asked -----------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The text of the message, its text parts joined by line feeds; "" when it has none."""
        return self.message.text

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.message.parts

    @property
    def files(self) -> tuple[Part, ...]:
        """The parts with bytes (`raw`) or a `url`."""
        return tuple(part for part in self.message.parts if part.raw is not None or part.url is not None)

    @property
    def data(self) -> Any:
        """The value of the first data part; None when there is none."""
        return _first_data(self.message)

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages of this task before this one, the oldest first: the caller's, and the agent's questions."""
        return own_copy(self._run.history_before(self.message))

    @property
    def references(self) -> tuple[Task, ...]:
        """The caller's tasks that the message refers to (`referenceTaskIds`); unknown ones are left out."""
        return own_copy(self._run.references)

    @property
    def task_id(self) -> str:
        return self._run.task_id

    @property
    def context_id(self) -> str:
        return self._run.context_id

    @property
    def caller(self) -> Caller:
        return self._run.caller

    @property
    def metadata(self) -> Metadata:
        """The metadata of the request, over that of the message."""
        return {**(self.message.metadata or {}), **(self._run.metadata or {})}

    @property
    def accepts(self) -> tuple[str, ...]:
        """The media types the caller wants to be answered in (`acceptedOutputModes`); () is any."""
        return self._run.accepts

    @property
    def extensions(self) -> tuple[str, ...]:
        """The extensions the caller named that this agent declares."""
        declared = {extension.uri for extension in self._run.agent.extensions}
        return tuple(uri for uri in self.caller.extensions if uri in declared)

    async def context_tasks(self, limit: int = 20) -> tuple[Task, ...]:
        """The caller's earlier tasks of this context, the last changed first, at most `limit`; without this one."""
        return own_copy(await self._run.context_tasks(limit))

    # --- how it answers -----------------------------------------------------------------------------------------------

    def reply(self, *content: Content, metadata: Metadata | None = None) -> Message:
        """A Message for the caller: `return turn.reply("hi")` before anything else answers without making a task.

        Where the task exists already, it ends COMPLETED with these words.
        """
        return self._run.reply_with(parts_of(*content), metadata)

    async def status(self, *content: Content, metadata: Metadata | None = None) -> None:
        """Say what is going on: a status update in state WORKING."""
        message = self._run.agent_message(parts_of(*content)) if content else None
        self._run.give_status(TaskState.WORKING, message, metadata)
        await self._run.pace()

    async def ask(self, *content: Content) -> Answer:
        """Ask the caller and wait for the answer; the task is INPUT_REQUIRED meanwhile.

        A message that has come in meanwhile (`while_running="queue"`) is taken as the answer at once.
        """
        return Answer(await self._run.ask(TaskState.INPUT_REQUIRED, parts_of(*content)))

    async def authorize(self, *content: Content) -> Answer:
        """Ask the caller to arrange an authorization and wait for word of it; the task is AUTH_REQUIRED meanwhile.

        The state alone authorizes nothing (A2A 1.0 §7.6.4): check the credential where you use it. A message that came
        before is no answer; it stays for the next `ask`.
        """
        return Answer(await self._run.ask(TaskState.AUTH_REQUIRED, parts_of(*content)))

    def artifact(
        self,
        name: str,
        *,
        media_type: str | None = None,
        description: str | None = None,
        metadata: Metadata | None = None,
        artifact_id: str | None = None,
    ) -> ArtifactWriter:
        """An artifact that is written in chunks: `async with turn.artifact("report.csv") as out: await out.write(...)`.

        `media_type` and the name as filename are put on the parts that are bytes; `media_type` on text, too.
        """
        if artifact_id is None and self._run.past is not None:
            artifact_id = self._run.past.artifact_id(name)
        return ArtifactWriter(self._run, artifact_id or new_id(), name, media_type, description, metadata)

    async def complete(self, *content: Content) -> None:
        """End the task COMPLETED with a closing word. Nothing can be said behind it."""
        message = self._run.agent_message(parts_of(*content)) if content else None
        self._run.give_status(TaskState.COMPLETED, message)
        await self._run.pace()


class ArtifactWriter:
    """Writes one artifact in chunks; made by `Turn.artifact`."""

    __slots__ = ("_begun", "_description", "_media_type", "_metadata", "_run", "_text", "artifact_id", "name")

    def __init__(
        self,
        run: Run,
        artifact_id: str,
        name: str,
        media_type: str | None,
        description: str | None,
        metadata: Metadata | None,
    ) -> None:
        self.artifact_id = artifact_id
        self.name = name
        self._run = run
        self._media_type = media_type
        self._description = description
        self._metadata = metadata
        self._begun = False
        self._text: TextStream | None = None

    async def __aenter__(self) -> ArtifactWriter:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def write(self, content: Content, *, last: bool = False) -> None:
        """Add a chunk; it goes out at once. `last` marks it as the last one on the wire (`lastChunk`)."""
        run = self._run
        if self._begun and type(content) is str and not last and run.past is None:
            if self._text is None:
                self._text = TextStream(run.task_id, run.context_id, self.artifact_id, self._media_type)
            run.give_chunk(self._text.chunk(content))
            if not run.in_a_burst():
                await run.let_out()
            return
        part = part_of(content)
        if self._media_type is not None and part.media_type is None and part.url is None:
            part = msgspec.structs.replace(part, media_type=self._media_type)
        if part.raw is not None and part.filename is None:
            part = msgspec.structs.replace(part, filename=self.name)
        first = not self._begun
        self._begun = True
        artifact = Artifact(
            self.artifact_id,
            (part,),
            self.name if first else None,
            self._description if first else None,
            self._metadata if first else None,
        )
        run.give_artifact(artifact, append=not first, last_chunk=last)
        if not run.in_a_burst():
            await run.let_out()


def _has_free_form(message: Message) -> bool:
    return message.metadata is not None or any(
        part.data is not UNSET or part.metadata is not None for part in message.parts
    )


def _first_data(message: Message) -> Any:
    return next((part.data for part in message.parts if part.data is not UNSET), None)
