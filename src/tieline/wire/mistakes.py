"""What a caller has probably done wrong, where a request was refused. Pure.

MISTAKES is all of it: one row for each mistake, with what is to be told in each version. It is looked at when a request
has been refused, never before, and says nothing where it knows nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import islice
from typing import Any, Final, TypeVar, cast

import msgspec

from tieline.errors import InvalidParams
from tieline.types import Role, TaskState

__all__ = ["MISTAKES", "Mistake", "likely_mistake", "telling_mistakes"]

_LIKELY: Final = "Likely mistake:"
TOLD = 3
"""How many mistakes an error names at most."""

Found = Callable[[Any, str], str | None]
"""What is wrong with the value at a place, as "has ..." or "is ..."; the other argument is the field that it lacked."""


class Mistake(msgspec.Struct, frozen=True):
    """`place`: params, message, part or webhook. `wants`: what each version that it is a mistake in has instead."""

    name: str
    place: str
    found: Found
    wants: dict[str, str]


# --- what the rows look for -------------------------------------------------------------------------------------------


def _has(*names: str, without: tuple[str, ...] = (), lacking: str = "") -> Found:
    """One of the members is there, none of `without`, and it is `lacking` that the request was refused for."""

    def found(value: Any, lacked: str) -> str | None:
        if not isinstance(value, dict) or (lacking and lacking != lacked) or any(name in value for name in without):
            return None
        return next((f"has `{name}`" for name in names if name in value), None)

    return found


def _is(type_: type, what: str) -> Found:
    return lambda value, lacked: f"is {what}" if isinstance(value, type_) else None


def _both(first: str, second: str) -> Found:
    def found(value: Any, lacked: str) -> str | None:
        there = isinstance(value, dict) and first in value and second in value
        return f"has `{first}` and `{second}`" if there else None

    return found


_WORDS: Final = frozenset((*Role, *TaskState))


def _old_word(name: str) -> Found:
    """An enum's value that is not written as 1.0 writes it."""

    def found(value: Any, lacked: str) -> str | None:
        word = value.get(name) if isinstance(value, dict) else None
        if not isinstance(word, str) or word in _WORDS:
            return None
        return f"has `{name}` {_short(word)}"

    return found


def _other_word(name: str, *known: str) -> Found:
    """An enum's value that no version knows."""

    def found(value: Any, lacked: str) -> str | None:
        word = value.get(name) if isinstance(value, dict) else None
        if not isinstance(word, str) or re.sub(r"^ROLE_", "", word.upper()) in known:
            return None
        return f"has `{name}` {_short(word)}"

    return found


def _short(word: str) -> str:
    return repr(word if len(word) <= 32 else f"{word[:32]}...")


_CONTENTS: Final = ("text", "raw", "url", "data")


def _many(value: Any, lacked: str) -> str | None:
    there = [name for name in _CONTENTS if isinstance(value, dict) and name in value]
    return f"has {' and '.join(f'`{name}`' for name in there)}" if len(there) > 1 else None


def _schemes(value: Any, lacked: str) -> str | None:
    how = value.get("authentication") if isinstance(value, dict) else None
    old = isinstance(how, dict) and "schemes" in how and "scheme" not in how
    return "has `authentication.schemes`" if old else None


# --- the table --------------------------------------------------------------------------------------------------------

_ONE_CONTENT: Final = "one of text, raw, url or data in each part"
_ONE_TAGGED: Final = "one of text, file or data in each part"
_MESSAGE: Final = 'an object: {"messageId", "role", "parts": [{"text": ...}]}'
_FIRST: Final = 'an object: {"role", "parts": [{"type": "text", "text": ...}]}'

MISTAKES: Final[tuple[Mistake, ...]] = (
    # params
    Mistake(
        "envelope",
        "params",
        _both("jsonrpc", "params"),
        dict.fromkeys(("1.0", "0.3", "0.1"), "what is in its `params`, and no second envelope"),
    ),
    Mistake(
        "message-as-params",
        "params",
        _has("parts", "content", lacking="message"),
        dict.fromkeys(("1.0", "0.3", "0.1"), "that in `message`"),
    ),
    Mistake(
        "no-message",
        "params",
        _has("id", "taskId", without=("message", "request", "parts"), lacking="message"),
        {
            "1.0": "`message` to send one; GetTask reads a task by its `id`",
            "0.3": "`message` to send one; tasks/get reads a task by its `id`",
            "0.1": "`message` beside the `id` to send one; tasks/get reads a task by its `id`",
        },
    ),
    Mistake(
        "tasks-send",
        "params",
        _both("id", "message"),
        {"1.0": "`message.taskId`; `id` beside the message is tasks/send of 0.1"},
    ),
    Mistake(
        "session",
        "params",
        _both("sessionId", "message"),
        {"1.0": "`message.contextId`; `sessionId` is tasks/send of 0.1"},
    ),
    Mistake("request", "params", _has("request", without=("message",)), {"1.0": "`message`"}),
    Mistake(
        "resource-name",
        "params",
        _has("name", "parent", without=("id", "taskId", "message")),
        {"1.0": "the ids alone; paths of ids are protobuf's JSON of 0.3"},
    ),
    Mistake(
        "nested-webhook",
        "params",
        _has("pushNotificationConfig", "config", without=("url", "message")),
        {"1.0": "its `url`, `token` and `authentication` beside `taskId`"},
    ),
    Mistake(
        "webhook-id",
        "params",
        _has("pushNotificationConfigId"),
        {"1.0": "`taskId` for the task and `id` for the webhook"},
    ),
    Mistake(
        "task-id",
        "params",
        _has("id", without=("taskId", "pushNotificationConfigId", "pushNotificationConfig"), lacking="taskId"),
        {"1.0": "`taskId` for the task"},
    ),
    Mistake("id-of-task", "params", _has("taskId", lacking="id"), {"1.0": "`id`", "0.3": "`id`", "0.1": "`id`"}),
    Mistake("status-word", "params", _old_word("status"), {"1.0": "TASK_STATE_... (TASK_STATE_WORKING)"}),
    Mistake("schemes", "webhook", _schemes, {"1.0": "`authentication.scheme`, one string"}),
    # the message
    Mistake(
        "message-string",
        "message",
        _is(str, "a string"),
        {"1.0": _MESSAGE, "0.3": _MESSAGE.replace('{"text"', '{"kind": "text", "text"'), "0.1": _FIRST},
    ),
    Mistake("content", "message", _has("content", without=("parts",)), {"1.0": "`parts`"}),
    Mistake(
        "content-string",
        "message",
        _has("content", "text", lacking="parts"),
        {"0.3": "`parts`, a list", "0.1": "`parts`, a list"},
    ),
    Mistake(
        "text-in-message",
        "message",
        _has("text", without=("parts", "content")),
        {"1.0": '`parts`: [{"text": ...}]'},
    ),
    Mistake("role-word", "message", _old_word("role"), {"1.0": "ROLE_USER or ROLE_AGENT"}),
    Mistake(
        "role-other",
        "message",
        _other_word("role", "USER", "AGENT"),
        {"0.3": "user or agent", "0.1": "user or agent"},
    ),
    Mistake(
        "message-id",
        "message",
        _has("id", without=("messageId", "message_id")),
        {"1.0": "`messageId`", "0.3": "`messageId`"},
    ),
    # parts
    Mistake(
        "part-string",
        "part",
        _is(str, "a string"),
        {"1.0": '{"text": ...}', "0.3": '{"kind": "text", "text": ...}', "0.1": '{"type": "text", "text": ...}'},
    ),
    Mistake("part-root", "part", _has("root", without=_CONTENTS), {"1.0": "what is in it"}),
    Mistake(
        "part-file",
        "part",
        _has("file", "bytes", "uri", without=_CONTENTS),
        {"1.0": "`raw` (base64) or `url`, with `mediaType` and `filename`"},
    ),
    Mistake(
        "part-tag",
        "part",
        _has("type", "kind", without=(*_CONTENTS, "file", "root", "bytes", "uri")),
        {"1.0": "text, raw, url or data", "0.3": "text, file or data beside it", "0.1": "text, file or data beside it"},
    ),
    Mistake("part-many", "part", _many, {"1.0": _ONE_CONTENT, "0.3": _ONE_TAGGED, "0.1": _ONE_TAGGED}),
)
"""All mistakes that are known. Of one place, the likelier stands first."""


# --- telling ----------------------------------------------------------------------------------------------------------


def likely_mistake(data: bytes | msgspec.Raw, error: InvalidParams, version: str) -> InvalidParams:
    """The error, with what its caller has probably done wrong; the error itself where nothing is known.

    `data`: the params, or the body, that `error` was raised for. `version`: the one that was spoken. Violations and
    metadata stay what they were. Raises nothing.
    """
    try:
        told = list(islice(_told(msgspec.json.decode(data), error, _table_of(version)), TOLD))
    except (msgspec.MsgspecError, RecursionError):
        return error
    if not told or _LIKELY in str(error):
        return error
    sentence = f"{str(error).rstrip('.')}. {_LIKELY} {'. '.join(told)}."
    return InvalidParams(sentence, metadata=error.metadata, violations=error.violations)


R = TypeVar("R", bound=Callable[..., Any])


def telling_mistakes(read_params: R) -> R:
    """A dialect's `read_params` whose refusals name the likely mistake, in the words of that dialect."""

    @wraps(read_params)
    def read(dialect: Any, method: Any, params: bytes | msgspec.Raw) -> Any:
        try:
            return read_params(dialect, method, params)
        except InvalidParams as error:
            raise likely_mistake(params, error, dialect.version) from None

    return cast(R, read)


def _table_of(version: str) -> str:
    """0.2 is in the shape of 0.3 from its message/send on; 0.2.0 is 0.1."""
    if version == "0.1" or version.startswith("0.1.") or version == "0.2.0":
        return "0.1"
    return "0.3" if version.startswith(("0.2", "0.3")) else "1.0"


def _told(params: Any, error: InvalidParams, version: str) -> Iterator[str]:
    """Sentences: what concerns the refused field first."""
    fields = [violation.field for violation in error.violations]
    lacked = {v.field.rpartition(".")[2] for v in error.violations if v.description == "is required"}
    lacking = min(lacked, default="")
    found = [
        (path, f"{path} {has}; {version} wants {row.wants[version]}")
        for place, path, value in _places(params)
        for row in MISTAKES
        if row.place == place and version in row.wants and (has := row.found(value, lacking))
    ]
    return (sentence for _, sentence in sorted(found, key=lambda one: not any(_concerns(one[0], f) for f in fields)))


def _concerns(path: str, field: str) -> bool:
    return field == path or field.startswith((f"{path}.", f"{path}["))


def _places(params: Any) -> Iterator[tuple[str, str, Any]]:
    """What there is to look at: kind of place, path and value."""
    yield "params", "params", params
    if not isinstance(params, dict):
        return
    yield "webhook", "params", params
    configuration = params.get("configuration")
    if isinstance(configuration, dict):
        name = "taskPushNotificationConfig"
        yield "webhook", f"configuration.{name}", configuration.get(name)
    name = "message" if "message" in params else "request"
    message = params.get(name)
    yield "message", name, message
    if isinstance(message, dict):
        parts = "parts" if "parts" in message else "content"
        for index, part in enumerate(message[parts] if isinstance(message.get(parts), list) else ()):
            yield "part", f"{name}.{parts}[{index}]", part
