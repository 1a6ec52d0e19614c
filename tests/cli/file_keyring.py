"""A keyring of the keyring library that keeps its passwords in the JSON file that TIELINE_TEST_KEYRING names.

It takes texts of up to 4000 characters, as some do; with `locked` in the file's name it gives and takes nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordSetError

LIMIT = 4000


class FileKeyring(KeyringBackend):
    """See above."""

    priority = 5.0
    name = "Test keyring"

    @property
    def path(self) -> Path:
        path = Path(os.environ["TIELINE_TEST_KEYRING"])
        if path.with_name("locked").exists():
            raise KeyringLocked("It is locked.")
        return path

    def _all(self) -> dict[str, str]:
        path = self.path
        found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def get_password(self, service: str, username: str) -> str | None:
        return self._all().get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        if len(password) > LIMIT:
            raise PasswordSetError("It is too long.")
        self.path.write_text(json.dumps({**self._all(), f"{service} {username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        kept = self._all()
        del kept[f"{service} {username}"]
        self.path.write_text(json.dumps(kept))
