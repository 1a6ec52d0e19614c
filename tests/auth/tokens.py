"""Files of tokens for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tieline.server.auth.tokens import Token, make_password, make_token, read_tokens, write_tokens

__all__ = ["Tokens", "bearer"]


def bearer(token: str) -> dict[str, str]:
    """As credentials of a Transport."""
    return {"Authorization": f"Bearer {token}"}


class Tokens:
    """A file of tokens that tests write, as `tieline token` does."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tokens.jsonl"
        write_tokens(self.path, ())

    def add(self, principal: str = "ada", *, expired: bool = False, **options: Any) -> str:
        """What its owner shows. `options` are those of `make_token`."""
        shown, token = make_token(principal, **options)
        if expired:
            token = replace(token, expires=datetime.now(UTC) - timedelta(seconds=1))
        self._write([*read_tokens(self.path), token])
        return shown

    def add_password(self, principal: str, password: str, **options: Any) -> None:
        self._write([*read_tokens(self.path), make_password(principal, password, **options)])

    def revoke(self, principal: str) -> None:
        self.keep(lambda token: token.principal != principal)

    def keep(self, which: Callable[[Token], bool]) -> None:
        """Revoke all others."""
        self._write(token for token in read_tokens(self.path) if which(token))

    def _write(self, tokens: Iterable[Token]) -> None:
        write_tokens(self.path, list(tokens))
