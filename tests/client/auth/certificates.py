"""Certificates made for a test: an authority, and what it vouches for."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority"]


class Authority:
    """Signs certificates; `path` is its own, as PEM. Files are in `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self.path = folder / f"{name}.pem"
        own = self._begun(self._name).public_key(self._key.public_key()).add_extension(basic, critical=True)
        signed = own.add_extension(_usage(signs=True), critical=True).sign(self._key, hashes.SHA256())
        self.path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def _begun(self, subject: x509.Name) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        begun = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name)
        return begun.serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + day)

    def certificate(self, name: str, password: str | None = None) -> tuple[Path, Path]:
        """A certificate for 127.0.0.1 and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        signed = (
            self._begun(subject)
            .public_key(key.public_key())
            .add_extension(here, critical=False)
            .add_extension(authority, critical=False)
            .add_extension(_usage(signs=False), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        paths = self._folder / f"{name}.pem", self._folder / f"{name}-key.pem"
        paths[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        locked = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        form = serialization.PrivateFormat.PKCS8
        paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, locked))
        return paths


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
