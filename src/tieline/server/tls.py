"""The certificate that a server shows, and whose certificates it asks its callers for."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Tls"]


class Tls(msgspec.Struct, frozen=True):
    """TLS as files in PEM. With `client_ca`, callers have to show a certificate that these authorities have signed."""

    certificate: str  # with the chain behind it
    key: str
    client_ca: str | None = None

    def check(self) -> None:
        """Read everything once. Raises ValueError, which names the file and what is wrong with it."""
        for what, path in (("certificate", self.certificate), ("key", self.key), ("client CA", self.client_ca)):
            if path is not None and not Path(path).is_file():
                raise ValueError(f"there is no {what} at {path}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or str(error)
            raise ValueError(f"{self.certificate} and {self.key} are no certificate and its key: {reason}") from None
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (ssl.SSLError, OSError) as error:
                reason = getattr(error, "reason", None) or str(error)
                raise ValueError(f"{self.client_ca} holds no certificates: {reason}") from None

    def of_uvicorn(self) -> dict[str, Any]:
        """Options of uvicorn's. TLS 1.2 is the least."""
        asked = ssl.CERT_NONE if self.client_ca is None else ssl.CERT_REQUIRED
        return {
            "ssl_certfile": self.certificate,
            "ssl_keyfile": self.key,
            "ssl_ca_certs": self.client_ca,
            "ssl_cert_reqs": asked,
        }

    def of_grpc(self) -> Any:
        """Credentials of grpcio's. Raises OSError."""
        import grpc

        pair = (_read(self.key), _read(self.certificate))
        authorities = None if self.client_ca is None else _read(self.client_ca)
        return grpc.ssl_server_credentials((pair,), authorities, require_client_auth=authorities is not None)


def _read(path: str | os.PathLike[str]) -> bytes:
    return Path(path).read_bytes()


def _no_password() -> str:
    raise ValueError("the key has a password: give one without")
