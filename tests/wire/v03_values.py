"""Hypothesis: values of 1.0 with metadata that is hard to carry, and JSON of the 0.3 schema."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import strategies as st

from tests.wire.schema import Field, struct_of
from tests.wire.strategies import free_json, rewritten, structs, wire_json
from tieline.types import decode

__all__ = ["JSON_03", "hard_metadata", "spoilt", "values", "without_empty"]

_NAMES = (
    "tieline/filename",
    "tieline/mediaType",
    "tieline/metadata",
    "tieline/role",
    "tieline/tenant",
    "tieline/referenceTaskIds",
    "tieline/pushNotificationConfig",
    "tieline/base64",
    "tieline/historyLength",
    "data_part_compat",
    "user_id",
)
_items = st.none() | st.booleans() | st.integers() | st.text(max_size=4) | structs
hard_metadata: st.SearchStrategy[dict[str, Any]] = (
    st.just({}) | structs | st.dictionaries(st.sampled_from(_NAMES), _items, max_size=3)
)
"""Metadata that is empty, ordinary, or has the names that a dialect carries things under as its own."""


@st.composite
def values(draw: st.DrawFn, message: str) -> Any:
    """Values of 1.0 of a message of the protocol's table."""

    def visit(_: str, field: Field, item: Any) -> dict[str, Any]:
        return {field.json: draw(hard_metadata) if field.json == "metadata" else item}

    made = rewritten(message, draw(wire_json(message)), visit)
    return decode(json.dumps(made).encode(), struct_of(message))


# --- JSON of 0.3 ------------------------------------------------------------------------------------------------------

_text = st.text(max_size=8)
_texts = st.lists(_text, max_size=2)
_metadata = st.none() | structs


def _optional(**fields: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return {name: st.none() | field for name, field in fields.items()}


def _object(
    required: dict[str, st.SearchStrategy[Any]], optional: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(required, optional=optional)


_named = _optional(mimeType=_text, name=_text)
_base64 = st.binary(max_size=12).map(lambda raw: base64.b64encode(raw).decode())
_file = _object({"bytes": _base64}, _named) | _object({"uri": _text}, _named)
_of_part = {"metadata": _metadata}
_parts = st.lists(
    _object({"kind": st.just("text"), "text": _text}, _of_part)
    | _object({"kind": st.just("file"), "file": _file}, _of_part)
    | _object({"kind": st.just("data"), "data": st.dictionaries(_text, free_json, max_size=3)}, _of_part),
    max_size=3,
)
_message = _object(
    {
        "kind": st.just("message"),
        "messageId": _text,
        "role": st.sampled_from(("user", "agent")),
        "parts": _parts,
    },
    {
        **_optional(contextId=_text, taskId=_text, extensions=_texts, referenceTaskIds=_texts),
        "metadata": _metadata,
    },
)
_states = ("submitted", "working", "input-required", "completed", "canceled", "failed", "rejected", "auth-required")
_status = _object({"state": st.sampled_from((*_states, "unknown"))}, _optional(message=_message, timestamp=_text))
_artifact = _object(
    {"artifactId": _text, "parts": _parts},
    _optional(name=_text, description=_text, metadata=structs, extensions=_texts),
)
_task = _object(
    {"kind": st.just("task"), "id": _text, "contextId": _text, "status": _status},
    _optional(artifacts=st.lists(_artifact, max_size=2), history=st.lists(_message, max_size=2), metadata=structs),
)
_of_task = {"taskId": _text, "contextId": _text}
_status_update = _object(
    {"kind": st.just("status-update"), "status": _status, "final": st.booleans(), **_of_task}, _of_part
)
_artifact_update = _object(
    {"kind": st.just("artifact-update"), "artifact": _artifact, **_of_task},
    _optional(append=st.booleans(), lastChunk=st.booleans(), metadata=structs),
)
_push = _object(
    {"url": _text},
    _optional(
        id=_text,
        token=_text,
        authentication=_object(
            {"schemes": st.lists(st.text(min_size=1, max_size=8), max_size=1)}, _optional(credentials=_text)
        ),
    ),
)
_params = _object(
    {"message": _message},
    {
        "configuration": st.none()
        | _object(
            {"blocking": st.booleans()},
            _optional(acceptedOutputModes=_texts, pushNotificationConfig=_push, historyLength=st.integers(0, 9)),
        ),
        "metadata": _metadata,
    },
)

JSON_03: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "MessageSendParams": _params,
    "Task": _task,
    "Message": _message,
    "TaskStatusUpdateEvent": _status_update,
    "TaskArtifactUpdateEvent": _artifact_update,
    "TaskPushNotificationConfig": _object({"taskId": _text, "pushNotificationConfig": _push}, {}),
}
"""By the name in the schema; a field that may be absent is null at times."""


def without_empty(value: Any) -> Any:
    """JSON of 0.3 in which what is empty is absent, and what is derived is left out; free-form JSON stays."""
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {
        name: item if name in ("metadata", "data") else without_empty(item)
        for name, item in value.items()
        if name != "final"
    }
    return {
        name: item for name, item in kept.items() if name == "data" or not (item is None or item in ("", False, []))
    }


@st.composite
def spoilt(draw: st.DrawFn, name: str) -> Any:
    """JSON of 0.3 in which one value, anywhere, is another or is missing."""
    made = draw(JSON_03[name])
    inner: Any = made
    while True:
        names = sorted(inner) if isinstance(inner, dict) else range(len(inner))
        place = draw(st.sampled_from(names))
        deeper = inner[place]
        if not (isinstance(deeper, (dict, list)) and deeper and draw(st.booleans())):
            break
        inner = deeper
    if draw(st.booleans()):
        del inner[place]
    else:
        inner[place] = draw(free_json)
    return made
