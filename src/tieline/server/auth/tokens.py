"""A file of those who may call: what each of them shows is kept as a hash.

One line a token, as JSON. Tokens that are made here have 256 bits of chance, for which SHA-256 is enough; passwords
that people choose are kept as scrypt. A file that changes is read again within a second.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

__all__ = ["Token", "TokenFile", "make_password", "make_token"]

log = logging.getLogger("tieline.server")

_LOOK_S: Final = 1.0
_PREFIX: Final = "tieline_"  # that scanners for secrets can tell it
_PRINCIPAL: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}")
_SCRYPT: Final = {"n": 2**14, "r": 8, "p": 1, "maxmem": 64 * 1024 * 1024}
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the file: what somebody may show, and who that is."""

    id: str  # by which people name it: in lists, to revoke it
    principal: str
    hash: str  # "sha256:" and 64 hex digits, or "scrypt:" with salt and key in base64
    kind: Literal["token", "password"] = "token"
    tenant: str = ""
    scopes: tuple[str, ...] = ()
    created: Moment | None = None
    expires: Moment | None = None
    note: str = ""

    @property
    def expired(self) -> bool:
        return self.expires is not None and self.expires.timestamp() <= time.time()


def _checked(principal: str) -> str:
    if not _PRINCIPAL.fullmatch(principal):
        raise ValueError(
            f"{principal!r} cannot be a name: take letters, digits and . _ @ + -, at most 128, without one of"
            " . @ + - at the beginning"
        )
    return principal


def make_token(
    principal: str,
    *,
    tenant: str = "",
    scopes: Iterable[str] = (),
    lasts: timedelta | None = None,
    note: str = "",
) -> tuple[str, Token]:
    """A new token: what its owner shows, which is kept nowhere, and the line for the file. Raises ValueError."""
    shown = _PREFIX + secrets.token_urlsafe(32)
    now = datetime.now(UTC).replace(microsecond=0)
    token = Token(
        id=secrets.token_hex(4),
        principal=_checked(principal),
        hash=_sha256(shown.encode()),
        tenant=tenant,
        scopes=tuple(scopes),
        created=now,
        expires=None if lasts is None else now + lasts,
        note=note,
    )
    return shown, token


def make_password(
    principal: str,
    password: str,
    *,
    tenant: str = "",
    scopes: Iterable[str] = (),
    lasts: timedelta | None = None,
    note: str = "",
) -> Token:
    """The line for somebody who logs in by name and password. Raises ValueError."""
    if not password:
        raise ValueError("a password must not be empty")
    salt = secrets.token_bytes(16)
    now = datetime.now(UTC).replace(microsecond=0)
    return Token(
        id=secrets.token_hex(4),
        principal=_checked(principal),
        hash=_scrypt(password.encode(), salt),
        kind="password",
        tenant=tenant,
        scopes=tuple(scopes),
        created=now,
        expires=None if lasts is None else now + lasts,
        note=note,
    )


def _sha256(shown: bytes) -> str:
    return "sha256:" + hashlib.sha256(shown).hexdigest()


def _scrypt(password: bytes, salt: bytes) -> str:
    key = hashlib.scrypt(password, salt=salt, dklen=32, **_SCRYPT)
    return f"scrypt:{base64.b64encode(salt).decode()}:{base64.b64encode(key).decode()}"


_NOBODYS: Final = _scrypt(b"-", bytes(16))


class TokenFile:
    """A file of tokens, read again when it has changed. Without the file nobody has a token.

    Raises ValueError when it is not there or a line of it is none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.generation = 0
        self._looked = 0.0
        self._stamp: tuple[int, int, int] | None = None
        self._tokens: dict[str, Token] = {}  # by hash
        self._passwords: dict[str, Token] = {}  # by principal
        self._load()

    def _load(self) -> None:
        stamp = self._stamped()
        tokens = read_tokens(self.path)
        self._stamp = stamp
        self._tokens = {token.hash: token for token in tokens if token.kind == "token"}
        self._passwords = {token.principal: token for token in tokens if token.kind == "password"}

    def _stamped(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError:
            return self._stamp
        return found.st_mtime_ns, found.st_size, found.st_ino

    def look(self, *, at_once: bool = False) -> None:
        """Read the file again if it has changed; one that cannot be read leaves what was known, a lost one nothing."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S and not at_once:
            return
        self._looked = now
        stamp = self._stamped()
        if stamp == self._stamp:
            return
        if stamp is None:
            self._stamp, self._tokens, self._passwords = None, {}, {}
            log.error("the tokens in %s are gone: nobody has one", self.path)
            self.generation += 1
            return
        try:
            self._load()
        except ValueError as error:
            self._stamp = stamp
            log.error("%s; the tokens that were known before stay valid", error)
        else:
            log.info("read %d tokens anew", len(self._tokens) + len(self._passwords))
        self.generation += 1

    def of_token(self, shown: bytes) -> Token | None:
        """Whose token it is, or was: found by its hash, so that no time tells how near a guess was."""
        self.look()
        digest = _sha256(shown)
        token = self._tokens.get(digest)
        if token is None:
            self.look(at_once=True)  # it may have been made a moment ago
            token = self._tokens.get(digest)
        return token if token is not None and hmac.compare_digest(token.hash, digest) else None

    def of_name(self, principal: str) -> Token | None:
        """The line of who logs in by a password (`is_password`)."""
        self.look(at_once=principal not in self._passwords)
        return self._passwords.get(principal)


def is_password(token: Token | None, password: bytes) -> bool:
    """Whether it is the one of this line. Takes some 50 ms, where there is no such line, too."""
    stored = _NOBODYS if token is None else token.hash
    digest = _scrypt(password, base64.b64decode(stored.split(":")[1]))
    return hmac.compare_digest(stored, digest) and token is not None


_HASH: Final = {
    "token": re.compile(r"sha256:[0-9a-f]{64}"),
    "password": re.compile(r"scrypt:[A-Za-z0-9+/]{22}==:[A-Za-z0-9+/]{43}="),
}


def read_tokens(path: Path) -> list[Token]:
    """The tokens of a file. Raises ValueError, which names the line and nothing of what is in it."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        reason = error.strerror or str(error)
        words = f"the tokens in {path} cannot be read: {reason}. Make one: tieline token create NAME"
        raise ValueError(words) from None
    tokens = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            token = msgspec.json.decode(line, type=Token)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ValueError(f"line {number} of {path} is no token: make them with tieline token create") from None
        if not _HASH[token.kind].fullmatch(token.hash):
            raise ValueError(f"line {number} of {path} holds no hash: make tokens with tieline token create")
        if not _PRINCIPAL.fullmatch(token.principal):
            raise ValueError(f"line {number} of {path} names nobody: make tokens with tieline token create")
        tokens.append(token)
    return tokens


def write_tokens(path: Path, tokens: Iterable[Token]) -> None:
    """Write a file of tokens in place of the one that is there, for its owner alone to read. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # 0600
    try:
        with os.fdopen(number, "wb") as file:
            for token in tokens:
                file.write(msgspec.json.encode(token) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
