"""Steps for parts: what peers of any version call text, files and data. Pure."""

from __future__ import annotations

from typing import Any

from tieline.types import _protojson
from tieline.wire.quirks_document import CONTENTS, JsonObject

__all__ = [
    "FILENAME",
    "MEDIA_TYPE",
    "bytes_or_uri",
    "compat",
    "data_part",
    "file",
    "file_name",
    "one_content",
    "own_metadata",
    "root",
    "tag",
]


def _empty(value: JsonObject) -> bool:
    """Whether a part holds nothing by the names of 1.0."""
    return not any(name in value for name in CONTENTS)


def root(value: JsonObject) -> JsonObject:
    """A part in the wrapper of Python's SDK of 0.2 and 0.3."""
    return value.within("root") if _empty(value) and isinstance(value.get("root"), dict) else value


def tag(value: JsonObject) -> JsonObject:
    """What a part says that it is: noted, as protobuf's parts have none. In a request it has to be a kind of part."""
    for name in ("type", "kind"):
        if isinstance(value.get(name), str):
            value.tag = value[name]
            if value.doc.request and value.tag.lower() not in ("text", "file", "data", "raw", "url"):
                value.refused = (name, f"is {value.tag!r}, must be text, file or data")
                for content in (*CONTENTS, "file"):
                    value.pop(content, None)
    return value


def file(value: JsonObject) -> JsonObject:
    """0.1 to 0.3: the content of a file stands in `file`."""
    if _empty(value) and isinstance(value.get("file"), dict):
        value.lift("file")
    return value


def bytes_or_uri(value: JsonObject) -> JsonObject:
    """The content of a file by the names of 0.1 to 0.3."""
    if not _empty(value):
        return value
    for new, olds in (("raw", ("bytes", "fileWithBytes")), ("url", ("uri", "fileWithUri"))):
        for old in olds:
            if old in value and new not in value:
                value.move(old, new)
    value.update(_protojson({"raw": value["raw"]}) if "raw" in value else {})  # its base64, as types.py has it
    return value


def file_name(value: JsonObject) -> JsonObject:
    """The name of a file, whether it was in `file` or not."""
    if "filename" not in value and "name" in value and ("raw" in value or "url" in value):
        value.move("name", "filename")
    return value


def one_content(value: JsonObject) -> JsonObject:
    """Of text, raw and url, empty ones beside another are those that a writer did not leave out."""
    there = [name for name in CONTENTS if name in value]
    if len(there) > 1 and "data" in value and value["data"] is None:
        del value["data"]
        there.remove("data")
    for name in there:
        if len(there) > 1 and name != "data" and value[name] == "" and any(value[other] != "" for other in there):
            del value[name]
            there = [other for other in there if other != name]
    return value


def _old(value: JsonObject) -> bool:
    """Whether a part is of a version before 1.0: only there is metadata read as anything else."""
    return value.tag is not None or value.doc.protobuf


def data_part(value: JsonObject) -> JsonObject:
    """Protobuf's definition of 0.3 has the object in a message of its own."""
    data = value.get("data")
    if value.doc.protobuf and value.tag is None and type(data) is dict and len(data) == 1 and "data" in data:
        value["data"] = data["data"]
    return value


def compat(value: JsonObject) -> JsonObject:
    """Before 1.0 data was an object: what is none was put into one."""
    metadata, data = value.get("metadata"), value.get("data")
    if type(metadata) is not dict or type(data) is not dict:
        return value
    if _old(value) and metadata.get("data_part_compat") is True and len(data) == 1 and "value" in data:
        value["data"] = data["value"]
        _without(value, metadata, "data_part_compat")
    return value


FILENAME, MEDIA_TYPE = "tieline/filename", "tieline/mediaType"
"""Metadata of a part whose older form has no field for them."""


def own_metadata(value: JsonObject) -> JsonObject:
    """What text and data had no field for before 1.0 is carried as metadata."""
    metadata = value.get("metadata")
    if _old(value) and type(metadata) is dict:
        for key, name in ((FILENAME, "filename"), (MEDIA_TYPE, "mediaType")):
            if isinstance(metadata.get(key), str):
                value.setdefault(name, metadata[key])
                _without(value, metadata, key)
    return value


def _without(value: JsonObject, metadata: dict[str, Any], key: str) -> None:
    del metadata[key]
    if not metadata:
        value.pop("metadata", None)
