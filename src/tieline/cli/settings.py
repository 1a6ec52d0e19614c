"""Where an option's value comes from: flag, environment, local file, global file, default (CLI specification §8.3).

Files are `.env` files with the names of the environment: `A2ACLI_AGENT_CARD=https://agent.example`. This module only
reads; nothing here or elsewhere in the command writes configuration, or remembers a task or context.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from tieline.cli.errors import UsageFault
from tieline.types import exact

__all__ = ["GLOBAL_FILE", "REDACTED", "SETTINGS", "EnvFile", "Resolved", "Setting", "Settings", "read_duration", "tell"]

GLOBAL_FILE: Final = Path(".config", "a2a-cli", ".env")  # below the home directory, on every platform
PREFIX: Final = "A2ACLI_"
REDACTED: Final = "[redacted]"

_UNITS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d|)")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SHORTEST_POLL_S: Final = 0.05
_BINDINGS: Final = {
    "jsonrpc": "JSONRPC",
    "json-rpc": "JSONRPC",
    "http+json": "HTTP+JSON",
    "http-json": "HTTP+JSON",
    "rest": "HTTP+JSON",
    "grpc": "GRPC",
}
_YES: Final = frozenset(("1", "true", "yes", "on"))
_NO: Final = frozenset(("0", "false", "no", "off"))


def read_text(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text.strip()


def read_bool(text: str) -> bool:
    word = text.strip().lower()
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def read_duration(text: str) -> float | None:
    """Seconds in `30`, `30s`, `5m`, `1.5h`, `7d` or `250ms`; None for `none`, no limit.

    Raises ValueError.
    """
    word = text.strip().lower()
    if word == "none":
        return None
    match = _DURATION.fullmatch(word)
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write 30, 30s, 5m, 250ms or none")
    seconds = float(match.group(1)) * _UNITS[match.group(2)]
    if seconds <= 0:
        raise ValueError("must be more than 0")
    return seconds


def read_interval(text: str) -> float:
    seconds = read_duration(text)
    if seconds is None or seconds < _SHORTEST_POLL_S:
        raise ValueError(f"{text!r} is too short: at least {int(_SHORTEST_POLL_S * 1000)}ms")
    return seconds


def read_output(text: str) -> str:
    if text not in ("text", "json"):
        raise ValueError(f"{text!r} is not a format: choose text or json")
    return text


def read_version(text: str) -> str:
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", text.strip()):
        raise ValueError(f"{text!r} is not a protocol version: write 1.0, 0.3 or 0.1")
    return text.strip()


def read_transports(text: str) -> tuple[str, ...]:
    """Bindings by their names on a card; commas separate several in one variable."""
    names = [name for name in re.split(r"[,\s]+", text.strip()) if name]
    unknown = [name for name in names if name.lower() not in _BINDINGS]
    if unknown or not names:
        raise ValueError(f"{', '.join(unknown) or text!r} is not a transport: choose JSONRPC, HTTP+JSON or GRPC")
    return tuple(_BINDINGS[name.lower()] for name in names)


def read_service_params(text: str) -> tuple[tuple[str, str], ...]:
    """Service parameters, `name:value`; each on a line of its own in a variable."""
    pairs = []
    for line in text.splitlines() or [text]:
        name, colon, value = line.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not _TOKEN.fullmatch(name):
            # The text is not repeated: it may hold a credential.
            raise ValueError("a service parameter is written name:value, its name without spaces")
        if not value.isprintable() or not value.isascii():
            raise ValueError(f"the value of {name} has characters that no header can carry")
        if name.lower() == "a2a-version":
            raise ValueError("the protocol version is set with --a2a-version")
        pairs.append((name, value))
    return tuple(pairs)


def read_key_source(text: str) -> tuple[str, ...]:
    """Where keys are; each on a line of its own in a variable."""
    found = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not found:
        raise ValueError("must not be empty")
    return found


def read_hosts(text: str) -> tuple[str, ...]:
    """Names of hosts; commas separate several in one variable."""
    names = [name for name in re.split(r"[,\s]+", text.strip()) if name]
    if not names or any("/" in name for name in names):
        raise ValueError(f"{text!r} is not the name of a host, such as keys.example")
    return tuple(names)


def read_origins(text: str) -> tuple[str, ...]:
    """Origins; commas separate several in one variable."""
    from tieline.client.origin import trusted_origins  # loads what only commands need that talk to agents

    origins = [origin for origin in re.split(r"[,\s]+", text.strip()) if origin]
    if not origins:
        raise ValueError("must not be empty")
    return tuple(sorted(trusted_origins(origins)))


def read_secret(text: str) -> str:
    secret = text.strip()
    if not secret:
        raise ValueError("must not be empty")
    if not secret.isascii() or not secret.isprintable():
        raise ValueError("has characters that no header can carry")
    return secret


def read_metadata(text: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError('must be a JSON object, such as {"key": "value"}')
    found: dict[str, Any] = exact(value)
    return found


@dataclass(frozen=True)
class Setting:
    """One option that several commands share. `name` is its long flag without the dashes."""

    name: str
    help: str
    read: Callable[[str], Any]  # raises ValueError with what is wrong
    default: Any = None
    unset: str | None = None  # what holds without a value, where that is a behaviour
    metavar: str | None = None
    short: str | None = None
    aliases: tuple[str, ...] = ()
    switch: bool = False  # takes no value
    negative: bool = False  # a switch with a --no- form, to take back what a file says
    many: bool = False  # repeatable; the values are joined in order
    secret: bool = False
    variable: bool = True  # may come from the environment
    in_files: bool = True  # may come from a file

    @property
    def variable_name(self) -> str:
        return PREFIX + self.name.upper().replace("-", "_")


_ALL: Final = (
    Setting(
        "agent-card",
        "The agent: a host or origin, the URL of its card, or the path of a card file.",
        read_text,
        metavar="REF",
        short="-a",
    ),
    Setting(
        "a2a-version",
        "Protocol version to speak: 1.0, or 0.3 or 0.1, which are spoken only when they are asked for.",
        read_version,
        unset="the highest that both sides speak, never below 1.0",
        metavar="VERSION",
    ),
    Setting(
        "transport",
        "Transport to prefer: JSONRPC, HTTP+JSON or GRPC. Repeatable, the most wanted first.",
        read_transports,
        unset="the first of the card that is spoken here",
        metavar="BINDING",
        many=True,
    ),
    Setting(
        "bearer",
        "Bearer token. Other users see flags in the process list, and the shell keeps them: prefer A2ACLI_BEARER.",
        read_secret,
        metavar="TOKEN",
        secret=True,
    ),
    Setting(
        "api-key",
        "API key, sent where the card says. As visible to others as --bearer: prefer A2ACLI_API_KEY.",
        read_secret,
        metavar="KEY",
        secret=True,
    ),
    Setting(
        "client-cert",
        "Client certificate to show (mutual TLS): a PEM file, which may hold the key, too.",
        read_text,
        metavar="PATH",
    ),
    Setting("client-key", "The client certificate's key, a PEM file.", read_text, metavar="PATH"),
    Setting(
        "trust",
        "Another origin than the card's that may have credentials, such as https://other.example. Repeatable.",
        read_origins,
        metavar="ORIGIN",
        many=True,
        in_files=False,  # a file that came with somebody's project must not say who gets credentials
    ),
    Setting(
        "svc-param",
        "Service parameter of the transport, such as x-trace-id:42; over HTTP it is a header. Repeatable.",
        read_service_params,
        metavar="NAME:VALUE",
        many=True,
        secret=True,  # it may carry a credential, and which ones do cannot be told
    ),
    Setting(
        "insecure",
        "Do not verify TLS certificates (development only).",
        read_bool,
        False,
        switch=True,
        negative=True,
    ),
    Setting(
        "card-keys",
        "Believe the card's signatures by these keys only: a file (JWK set, JWK, PEM) or an https URL. Repeatable.",
        read_key_source,
        unset="those that the card names at its own origin",
        metavar="FILE|URL",
        many=True,
    ),
    Setting(
        "card-key-host",
        "Believe keys at this host, too, where the card's signatures name them. Repeatable.",
        read_hosts,
        metavar="HOST",
        many=True,
    ),
    Setting(
        "require-signed-card",
        "Refuse an agent whose card is not signed by a key that is known.",
        read_bool,
        False,
        switch=True,
        negative=True,
    ),
    Setting(
        "timeout",
        "How long to wait before giving up: 30, 30s, 5m, 250ms, none.",
        read_duration,
        None,
        "no limit",
        "DURATION",
    ),
    Setting("poll-interval", "How often to look at a task while waiting.", read_interval, 2.0, metavar="DURATION"),
    Setting(
        "wait",
        "Wait until the task ends or needs you.",
        read_bool,
        unset="on for send, off for task get",
        switch=True,
        aliases=("watch",),
    ),
    Setting(
        "async",
        "Do not wait: report the task's identifiers at once.",
        read_bool,
        False,
        switch=True,
        aliases=("return-immediately", "no-wait"),
    ),
    Setting("task-id", "The task to continue or to act on.", read_text, metavar="ID", aliases=("task",)),
    Setting("context-id", "The context to start the new task in.", read_text, metavar="ID"),
    Setting("metadata", "Metadata of the request, a JSON object.", read_metadata, metavar="JSON"),
    Setting(
        "stream",
        "Follow events as they happen; with -o json one JSON object a line.",
        read_bool,
        False,
        switch=True,
        variable=False,  # the shape of the output is a matter of what the caller wrote (§11.3)
        in_files=False,
    ),
    Setting("output", "Format of the output: text or json.", read_output, "text", None, "FORMAT", "-o"),
    Setting("verbose", "Show everything that was sent and received.", read_bool, False, switch=True, negative=True),
    Setting(
        "debug",
        "Log what the command does and the messages on the wire, to stderr.",
        read_bool,
        False,
        switch=True,
        negative=True,
    ),
    Setting("config", "Read this .env file in place of the local one.", read_text, metavar="PATH", in_files=False),
)
SETTINGS: Final[dict[str, Setting]] = {setting.name: setting for setting in _ALL}
"""Every setting by name. `default` is what holds when nothing else says."""


@dataclass(frozen=True)
class EnvFile:
    """A configuration file that was read: what it says of our names."""

    path: Path
    values: Mapping[str, str]
    readable_by_others: bool

    @property
    def exposure(self) -> str | None:
        """The warning when it holds credentials that other users can read."""
        secret = {setting.variable_name for setting in SETTINGS.values() if setting.secret}
        if not self.readable_by_others or secret.isdisjoint(self.values):
            return None
        return f"{self.path} holds credentials and others can read it: chmod 600 {self.path}"

    @property
    def unknown(self) -> list[str]:
        """Our names in it that name no setting, or one that may not stand in a file."""
        known = {setting.variable_name for setting in SETTINGS.values() if setting.in_files}
        return sorted(name for name in self.values if name not in known)


@dataclass(frozen=True)
class Resolved:
    """A setting's value and where it comes from.

    `rank`: 0 flag, 1 environment, 2 local file, 3 global file, 4 default.
    """

    setting: Setting
    value: Any
    source: str
    rank: int


@dataclass
class Settings:
    """The settings of one run. A value is read, and can be found faulty, when it is first asked for."""

    flags: Mapping[str, Any] = field(default_factory=dict)  # by name: True, False, a text, or a list of texts
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    folder: Path = field(default_factory=Path.cwd)  # where the search for the local file begins
    home: Path | None = None

    def __getitem__(self, name: str) -> Any:
        return self.resolve(name).value

    def resolve(self, name: str) -> Resolved:
        """The value that holds, and its source.

        Raises:
            UsageFault: the value is not one of this setting; the sentence names where it stands.
        """
        setting = SETTINGS[name]
        for rank, source, given in self._candidates(setting):
            texts = given if isinstance(given, list | tuple) else [given]
            try:
                read: list[Any] = [text if isinstance(text, bool) else setting.read(text) for text in texts]
            except ValueError as error:
                raise UsageFault(f"{source}: {error}") from None
            value: Any = tuple(itertools.chain.from_iterable(read)) if setting.many else read[-1]
            return Resolved(setting, value, source, rank)
        return Resolved(setting, () if setting.many else setting.default, "default", 4)

    def _candidates(self, setting: Setting) -> Iterator[tuple[int, str, Any]]:
        """Rank, source and text of each place that says something, the nearest first; read only as far as wanted."""
        name = setting.variable_name
        if setting.name in self.flags:
            yield 0, f"--{setting.name}", self.flags[setting.name]
        # An empty variable is as good as none: that is how a shell or a container takes one back.
        if setting.variable and self.environ.get(name):
            yield 1, name, self.environ[name]
        if setting.in_files:
            if (file := self.local_file) is not None and file.values.get(name):
                yield 2, f"{name} in {file.path}", file.values[name]
            if (file := self.global_file) is not None and file.values.get(name):
                yield 3, f"{name} in {file.path}", file.values[name]

    def check_flags(self) -> None:
        """Raises UsageFault when a flag that was given makes no sense, whether it is used or not."""
        for name in self.flags:
            self.resolve(name)

    @property
    def waits(self) -> bool:
        """Whether `send` waits for the task: of --wait and --async, the one that stands closer to the caller holds.

        Raises:
            UsageFault: both flags are given.
        """
        asynchronous, wait = self.resolve("async"), self.resolve("wait")
        if asynchronous.rank == wait.rank == 0 and asynchronous.value and wait.value:
            raise UsageFault("--async and --wait exclude each other.")
        if wait.rank <= asynchronous.rank:
            return wait.value is not False
        return not asynchronous.value

    @functools.cached_property
    def local_file(self) -> EnvFile | None:
        """The file of --config, else the nearest `.env` from the working directory upwards.

        Raises:
            UsageFault: --config names no readable file.
        """
        given = self.resolve("config")
        if given.value is not None:
            path = Path(given.value).expanduser()
            if not path.is_file():
                raise UsageFault(f"{given.source}: there is no file {path}")
            return _read(path)
        own = self._global_path
        for folder in (self.folder, *self.folder.parents):
            path = folder / ".env"
            if path != own and path.is_file() and _trusted(path):
                return _read(path)
        return None

    @functools.cached_property
    def global_file(self) -> EnvFile | None:
        """`~/.config/a2a-cli/.env`."""
        path = self._global_path
        return _read(path) if path is not None and path.is_file() else None

    @functools.cached_property
    def _global_path(self) -> Path | None:
        try:
            return (self.home or Path.home()) / GLOBAL_FILE
        except RuntimeError:  # a user without a home directory
            return None


def _read(path: Path) -> EnvFile:
    from dotenv import dotenv_values  # 30 ms, and most runs have no file

    try:
        # Not interpolated: a file that came with somebody's project must not carry off other variables as ${NAME}.
        values = dotenv_values(path, interpolate=False, encoding="utf-8")
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise UsageFault(f"{path} cannot be read: {error}") from None
    ours = {name: value for name, value in values.items() if name.startswith(PREFIX) and value is not None}
    return EnvFile(path, ours, os.name == "posix" and bool(mode & (stat.S_IRGRP | stat.S_IROTH)))


def _trusted(path: Path) -> bool:
    """Not a file that some other user has put into a folder where everybody can, such as /tmp."""
    if os.name != "posix":
        return True
    return path.stat().st_uid == os.geteuid() or not path.parent.stat().st_mode & stat.S_IWOTH


def tell(resolved: Resolved) -> str:
    """A value for people to read; a secret is not told."""
    setting, value = resolved.setting, resolved.value
    if value is None or value == ():
        return setting.unset or "(not set)"
    if setting.name == "svc-param":
        return ", ".join(f"{name}:{REDACTED}" for name, _ in value)
    if setting.secret:
        return REDACTED
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}s"
    if isinstance(value, tuple):
        return ", ".join(value)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
