"""Hypothesis: JSON of every message, made from the protocol's own table rather than from our classes."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.wire.schema import ENUMS, MESSAGES, Field

__all__ = ["FIXED", "exactly", "free_json", "minimal", "rewritten", "structs", "wire_json"]

FIXED: Final = settings(
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    max_examples=25,
    suppress_health_check=list(HealthCheck),
)
"""The profile of all property tests here."""

_numbers = st.integers() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
free_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
structs = st.dictionaries(st.text(max_size=8), free_json, min_size=1, max_size=3)

_SCALARS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "string": st.text(max_size=8),
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "bytes": st.binary(max_size=12).map(lambda raw: base64.b64encode(raw).decode()),
    "Struct": structs,
    "Value": free_json,
    "Timestamp": st.datetimes().map(lambda moment: moment.isoformat(timespec="milliseconds") + "Z"),
    **{name: st.sampled_from(members) for name, members in ENUMS.items()},
}


def _of_type(type_: str, *, filled: bool) -> st.SearchStrategy[Any]:
    if type_.startswith("["):
        return st.lists(_of_type(type_[1:-1], filled=False), min_size=1, max_size=2)
    if type_.startswith("{"):
        return st.dictionaries(st.text(max_size=8), _of_type(type_[1:-1], filled=False), min_size=1, max_size=2)
    if type_ in _SCALARS:
        scalar = _SCALARS[type_]
        return scalar.filter(bool) if filled and type_ in ("string", "bool") else scalar
    return st.deferred(lambda: wire_json(type_))


_made: dict[str, st.SearchStrategy[dict[str, Any]]] = {}


def wire_json(message: str) -> st.SearchStrategy[dict[str, Any]]:
    """The JSON of a message as ProtoJSON writes it: no field that has implicit presence holds its default."""
    if message not in _made:
        fields = MESSAGES[message]
        plain = [field for field in fields if not field.one_of]
        required = {field.json: _of_type(field.type, filled=False) for field in plain if field.required}
        others = {field.json: _of_type(field.type, filled=not field.optional) for field in plain if not field.required}
        made = st.fixed_dictionaries(required, optional=others)
        union = [field for field in fields if field.one_of]
        if union:
            chosen = st.one_of(
                [st.fixed_dictionaries({field.json: _of_type(field.type, filled=False)}) for field in union]
            )
            made = st.builds(lambda rest, one: {**rest, **one}, made, chosen)
        _made[message] = made
    return _made[message]


_MINIMAL: Final[dict[str, Any]] = {
    "string": "x",
    "bool": True,
    "int32": 1,
    "bytes": "eA==",
    "Struct": {"k": 1},
    "Value": {"k": 1},
    "Timestamp": "2025-10-28T10:30:00.000Z",
    "TaskState": "TASK_STATE_WORKING",
    "Role": "ROLE_USER",
}


def minimal(message: str, *, whole: bool = False) -> dict[str, Any]:
    """The JSON of a message with its required fields only and the first of a union; `whole`: with all but the union."""
    made: dict[str, Any] = {}
    union = False
    for field in MESSAGES[message]:
        if field.one_of and not union:
            union = True
        elif field.one_of or not (field.required or whole):
            continue
        made[field.json] = minimal_of(field.type, whole=whole)
    return made


def minimal_of(type_: str, *, whole: bool = False) -> Any:
    """A valid value of a field's type."""
    if type_.startswith("["):
        return [minimal_of(type_[1:-1], whole=whole)]
    if type_.startswith("{"):
        return {"key": minimal_of(type_[1:-1], whole=whole)}
    return _MINIMAL[type_] if type_ in _MINIMAL else minimal(type_, whole=whole)


def rewritten(message: str, value: Mapping[str, Any], visit: Callable[[str, Field, Any], Mapping[str, Any]]) -> Any:
    """`value` with every field of every message in it replaced by what `visit(message, field, value)` gives.

    Inner messages are rewritten before their field is visited; free-form JSON is left alone.
    """
    fields = {field.json: field for field in MESSAGES[message]}
    out: dict[str, Any] = {}
    for name, item in value.items():
        field = fields[name]
        out.update(visit(message, field, _rewritten_of(field.type, item, visit)))
    return out


def _rewritten_of(type_: str, item: Any, visit: Callable[[str, Field, Any], Mapping[str, Any]]) -> Any:
    if type_.startswith("["):
        return [_rewritten_of(type_[1:-1], inner, visit) for inner in item]
    if type_.startswith("{"):
        return {key: _rewritten_of(type_[1:-1], inner, visit) for key, inner in item.items()}
    return rewritten(type_, item, visit) if type_ in MESSAGES else item


def exactly(value: Any) -> str:
    """JSON as text in which 1 and 1.0, true and 1 differ, and the order of keys does not count."""
    return json.dumps(value, sort_keys=True)
