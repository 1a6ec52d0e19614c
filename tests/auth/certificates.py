"""Certificates of an authority of their own, made anew for each run of the tests."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "Pair"]

Names = Sequence[tuple[x509.ObjectIdentifier, str] | Sequence[tuple[x509.ObjectIdentifier, str]]]


class Pair:
    """A certificate and its key, as files in PEM."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.certificate = certificate
        self.key = key


class Authority:
    """Issues certificates; `certificate` is its own, as a file in PEM."""

    def __init__(self, folder: Path, name: str = "Tests") -> None:
        self._folder = folder
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._count = 0
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = self._begun(self._subject, self._key, datetime.timedelta(days=1))
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = folder / f"{name}-ca.pem"
        self.certificate.write_bytes(_pem(own.sign(self._key, hashes.SHA256())))

    def issue(self, names: Names | str, *, lasts: datetime.timedelta = datetime.timedelta(days=1)) -> Pair:
        """A certificate for callers and for servers on this machine.

        `names`: its subject from the most general to the most special, several at a time for one that has more than
        one value, or a common name.
        """
        if isinstance(names, str):
            names = [(NameOID.COMMON_NAME, names)]
        subject = x509.Name(
            [
                x509.RelativeDistinguishedName(
                    [x509.NameAttribute(*pair) for pair in ([name] if isinstance(name[1], str) else name)]  # type: ignore[misc]
                )
                for name in names
            ]
        )
        key = ec.generate_private_key(ec.SECP256R1())
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        made = self._begun(subject, key, lasts)
        made = made.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        made = made.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        self._count += 1
        stem = self._folder / f"{self._name}-{self._count}"
        certificate, private = stem.with_suffix(".pem"), stem.with_suffix(".key")
        certificate.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return Pair(certificate, private)

    def _begun(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: datetime.timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        begins = now - datetime.timedelta(days=2) if lasts.total_seconds() < 0 else now - datetime.timedelta(minutes=5)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(now + lasts)
        )

    def trusting(self, shown: Pair | None = None) -> ssl.SSLContext:
        """A caller that trusts this authority, and shows this certificate."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if shown is not None:
            context.load_cert_chain(shown.certificate, shown.key)
        return context


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
