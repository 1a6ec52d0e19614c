"""What 0.3 has no field for: carried as metadata of the object that it belongs to, and taken out again. Pure.

docs/dialects.md has the table of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tieline.types import Metadata

__all__ = [
    "NOTHING",
    "OF_CONFIG",
    "OF_DATA",
    "OF_LIST",
    "OF_MESSAGE",
    "OF_PARAMS",
    "OF_PART",
    "OF_SEND",
    "TENANT",
    "WRAPPED",
    "carried",
    "carry",
    "data_carried",
    "present",
]

_WHOLE: Final = "tieline/metadata"
WRAPPED: Final = "data_part_compat"
"""The official SDK's mark of a data part that is no object: {"value": it}."""

TENANT: Final = "tieline/tenant"
OF_PART: Final = {"tieline/filename": str, "tieline/mediaType": str}
OF_DATA: Final = {**OF_PART, WRAPPED: bool}
OF_MESSAGE: Final = {"tieline/role": str}
OF_SEND: Final = {TENANT: str, "tieline/pushNotificationConfig": dict}
OF_PARAMS: Final = {TENANT: str}
OF_LIST: Final = {TENANT: str, "tieline/pageSize": int, "tieline/pageToken": str}
OF_CONFIG: Final = {TENANT: str, "tieline/nextPageToken": str}
"""What may be carried at each place, with the type that it has to have."""

NOTHING: Final[Metadata] = {}


def carry(metadata: Metadata | None, extra: Metadata, names: Mapping[str, type]) -> Metadata | None:
    """`metadata` with what a dialect has no field for; `names` are all that may be carried at this place.

    Metadata that has such a name of its own, or is empty while something is carried, goes whole under one name, so that
    `carried` gives back what was there.
    """
    if metadata is None:
        return extra or None
    if (extra and not metadata) or _WHOLE in metadata or any(name in metadata for name in names):
        return {_WHOLE: metadata, **extra}
    return {**metadata, **extra} if extra else metadata


def carried(metadata: Metadata | None, names: Mapping[str, type]) -> tuple[Metadata | None, Metadata]:
    """The reverse: metadata without what was carried, and what was; what has not the type it should stays metadata."""
    if not metadata:
        return metadata, NOTHING
    if _WHOLE not in metadata and not any(name in metadata for name in names):
        return metadata, NOTHING
    extra = {name: metadata[name] for name, type_ in names.items() if type(metadata.get(name)) is type_}
    rest = {name: value for name, value in metadata.items() if name not in extra}
    whole = rest.get(_WHOLE)
    if isinstance(whole, dict):
        del rest[_WHOLE]
        return {**whole, **rest}, extra
    return rest or None, extra


def data_carried(data: Any, metadata: Metadata | None) -> tuple[Any, Metadata | None, Metadata]:
    """The data of a part, its metadata, and what was carried in that. Data that was put into an object is out again."""
    metadata, extra = carried(metadata, OF_DATA)
    if extra.get(WRAPPED) is True and len(data) == 1 and "value" in data:
        return data["value"], metadata, extra
    if WRAPPED in extra:
        metadata = {**(metadata or {}), WRAPPED: extra[WRAPPED]}
    return data, metadata, extra


def present(values: Metadata) -> Metadata:
    """The members that are not None."""
    return {name: value for name, value in values.items() if value is not None}
