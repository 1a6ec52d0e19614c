"""Callers that show a certificate (mutual TLS): to this server, or to a proxy in front of it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from tieline.card import MutualTlsSecurityScheme, SecurityScheme
from tieline.server.auth.identity import Identity, Refused, Shown

__all__ = ["ClientCertificates"]


class ClientCertificates:
    """A client certificate. Its subject, as a distinguished name (RFC 4514), owns what its caller makes.

    Without `header` the server itself asks for certificates (`tieline serve --tls-client-ca`). With it, a proxy does,
    and says the subject of the one that it has verified in that header: it is believed where it comes from one of
    `proxies`, and the proxy has to overwrite what callers write there. It is taken as it stands: a proxy that writes
    something else than the subject alone, or encodes it, is not understood.
    """

    guessable = False

    def __init__(
        self,
        *,
        header: str | None = None,
        proxies: Iterable[str] = ("127.0.0.0/8", "::1"),
        scopes: Mapping[str, Iterable[str]] | None = None,
        name: str = "mtls",
    ) -> None:
        """`scopes`: those of each subject; `proxies`: addresses or networks. Raises ValueError."""
        self.name = name
        self.header = header
        self._header = None if header is None else header.lower().encode("latin-1")
        self._proxies = [ipaddress.ip_network(proxy, strict=False) for proxy in proxies]
        self._scopes = {subject: frozenset(given) for subject, given in (scopes or {}).items()}
        self.declared = SecurityScheme(mtls_security_scheme=MutualTlsSecurityScheme())
        self.challenge = 'ClientCertificate realm="A2A"'  # no scheme of HTTP's, but a 401 has to name one
        self.generation = 0

    def find(self, shown: Shown) -> bytes | None:
        if self._header is None:
            return None if shown.certificate is None else shown.certificate.encode()
        given = shown.headers.get(self._header)
        if not given:
            return None
        if self._header in shown.repeated:
            raise Refused("The header for the client certificate came more than once.")
        if not self._is_proxy(shown.peer):
            raise Refused("The client certificate was not shown to a proxy that is trusted here.")
        return given

    def _is_proxy(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return any((mapped or found) in network for network in self._proxies)

    def check(self, secret: bytes) -> Identity:
        # Two subjects must never become one: nothing is decoded twice, and nothing replaced.
        try:
            subject = secret.decode()
        except UnicodeDecodeError:
            subject = ""
        if not subject or not subject.isprintable():
            raise Refused("The subject of the client certificate cannot be read.")
        return Identity(f"cert:{subject}", scopes=self._scopes.get(subject, frozenset()))
