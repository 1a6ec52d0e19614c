"""The subject of a certificate as RFC 4514 writes it, read from DER: the same string, whoever has done the TLS."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

__all__ = ["subject_of", "subject_of_pem"]

_SHORT: Final = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("550409"): "STREET",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("0992268993f22c640101"): "UID",
    bytes.fromhex("0992268993f22c640119"): "DC",
}
"""Object identifiers, and the names that RFC 4514 §3 has for them."""

_TEXT: Final = {
    0x0C: "utf-8",
    0x12: "ascii",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
"""Types of strings, and how each writes its characters (X.690 §8.23)."""

_VERSION: Final = 0xA0


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER (RFC 5280 §4.1.2.6). Raises ValueError when it is none."""
    try:
        ((_, whole, _),) = _values(certificate)
        fields = [value for tag, value, _ in _values(next(_values(whole))[1]) if tag != _VERSION]
        # serialNumber, signature, issuer, validity, subject
        names = [[_pair(value) for _, value, _ in _values(rdn)] for _, rdn, _ in _values(fields[4])]
    except (IndexError, ValueError, StopIteration) as error:
        raise ValueError("this is no certificate") from error
    return ",".join("+".join(pairs) for pairs in reversed(names))


@lru_cache(maxsize=256)
def subject_of_pem(certificate: str) -> str:
    """The same of a certificate in PEM."""
    return subject_of(ssl.PEM_cert_to_DER_cert(certificate))


def _values(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The values that stand one behind the other: tag, content, and all of it."""
    at = 0
    while at < len(data):
        tag, length, start = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, start = int.from_bytes(data[start : start + size], "big"), start + size
        if start + length > len(data):
            raise ValueError("a value is cut off")
        yield tag, data[start : start + length], data[at : start + length]
        at = start + length


def _pair(attribute: bytes) -> str:
    (_, kind, _), (tag, content, whole) = _values(attribute)
    short = _SHORT.get(kind)
    if short is None or tag not in _TEXT:
        return f"{short or _dotted(kind)}=#{whole.hex()}"
    return f"{short}={_escaped(content.decode(_TEXT[tag]))}"


def _dotted(kind: bytes) -> str:
    """An object identifier with its dots (X.690 §8.19)."""
    numbers = [0]
    for byte in kind:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(0)
    first = min(numbers[0] // 40, 2)
    return ".".join(str(number) for number in (first, numbers[0] - 40 * first, *numbers[1:-1]))


def _escaped(value: str) -> str:
    """A value, as RFC 4514 §2.4 has it."""
    escaped = "".join("\\" + letter if letter in ',+"\\<>;' else letter for letter in value)
    if escaped[:1] in (" ", "#"):
        escaped = "\\" + escaped
    return escaped[:-1] + "\\ " if escaped.endswith(" ") and len(value) > 1 else escaped
