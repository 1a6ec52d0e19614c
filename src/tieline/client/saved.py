"""Credentials that outlive a process, by the origin of the agent that they are for: in the system's keyring where there
is one, else in a file that its owner alone can read.

    ~/.config/tieline/credentials.json      0600; of what is in the keyring it says only that it is there
    ~/.config/tieline/*.lock                 held while the file, or a token of one agent, is renewed

The folder is the user's own configuration folder on other systems. Files are created with their mode and replaced as a
whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Literal

import msgspec

from tieline.client.credentials import (
    ApiKey,
    Basic,
    Bearer,
    ClientCredentials,
    Credential,
    OAuthToken,
    TokenSet,
    TokensKept,
)
from tieline.client.discovery import card_urls, without_user
from tieline.client.origin import origin_of
from tieline.errors import AuthorizationFailed

if TYPE_CHECKING:
    from tieline.client.vault import Vault

__all__ = ["Login", "SavedAgent", "SavedCredentials", "SavedFault", "saved_credentials"]

Kind = Literal["api-key", "bearer", "basic", "client-credentials", "authorization-code", "device-code"]

_FILE: Final = "credentials.json"
_VERSION: Final = 1
_LOCK_S: Final = 30.0
_LOOK_S: Final = 0.05


class SavedFault(AuthorizationFailed):
    """Credentials cannot be read or kept; the sentence says why, and nothing of them."""


class Login(msgspec.Struct, frozen=True, omit_defaults=True):
    """One credential as it is kept. `secret` is the key, token, password or client secret."""

    kind: Kind
    scheme: str = ""  # its name in the card; "" where the card declares none
    secret: str = ""
    user: str = ""
    header: str = ""
    client_id: str = ""
    issuer: str = ""
    token_url: str = ""
    revocation_url: str = ""
    secret_in_body: bool = False
    scopes: tuple[str, ...] = ()  # that were asked for
    resource: str = ""
    audience: str = ""
    tokens: TokenSet | None = None

    def __repr__(self) -> str:
        return f"Login({self.kind!r}, scheme={self.scheme!r})"

    @property
    def oauth(self) -> bool:
        """Whether it is one that fetches tokens."""
        return self.kind in ("client-credentials", "authorization-code", "device-code")

    def credential(self, kept: TokensKept | None = None) -> Credential:
        """What `connect` takes. `kept`: where its tokens are renewed."""
        scheme = self.scheme or None
        if self.kind == "api-key":
            return ApiKey(self.secret, scheme, self.header or None)
        if self.kind == "bearer":
            return Bearer(self.secret, scheme)
        if self.kind == "basic":
            return Basic(self.user, self.secret, scheme)
        if self.kind == "client-credentials":
            return ClientCredentials(
                client_id=self.client_id,
                client_secret=self.secret,
                issuer=self.issuer or None,
                token_url=self.token_url or None,
                scopes=self.scopes,
                resource=self.resource or None,
                audience=self.audience or None,
                secret_in_body=self.secret_in_body,
                scheme=scheme,
                kept=kept,
            )
        tokens = self.tokens
        if tokens is None:
            raise SavedFault("there is no token in what was saved: sign in again")
        return OAuthToken(
            client_id=self.client_id,
            client_secret=self.secret or None,
            token_url=self.token_url,
            resource=self.resource or None,
            audience=self.audience or None,
            secret_in_body=self.secret_in_body,
            scheme=scheme,
            kept=kept,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            expires_at=tokens.expires_at,
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """All that must not be seen."""
        tokens = self.tokens
        found = (self.secret, *(() if tokens is None else (tokens.access_token, tokens.refresh_token or "")))
        return tuple(filter(None, found))


class SavedAgent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept for one agent. `name` is what its card said."""

    origin: str
    name: str = ""
    logins: tuple[Login, ...] = ()


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An agent in the file."""

    agent: SavedAgent | None = None
    keyring: bool = False  # it is there


class _File(msgspec.Struct, frozen=True):
    version: int
    agents: dict[str, _Entry] = {}


_read_file = msgspec.json.Decoder(_File).decode
_read_agent = msgspec.json.Decoder(SavedAgent).decode


class SavedCredentials:
    """The credentials of this user. All raise SavedFault.

    `folder` is None for the user's configuration folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._vault: Vault | None = None
        self._looked = False

    @property
    def path(self) -> Path:
        """The file."""
        if self._folder is None:
            from platformdirs import user_config_path

            self._folder = user_config_path("tieline", appauthor=False)
        return self._folder / _FILE

    def origins(self) -> list[str]:
        """The agents that there is something for, by origin."""
        return sorted(self._read().agents)

    def load(self, origin: str) -> SavedAgent | None:
        """What is kept for the agent at an origin; None is nothing."""
        return self._of(origin, self._read().agents.get(origin))

    def _of(self, origin: str, entry: _Entry | None) -> SavedAgent | None:
        if entry is None or not entry.keyring:
            return None if entry is None else entry.agent
        text = self._from_vault(origin)
        if text is None:
            return None
        try:
            return _read_agent(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise SavedFault(f"What the keyring keeps for {origin} is not what was saved: sign in again.") from None

    def save(self, agent: SavedAgent) -> str:
        """Keep, in place of what was there; gives where: the keyring's name, or the path of the file."""
        self._usable()  # slow to load: not while others wait
        with self._editing() as agents:
            return self._keep(agents, agent)

    def renew(self, origin: str, scheme: str, tokens: TokenSet) -> None:
        """Keep other tokens for one login; nothing where the user has signed out meanwhile."""
        self._usable()
        with self._editing() as agents:
            agent = self._of(origin, agents.get(origin))
            if agent is not None:
                logins = tuple(
                    msgspec.structs.replace(each, tokens=tokens) if each.scheme == scheme else each
                    for each in agent.logins
                )
                self._keep(agents, msgspec.structs.replace(agent, logins=logins))

    def _keep(self, agents: dict[str, _Entry], agent: SavedAgent) -> str:
        vault = self._usable()
        if vault is not None and _put(vault, agent):
            agents[agent.origin] = _Entry(keyring=True)
            return vault.name
        agents[agent.origin] = _Entry(agent)
        return str(self.path)

    def where(self, origin: str) -> str:
        """Where what is kept for an agent is: the keyring's name, or the path of the file."""
        entry = self._read().agents.get(origin)
        if entry is None or not entry.keyring:
            return str(self.path)
        vault = self._usable()
        return "the keyring" if vault is None else vault.name

    def remove(self, origin: str) -> bool:
        """Forget what is kept for an agent; whether there was anything."""
        with self._editing() as agents:
            entry = agents.pop(origin, None)
        if entry is not None and entry.keyring:
            self._from_vault(origin, remove=True)
        return entry is not None

    def kept(self, origin: str, scheme: str) -> TokensKept:
        """Where the tokens of one login are renewed, by one process at a time."""
        return _Kept(self, origin, scheme)

    # --- the keyring --------------------------------------------------------------------------------------------------

    def _usable(self) -> Vault | None:
        if not self._looked:
            self._looked = True
            try:
                from tieline.client.vault import usable_vault  # an extra, and slow to load
            except ImportError:
                return None
            self._vault = usable_vault()
        return self._vault

    def _from_vault(self, origin: str, *, remove: bool = False) -> str | None:
        vault = self._usable()
        if vault is None:
            raise SavedFault(
                f"The credentials for {origin} are in the keyring, and there is none here: unlock it, install"
                " 'tieline[auth]', or sign in again."
            )
        from tieline.client.vault import VaultFault

        try:
            if remove:
                vault.remove(origin)
                return None
            return vault.get(origin)
        except VaultFault as error:
            raise SavedFault(f"The keyring does not give what it keeps for {origin} ({error}).") from None

    # --- the file -----------------------------------------------------------------------------------------------------

    def _read(self) -> _File:
        try:
            with open(self.path, "rb", opener=_without_waiting) as file:
                if os.name == "posix":
                    found = os.fstat(file.fileno())
                    if not stat.S_ISREG(found.st_mode):
                        raise SavedFault(f"{self.path} is no file: remove it, and sign in again.")
                    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                        raise SavedFault(f"Others can read {self.path}, which holds credentials: chmod 600 {self.path}")
                    if found.st_uid != os.geteuid():
                        raise SavedFault(f"{self.path} is another user's: credentials are not read from it.")
                read = _read_file(file.read())
        except FileNotFoundError:
            return _File(_VERSION)
        except OSError as error:
            raise SavedFault(f"{self.path} cannot be read: {error.strerror}.") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise SavedFault(f"{self.path} is not what was saved there: remove it, and sign in again.") from None
        if read.version != _VERSION:
            raise SavedFault(f"{self.path} is of another version of tieline.")
        return read

    @contextmanager
    def _editing(self) -> Iterator[dict[str, _Entry]]:
        """The agents in the file, to be changed; written back at the end, also where the block returns."""
        with _locked(self._lock_path("credentials")):
            agents = dict(self._read().agents)
            yield agents
            self._write(_File(_VERSION, agents))

    def _write(self, content: _File) -> None:
        path = self.path
        name: str | None = None
        try:
            descriptor, name = tempfile.mkstemp(prefix=".credentials-", dir=path.parent)  # 0600
            with os.fdopen(descriptor, "wb") as out:
                out.write(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
                out.flush()
                os.fsync(out.fileno())
            os.replace(name, path)
            name = None
        except OSError as error:
            raise SavedFault(f"{path} cannot be written: {error.strerror}.") from None
        finally:
            if name is not None:
                os.unlink(name)

    def _lock_path(self, name: str) -> Path:
        folder = self.path.parent
        try:
            for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
                missing.mkdir(mode=0o700, exist_ok=True)
            if os.name == "posix" and folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise SavedFault(f"Others can write to {folder}: credentials are not kept there. chmod 700 {folder}")
        except OSError as error:
            raise SavedFault(f"{folder} cannot be made: {error.strerror}.") from None
        return folder / f"{name}.lock"

    @asynccontextmanager
    async def renewing(self, origin: str) -> AsyncIterator[None]:
        """Keep other processes from renewing tokens of the same agent. Waits up to 30 s, then goes on all the same."""
        mark = hashlib.sha256(origin.encode()).hexdigest()[:16]
        lock = _opened(self._lock_path(f"renewal-{mark}"))
        try:
            for _ in range(int(_LOCK_S / _LOOK_S)):
                try:
                    _try_lock(lock)
                    break
                except OSError:
                    await asyncio.sleep(_LOOK_S)
            yield
        finally:
            lock.close()


def saved_credentials(ref: str) -> tuple[Credential, ...]:
    """What `tieline auth login` has kept for the agent at a host or URL, for `connect`; () is nothing.

    Tokens are renewed where they are kept, as the command does it.

    Raises:
        CardNotFound: `ref` is no host and no URL.
        SavedFault: what is kept cannot be read.
    """
    plain, _ = without_user(ref)
    origin = origin_of(card_urls(str(plain))[0])
    saved = SavedCredentials()
    agent = None if origin is None else saved.load(origin)
    logins = () if agent is None else agent.logins
    return tuple(
        login.credential(saved.kept(agent.origin, login.scheme) if login.oauth else None) for login in logins if agent
    )


def _put(vault: Vault, agent: SavedAgent) -> bool:
    """Whether the keyring has taken it: some take short texts alone. What it had before is not left behind."""
    from tieline.client.vault import VaultFault

    try:
        vault.set(agent.origin, msgspec.json.encode(agent).decode())
    except VaultFault:
        with suppress(VaultFault):
            vault.remove(agent.origin)
        return False
    return True


class _Kept:
    """The tokens of one login. See TokensKept."""

    def __init__(self, saved: SavedCredentials, origin: str, scheme: str) -> None:
        self._saved = saved
        self._origin = origin
        self._scheme = scheme

    def load(self) -> TokenSet | None:
        login = self._login()
        return None if login is None else login.tokens

    def save(self, tokens: TokenSet) -> None:
        self._saved.renew(self._origin, self._scheme, tokens)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        async with self._saved.renewing(self._origin):
            yield

    def _login(self) -> Login | None:
        agent = self._saved.load(self._origin)
        logins = () if agent is None else agent.logins
        return next((each for each in logins if each.scheme == self._scheme), None)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes, for as long as an edit of the file takes."""
    lock = _opened(path)
    try:
        _lock(lock)
        yield
    except BlockingIOError:
        raise SavedFault(f"{path} is held by another process.") from None
    finally:
        lock.close()


def _without_waiting(name: str, flags: int) -> int:
    """Open a file that may turn out to be a pipe, which would be waited for until somebody writes to it."""
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def _opened(path: Path) -> IO[bytes]:
    try:
        return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))
    except OSError as error:
        raise SavedFault(f"{path} cannot be opened: {error.strerror}.") from None


if os.name == "nt":  # pragma: no cover
    import msvcrt

    def _lock(lock: IO[bytes]) -> None:
        msvcrt.locking(lock.fileno(), msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined,unused-ignore]

    def _try_lock(lock: IO[bytes]) -> None:
        msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
else:
    import fcntl

    def _lock(lock: IO[bytes]) -> None:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX)

    def _try_lock(lock: IO[bytes]) -> None:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
