"""Files in the JSON of 0.3's protobuf definition: the bytes, or the base64 text of them. Pure.

The field is of bytes, and what Python's SDK puts into it is the base64 text of 0.3's schema: in JSON that is base64
twice. JavaScript's SDK puts the bytes themselves there. Nothing tells but the content; where the content misleads, a
mark in the metadata says which it is.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Final

from msgspec.structs import replace

from tieline.types import Metadata
from tieline.wire import v03_rest_schema as schema
from tieline.wire.v03_metadata import NOTHING, carried, carry
from tieline.wire.v03_schema import File, FilePart

__all__ = ["file_in", "file_out", "looks_twice", "once"]

_BASE64: Final = "tieline/base64"
_OF_FILE: Final = {_BASE64: bool}
_IS_BASE64: Final = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?").fullmatch
_IS_TEXT: Final = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|yaml)|.*charset=", re.IGNORECASE).match


def looks_twice(given: bytes, mime_type: str | None) -> bool:
    """Whether the bytes of the field are base64 text. Base64 is what few files consist of, and text is UTF-8."""
    if not given or len(given) % 4 or not _IS_BASE64(given):
        return False
    if mime_type and _IS_TEXT(mime_type):
        try:
            b64decode(given).decode()
        except UnicodeDecodeError:
            return False
    return True


def once(part: schema.Part) -> schema.Part:
    """A part whose file is the bytes themselves, whatever they look like, unless it says otherwise."""
    if part.file is None or not part.file.file_with_bytes or _BASE64 in (part.metadata or {}):
        return part
    return replace(part, metadata={**(part.metadata or {}), _BASE64: False})


def file_in(file: schema.File, metadata: Metadata | None) -> FilePart:
    """A file as one of 0.3's schema."""
    metadata, extra = carried(metadata, _OF_FILE)
    raw = file.file_with_bytes
    if raw is not None and extra.get(_BASE64, looks_twice(raw, file.mime_type)):
        raw = b64decode(raw)
    return FilePart(File(raw, file.file_with_uri, file.mime_type, file.name), metadata)


def file_out(part: FilePart, twice: bool) -> schema.Part:
    """A file of 0.3's schema as one of the definition. `twice`: as base64 text."""
    file = part.file
    raw, extra = file.raw, NOTHING
    if raw is not None:
        raw = b64encode(raw) if twice else raw
        if raw and looks_twice(raw, file.mime_type) is not twice:
            extra = {_BASE64: twice}
    written = schema.File(file.uri, raw, file.mime_type, file.name)
    return schema.Part(file=written, metadata=carry(part.metadata, extra, _OF_FILE))
