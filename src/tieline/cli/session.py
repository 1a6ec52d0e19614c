"""One run of a command that talks to an agent: settings, the connection, what was told so far, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import click
from msgspec.structs import replace

from tieline import errors as a2a
from tieline.card import AgentCard
from tieline.cli import errors
from tieline.cli.credentials import attach, wanted
from tieline.cli.errors import CliError, UsageFault, from_exception
from tieline.cli.notes import Notes
from tieline.cli.options import settings_of
from tieline.cli.output import lost_stdout, open_output
from tieline.cli.settings import Settings
from tieline.cli.stored import Stored, certificate_of, open_saved
from tieline.client.discovery import FoundCard, fetch_card
from tieline.client.opening import HARMLESS_HEADERS, vouched_for
from tieline.client.origin import crosses_in_clear, origin_of, pinned
from tieline.client.peer import Peer, connect
from tieline.client.route import BINDINGS, choose, spoken_version
from tieline.client.transport import Timeouts
from tieline.client.verification import CardVerification, Trust, refusal, satisfies, unsigned, verified
from tieline.types import Task, TaskState
from tieline.wire.dialects import dialect_of
from tieline.wire.signing import SignatureState
from tieline.wire.v1 import V1

__all__ = ["Session", "execute", "preferred"]

INTERRUPTED: Final = 130  # 128 + SIGINT, as shells have it
PIPE_CLOSED: Final = 141  # 128 + SIGPIPE
_CREDENTIALS: Final = frozenset(("authorization", "cookie", "proxy-authorization"))
_REPLY: Final = '"<reply>"'


class Session:
    """What a command works with. `notes` is stderr, `out` is stdout."""

    def __init__(self, settings: Settings) -> None:
        settings.check_flags()
        self.settings = settings
        self.notes = Notes(debugging=settings["debug"])
        self.streams: bool = settings["stream"]
        self.live = self.streams  # what happens is shown as it happens, so that no progress line has to
        self.as_json: bool = settings["output"] == "json"
        self.out = open_output(settings["output"], self.notes, stream=self.streams, verbose=settings["verbose"])
        self.card: AgentCard | None = None
        self.verification: CardVerification | None = None  # of the card that was fetched
        self.verifying = False  # the signatures of the card are what the command is about
        self.message_id: str | None = None  # of the message that is on its way
        self.task_id: str | None = settings["task-id"]
        self._named = False  # the task's id has been told
        self.rested = False  # the task has been reported as resting: there is nothing to take up again
        self._credentials = False  # something that could authenticate was sent
        self._stored = False  # it is what `auth login` has kept

    # --- the connection -----------------------------------------------------------------------------------------------

    @property
    def ref(self) -> str:
        """The agent. Raises UsageFault when none is named."""
        ref: str | None = self.settings["agent-card"]
        if ref is None:
            raise UsageFault(
                "Which agent? No agent card is named.",
                hint="Give -a HOST, the URL of a card or a card file, or set A2ACLI_AGENT_CARD.",
            )
        return ref

    async def fetch(self) -> FoundCard:
        """The agent's card, fetched without credentials: it has to say first who may have them (§12.4)."""
        ref = self.ref
        self.notes.redact.learn_reference(ref)
        if self.settings["insecure"]:
            self.notes.warn("TLS certificates are not verified (--insecure): anybody on the way can read and answer.")
        self.notes.debug(f"card: {ref}")
        found = await fetch_card(
            ref,
            verify=not self.settings["insecure"],
            certificate=certificate_of(self.settings),
            version=self.version,
        )
        self.notes.debug(f"card: found at {found.where}")
        verification = await self._verified(found)
        return replace(found, card=vouched_for(found, verification))

    async def _verified(self, found: FoundCard) -> CardVerification:
        """Whether the card is signed. Raises CardNotVerified where it is not as it has to be."""
        try:
            trust = self._trust
            if not found.card.signatures:
                verification = unsigned()
            else:
                verification = await verified(
                    found.document, found.url, trust, timeouts=Timeouts(), verify=not self.settings["insecure"]
                )
        except ValueError as error:
            raise UsageFault(f"{self.settings.resolve('card-keys').source}: {error}") from None
        self._judge(verification, trust, found.where)
        return verification

    @property
    def _trust(self) -> Trust:
        """Whose signatures are believed. Raises ValueError."""
        settings = self.settings
        return Trust.of(settings["card-keys"], settings["card-key-host"], settings["require-signed-card"])

    def _judge(self, verification: CardVerification, trust: Trust, where: str) -> None:
        """Tell what is wrong with a card's signatures. Raises CardNotVerified where it may not be used with them."""
        self.verification = verification
        self.notes.debug(f"card: {verification.state}: {verification.reason}")
        if not satisfies(verification, trust) or (self.verifying and verification.state is SignatureState.INVALID):
            raise refusal(verification, where)
        if not self.verifying:
            invalid = [each.reason for each in verification.signatures if each.state is SignatureState.INVALID]
            for reason in dict.fromkeys(invalid):
                self.notes.warn(f"The card has an invalid signature: {reason}")

    async def extended_card(self, peer: Peer) -> AgentCard:
        """The card for callers who have authenticated. Raises CardNotVerified, and what `Peer.extended_card` does."""
        card = self.card = await peer.extended_card()
        self._judge(peer.card_verification, self._trust, peer.interface.url)
        return card

    @property
    def version(self) -> str:
        """The protocol version to speak. One before 1.0 is spoken only when it is asked for (§13.2)."""
        version: str | None = self.settings["a2a-version"]
        return version or V1.version

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[Peer]:
        """A connection to the agent, over the transport and with the credentials that card and settings make."""
        settings = self.settings
        service_params: tuple[tuple[str, str], ...] = settings["svc-param"]
        bearer, api_key = settings["bearer"], settings["api-key"]
        # Before anything is sent or logged: secrets have to be known to be taken out.
        self.notes.redact.learn(secret for secret in (bearer, api_key) if secret is not None)
        self.notes.redact.learn(value for _, value in service_params)
        _check_version(self.version)
        found = await self.fetch()
        card = self.card = found.card
        credentials = attach(card, bearer=bearer, api_key=api_key)
        if found.authorization is not None:
            credentials.headers.setdefault("Authorization", found.authorization)
        for reason in credentials.unused:
            self.notes.warn(reason)
        headers = dict(credentials.headers)
        extensions: list[str] = []
        for name, value in service_params:
            if name.lower() == "a2a-extensions":
                extensions += [uri.strip() for uri in value.split(",") if uri.strip()]
                continue
            for taken in [given for given in headers if given.lower() == name.lower()]:
                value = f"{headers.pop(taken)}, {value}" if taken in dict(service_params) else value
            headers[name] = value
        certificate = certificate_of(settings)
        given = bool(credentials) or any(name.lower() in _CREDENTIALS for name in headers)
        stored = Stored() if given else self._load(found)
        self._stored = bool(stored.credentials)
        self._credentials = bool(credentials) or bool(service_params) or self._stored or certificate is not None
        kept = any(name.lower() not in HARMLESS_HEADERS for name in headers)
        if given or kept or self._stored or certificate is not None:
            card = self._at_home(found, stored.origin, secret=self._stored)
        async with connect(
            replace(card, signatures=()),  # they have been seen to, and the card may have lost interfaces
            transport=preferred(card, settings["transport"]),
            version=self.version,
            headers=headers,
            query=credentials.query,
            cookies=credentials.cookies,
            credentials=(*stored.credentials, *(() if certificate is None else (certificate,))),
            trust=settings["trust"],
            card_keys=settings["card-keys"],
            card_key_hosts=settings["card-key-host"],
            extensions=extensions,
            verify=not settings["insecure"],
        ) as peer:
            interface = peer.interface
            self.notes.debug(f"interface: {interface.protocol_binding} {interface.protocol_version} at {interface.url}")
            if self._credentials and settings["insecure"]:
                self.notes.warn("Credentials are sent over a connection whose certificate is not verified.")
            if (credentials or self._stored) and crosses_in_clear(interface.url):
                self.notes.warn(f"Credentials are sent to {interface.url} unencrypted.")
            self._warn_of_sources()
            yield peer

    def _load(self, found: FoundCard) -> Stored:
        """What `auth login` has kept for this agent."""
        stored = open_saved(found, self.notes)
        if stored.credentials:
            self.notes.debug(f"credentials: those that were saved for {stored.origin}")
        return stored

    def _at_home(self, found: FoundCard, origin: str | None, *, secret: bool) -> AgentCard:
        """The card with those interfaces alone that may have credentials: at the origin that the card came from, or
        (`origin`) that they were saved for.

        A card in a file is the caller's own word, and stays as it is. Raises OriginNotTrusted where none is left.
        """
        card = found.card
        home = origin or (None if found.url is None else origin_of(found.url))
        if home is None:
            return card
        wanted_ones = preferred(card, self.settings["transport"])
        usable = choose(card, transports=wanted_ones, version=spoken_version(self.version))
        trusted = frozenset(self.settings["trust"])
        return replace(card, supported_interfaces=pinned(usable, home, trusted, secret=secret))

    def _warn_of_sources(self) -> None:
        """Of credentials that others can read, and of a file that sends the user's own ones to an agent it names."""
        for file in (self.settings.local_file, self.settings.global_file):
            if file is not None and (exposure := file.exposure) is not None:
                self.notes.warn(exposure)
        agent = self.settings.resolve("agent-card")
        for name in ("bearer", "api-key"):
            credential = self.settings.resolve(name)
            if agent.rank == 2 and credential.rank in (1, 3) and self.settings["config"] is None:
                self.notes.warn(f"{agent.source} names the agent, and it gets the credential of {credential.source}.")

    # --- what is told -------------------------------------------------------------------------------------------------

    def told(self, task_id: str) -> None:
        """The agent has named the task: from here on an interruption loses nothing."""
        self.task_id = task_id
        if not self.live and not self._named:
            self.notes.line(f"Waiting for task {task_id}")
        self._named = True

    def awaiting(self, state: TaskState, said: str = "") -> None:
        """What the progress line shows: the state, and the last thing that the agent said."""
        if self.live:
            return
        short = state.value.removeprefix("TASK_STATE_").lower().replace("_", " ")
        self.notes.progress(f"{short}: {said}" if said else short)

    def awaited(self) -> None:
        """Waiting is over: what comes next goes to stdout."""
        self.notes.progress("")

    def conclude(self, task: Task) -> None:
        """Behind a task that was reported: warn of what is no success, and say how to go on (§8.2, §11.6)."""
        state, self.task_id = task.state, task.id
        self.rested = True
        reply = f"{self.command('send', '--task-id', task.id)} {_REPLY}"
        if state.interrupted:
            asks = "your answer" if state is TaskState.INPUT_REQUIRED else "an authorization"
            how = f" Reply: {reply}" if self.as_json else ""
            self.notes.warn(f"the task waits for {asks} ({state.value}).{how}")
            self.out.next("Next", reply)
            if state is TaskState.AUTH_REQUIRED:  # it may come from elsewhere, and the task go on by itself (§7.6.1)
                self.out.next("Afterwards", self.command("task", "get", task.id, "--wait"))
            return
        if any(part.raw is not None or part.url is not None for artifact in task.artifacts for part in artifact.parts):
            self.out.next("Download", self.command("task", "download", task.id))
        if not state.terminal:
            self.rested = False
            self.out.next("Next", self.command("task", "get", task.id, "--wait"))
            return
        if state is not TaskState.COMPLETED:
            self.notes.warn(f"the task ended {state.value}.")
        if task.context_id:
            self.out.next("Next", f'{self.command("send", "--context-id", task.context_id)} "<message>"')

    def command(self, *words: str) -> str:
        """A command line for the same agent, to be pasted: with the flags of this one that make a difference there.

        Credentials are left out; what the environment or a file says holds there, too.
        """
        flags = self.settings.flags
        line = ["tieline", *words]
        for name, flag in (("agent-card", "-a"), ("config", "--config"), ("a2a-version", "--a2a-version")):
            if name in flags:
                line += [flag, str(flags[name])]
        for binding in flags.get("transport", ()):
            line += ["--transport", binding]
        for name in ("card-keys", "card-key-host"):
            for value in flags.get(name, ()):
                line += [f"--{name}", value]
        line += [f"--{name}" for name in ("insecure", "require-signed-card") if flags.get(name)]
        for name in ("client-cert", "client-key"):
            if name in flags:
                line += [f"--{name}", str(flags[name])]
        for origin in flags.get("trust", ()):
            line += ["--trust", origin]
        return self.notes.redact(shlex.join(line))

    def interrupted(self) -> None:
        """Behind Ctrl-C: what goes on without us, and how to come back to it."""
        self.notes.progress("")
        if self.rested or (self.task_id is None and self.message_id is None):
            self.notes.line("Interrupted.")
        elif self.task_id is not None:
            self.notes.line(f"Interrupted. The task goes on: {self.command('task', 'get', self.task_id, '--wait')}")
            self.notes.line(f"To stop it: {self.command('task', 'cancel', self.task_id)}")
        else:
            self.notes.line(
                "Interrupted before the agent named a task; it may have the message. Agents that recognise "
                "a message id will not do the work twice; others will. To send it again, add "
                f" --message-id {self.message_id}"
            )

    def failed(self, cause: Exception) -> CliError:
        """An error as it is reported: with the best code and hint, without secrets."""
        self.notes.progress("")
        error = from_exception(cause)
        code, hint = error.code, error.hint
        if isinstance(cause, a2a.AuthenticationRequired):
            login = self.command("auth", "login")
            if not self._credentials:
                code = errors.CREDENTIALS_MISSING
                hint = wanted(self.card, login)
            elif self._stored:
                hint = f"What was saved for this agent was refused. Sign in again: {login}"
            else:
                hint = f"The credential was refused. {wanted(self.card, login)}"
        if isinstance(cause, a2a.AuthorizationFailed) and self._stored:
            hint = f"Sign in again: {self.command('auth', 'login')}"
        if isinstance(cause, a2a.CredentialsUnfit) and self._stored:
            hint = f"The agent asks for something else now. Sign in again: {self.command('auth', 'login')}"
        if isinstance(cause, a2a.OriginNotTrusted):
            hint = (
                f"If you trust it, add --trust {cause.origin}. Or give that agent's own card with -a, or this one as a"
                " file: tieline card get -o json > card.json"
            )
        hint = hint or self._hint(cause, code)
        redact = self.notes.redact
        return CliError(code, redact(str(error)), hint=redact(hint) if hint else None, a2a_code=error.a2a_code)

    def _hint(self, cause: Exception, code: str) -> str | None:
        if code in (errors.TIMEOUT, errors.UNREACHABLE) and self.task_id is not None:
            return f"The task may go on: {self.command('task', 'get', self.task_id, '--wait')}"
        sent = self.message_id is not None and not isinstance(cause, a2a.Unreachable)  # else nothing went out
        if code in (errors.TIMEOUT, errors.UNREACHABLE) and sent:
            return (
                f"The agent may have it. To send it again, add --message-id {self.message_id}: agents that recognise "
                "it will not do the work twice; others will."
            )
        if code == errors.UNREACHABLE:
            return "Is the agent running, and is this its address? -a takes a host, the URL of a card or a card file."
        if code == errors.CARD_NOT_FOUND:
            return "If the card is elsewhere, give its full URL with -a."
        if code == errors.CARD_INVALID and (others := self._other_versions()):
            return f"It speaks other versions of A2A, which have to be asked for: --a2a-version {others[0]}"
        if code == errors.CARD_NOT_VERIFIED and not self.verifying:
            return f"See what is known of its signatures: {self.command('card', 'verify')}"
        if code == errors.CARD_INVALID:
            return f"See what is wrong with it: {self.command('card', 'get', '--validate')}"
        if isinstance(cause, a2a.A2AError) and not isinstance(cause, a2a.PeerError):
            more = "See the protocol messages with --debug."
            if isinstance(cause, a2a.UnsupportedOperation) and self.task_id is not None:
                return f"How the task stands: {self.command('task', 'get', self.task_id)}. {more}"
            if isinstance(cause, a2a.TaskNotFound) and self.version == V1.version:  # others may have no ListTasks
                return f"List your tasks: {self.command('task', 'list')}. {more}"
            return more if self.settings["task-id"] is not None or self.task_id is not None else None
        return None

    def _other_versions(self) -> tuple[str, ...]:
        """The versions to ask for where the card has not the one that was; in the card's order."""
        if self.card is None:
            return ()
        named = [dialect_of(each.protocol_version) for each in self.card.supported_interfaces]
        if dialect_of(self.version) in named:
            return ()
        return tuple(dict.fromkeys(dialect.version for dialect in named if dialect is not None))


def _check_version(version: str) -> None:
    """Raises CliError when this command does not speak a version: no other one is taken instead (§13.2)."""
    try:
        spoken_version(version)
    except a2a.VersionNotSupported as error:
        spoken = error.metadata["supportedVersions"]
        raise CliError(
            error.name,
            f"A2A {version} is not spoken here, only {spoken}.",
            hint=f"Leave --a2a-version out, or give one of {spoken}.",
            a2a_code=error.rpc_code,
        ) from None


def preferred(card: AgentCard, wanted: tuple[str, ...]) -> tuple[str, ...] | None:
    """The wanted bindings that the card has and we speak, in their order; None is the card's order (§13.1)."""
    offered = {interface.protocol_binding for interface in card.supported_interfaces}
    return tuple(name for name in wanted if name in offered and name in BINDINGS) or None


def execute(context: click.Context, work: Callable[[Session], Awaitable[None]]) -> int:
    """Run a command's work and report how it failed, if it did; return the exit code (§11.6)."""
    session = Session(settings_of(context))
    try:
        asyncio.run(_whole(session, work))
    except KeyboardInterrupt:
        session.interrupted()
        return INTERRUPTED
    except BrokenPipeError:
        _abandon_stdout()
        return PIPE_CLOSED
    except Exception as cause:  # the boundary of the command: whatever it is, it is reported in its one form
        session.notes.debug(traceback.format_exc())
        error = session.failed(cause)
        try:
            session.out.error(error)
        except BrokenPipeError:
            _abandon_stdout()
        except OSError as lost:
            return lost_stdout(session.notes, lost)
        return error.exit_code
    return 0


async def _whole(session: Session, work: Callable[[Session], Awaitable[None]]) -> None:
    """The work, within --timeout, beside the progress line and the debug log."""
    limit_s: float | None = session.settings["timeout"]
    if session.notes.debugging:
        _log_to(session.notes)
    progress = asyncio.ensure_future(session.notes.animate())
    try:
        async with asyncio.timeout(limit_s) as limit:
            await work(session)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise CliError(errors.TIMEOUT, f"It is not done after {limit_s:g} s (--timeout).") from error
    finally:
        progress.cancel()


class _DebugHandler(logging.Handler):
    """Puts log records into the notes, where secrets are taken out."""

    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        self._notes.debug(record.getMessage())


def _log_to(notes: Notes) -> None:
    log = logging.getLogger("tieline")
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.addHandler(_DebugHandler(notes))


def _abandon_stdout() -> None:
    """Nobody reads stdout any more: keep the interpreter from complaining of it at its end."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.close()
