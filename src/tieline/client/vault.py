"""The system's keyring: macOS Keychain, Windows Credential Locker, Secret Service or KWallet (extra `auth`)."""

from __future__ import annotations

from typing import Final

try:
    import keyring
    from keyring.backend import KeyringBackend
except ImportError as error:
    raise ImportError(f"the keyring needs: pip install 'tieline[auth]' ({error})") from error

__all__ = ["Vault", "VaultFault", "usable_vault"]

_SERVICE: Final = "tieline"
_NOT_SAFE: Final = ("keyring.backends.fail", "keyring.backends.null", "keyrings.alt.")
"""Backends that keep nothing, or keep it less well than a file of one's own."""


class VaultFault(Exception):
    """The keyring did not do what it was asked for: it is locked, full, or does not take so much."""


class Vault:
    """Texts by name in the keyring. All raise VaultFault."""

    def __init__(self, backend: KeyringBackend) -> None:
        self._backend = backend

    @property
    def name(self) -> str:
        """What the system calls it."""
        return str(self._backend.name)

    def get(self, name: str) -> str | None:
        """The text; None when there is none."""
        try:
            return self._backend.get_password(_SERVICE, name)
        except Exception as error:  # a backend is somebody else's code, and lets through what its system raises
            raise VaultFault(f"{self.name}: {type(error).__name__}") from None

    def set(self, name: str, text: str) -> None:
        """Keep a text, in place of the one that was there."""
        try:
            self._backend.set_password(_SERVICE, name, text)
        except Exception as error:  # a backend is somebody else's code, and lets through what its system raises
            raise VaultFault(f"{self.name}: {type(error).__name__}") from None

    def remove(self, name: str) -> None:
        """Forget a text; nothing when there is none."""
        try:
            if self._backend.get_password(_SERVICE, name) is not None:
                self._backend.delete_password(_SERVICE, name)
        except Exception as error:  # a backend is somebody else's code, and lets through what its system raises
            raise VaultFault(f"{self.name}: {type(error).__name__}") from None


def usable_vault() -> Vault | None:
    """The keyring of this system; None when there is none that is safe."""
    try:
        backend = keyring.get_keyring()
        usable = backend.priority > 0
    except Exception:  # see Vault
        return None
    return Vault(backend) if usable and not type(backend).__module__.startswith(_NOT_SAFE) else None
