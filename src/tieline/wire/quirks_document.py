"""A JSON document on its way to the canonical form, and the steps that are of no subject in particular. Pure.

A step looks at one object and brings one habit of peers in it to the canonical form; quirks.py says which there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Union

import msgspec

from tieline.types import Part

__all__ = ["CONTENTS", "Document", "JsonObject", "Step", "id_of_task", "letters", "no_empty", "no_list", "renamed"]


class Document:
    """What is known of all of a document: who wrote it, as far as its shape tells."""

    __slots__ = ("first", "protobuf", "request")

    def __init__(self, *, request: bool, protobuf: bool) -> None:
        self.request = request
        self.protobuf = protobuf  # it is protobuf's JSON of 0.3
        self.first = False  # it is a request of 0.1


class JsonObject(dict[str, Any]):
    """A JSON object on its way to the canonical form of `type_`, and what its members were called when it came."""

    __slots__ = ("at", "doc", "given", "refused", "root", "tag", "type_")

    def __init__(self, value: dict[str, Any], type_: type[Any], doc: Document, *, root: bool = False) -> None:
        super().__init__(value)
        self.type_: Any = type_
        self.doc = doc
        self.root = root  # the whole document, or what was wrapped in it
        self.at = ""  # where it stood inside of what stands here in the canonical form
        self.given: dict[str, str] = {}  # canonical name: path as given; "^" in front: beside this object, not in it
        self.tag: str | None = None  # what `kind` or `type` said
        self.refused: tuple[str, str] | None = None  # the member for which nothing can be made of it, and why

    def move(self, old: str, new: str) -> None:
        """Call a member by another name."""
        self[new] = self.pop(old)
        self.given[new] = self.given.pop(old, old)

    def lift(self, name: str) -> None:
        """Put the members of an inner object here, where there is none of that name."""
        for inner, item in self.pop(name).items():
            if inner not in self:
                self[inner] = item
                self.given[inner] = f"{name}.{inner}"

    def within(self, name: str) -> JsonObject:
        """The inner object in place of this one."""
        inner = JsonObject(self[name], self.type_, self.doc, root=self.root)
        inner.at = f"{self.at}.{name}" if self.at else name
        return inner

    def inner(self, name: str, type_: type[Any]) -> JsonObject | None:
        """A member that is an object, as one of `type_`."""
        item = self.get(name)
        if type(item) is dict:
            item = self[name] = JsonObject(item, type_, self.doc)
        return item if isinstance(item, JsonObject) else None


Step = Callable[[JsonObject], JsonObject]
"""Brings one habit to the canonical form; what comes back is the object, or another in its place."""


# --- steps for any object ---------------------------------------------------------------------------------------------


def renamed(new: str, *olds: str, of: type | tuple[type, ...] = object) -> Step:
    """A member under another name, if its value is an `of`."""

    def step(value: JsonObject) -> JsonObject:
        for old in olds:
            if new not in value and isinstance(value.get(old), of) and old in value:
                value.move(old, new)
        return value

    return step


def no_list(name: str) -> Step:
    """A result is of use without the list of that name."""

    def step(value: JsonObject) -> JsonObject:
        if not value.doc.request and name not in value and "content" not in value:
            value[name] = []
        return value

    return step


def id_of_task(value: JsonObject) -> JsonObject:
    """0.1 to 0.3: `id` is the task's where 1.0 says `taskId`."""
    if "taskId" not in value and "id" in value:
        value.move("id", "taskId")
    return value


CONTENTS: Final = ("text", "raw", "url", "data")
"""The members of a part of which exactly one is there."""


@lru_cache
def _optional_strings(type_: type[Any]) -> tuple[str, ...]:
    fields = msgspec.structs.fields(type_)
    names = tuple(field.encode_name for field in fields if field.type == Union[str, None])  # noqa: UP007
    return tuple(name for name in names if type_ is not Part or name not in CONTENTS)


def no_empty(value: JsonObject) -> JsonObject:
    """Absent optional strings, written as empty ones."""
    for name in _optional_strings(value.type_):
        if value.get(name) == "":
            del value[name]
    return value


def letters(text: str) -> str:
    """The letters of a word, in capitals; "" for one that is not of ASCII."""
    return re.sub(r"[^A-Z]", "", text.upper()) if text.isascii() else ""
