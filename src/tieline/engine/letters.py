"""What replicas write to each other, over the store that they share. Pure.

Letters carry no truth: events and tasks are read from the store. One that gets lost delays what it is about by seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tieline.engine.turn import Caller
from tieline.errors import A2AError, FieldViolation, error_for
from tieline.types import Message, Metadata, encode, load

__all__ = [
    "Answer",
    "Cancel",
    "Elsewhere",
    "Follow",
    "Hear",
    "Letter",
    "News",
    "Question",
    "Rehook",
    "Unfollow",
    "Wait",
    "pack",
    "refusal",
    "refused",
    "unpack",
]


class _Letter(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    scope: str
    task_id: str


class Follow(_Letter, frozen=True, array_like=True, tag=True, gc=False):
    """Tell `replica` of news behind event `published` of this task."""

    replica: str
    published: int


class Unfollow(_Letter, frozen=True, array_like=True, tag=True, gc=False):
    """`replica` needs no news of this task any more."""

    replica: str


class News(_Letter, frozen=True, array_like=True, tag=True, gc=False):
    """There are events that were not there before."""


class Elsewhere(_Letter, frozen=True, array_like=True, tag=True, gc=False):
    """The task is not at work where this comes from: the store says where it is."""


class Rehook(_Letter, frozen=True, array_like=True, tag=True, gc=False):
    """The task has other webhooks than before."""


class Hear(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A caller's message for the task's agent."""

    message: bytes  # canonical JSON
    principal: str
    tenant: str
    version: str
    extensions: tuple[str, ...]
    metadata: bytes | None  # of the request, as JSON
    accepts: tuple[str, ...]
    named: bool  # the caller has named the task itself
    scopes: tuple[str, ...] = ()
    claims: bytes | None = None  # as JSON
    schemes: tuple[str, ...] = ()
    trace: Mapping[str, str] = {}  # that the call is in, as headers

    @classmethod
    def of(
        cls,
        message: Message,
        caller: Caller,
        metadata: Metadata | None,
        accepts: tuple[str, ...],
        named: bool,
        trace: Mapping[str, str],
    ) -> Hear:
        return cls(
            encode(message),
            caller.principal,
            caller.tenant,
            caller.version,
            caller.extensions,
            None if metadata is None else encode(metadata),
            accepts,
            named,
            tuple(caller.scopes),
            encode(caller.claims) if caller.claims else None,
            tuple(caller.schemes),
            trace,
        )

    def read(self) -> tuple[Message, Caller, Metadata | None]:
        claims = {} if self.claims is None else load(self.claims, dict)
        caller = Caller(
            self.principal,
            self.tenant,
            self.version,
            self.extensions,
            frozenset(self.scopes),
            claims,
            frozenset(self.schemes),
        )
        metadata: Metadata | None = None if self.metadata is None else load(self.metadata, dict)
        return load(self.message, Message), caller, metadata


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The caller cancels the task."""


class Wait(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Answer when the message that this task may come of has become a task, or was replied to, or neither will be."""


class Question(_Letter, frozen=True, array_like=True, tag=True):
    """Something to do with a task where its agent is; answered once, however often it is asked."""

    replica: str  # who asks
    number: int  # of the question, by who asks
    what: Hear | Cancel | Wait


class Answer(_Letter, frozen=True, array_like=True, tag=True):
    """What came of a question."""

    number: int
    after: int = 0  # the event behind which the consequences stand
    elsewhere: bool = False  # the task is not at work where it was asked
    error: tuple[str, int, str, dict[str, str], tuple[tuple[str, str], ...]] | None = None


Letter = Follow | Unfollow | News | Elsewhere | Rehook | Question | Answer

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Letter)


def pack(letter: Letter) -> bytes:
    """A letter as bytes."""
    return _encoder.encode(letter)


def unpack(body: bytes) -> Letter:
    """Raises msgspec.MsgspecError when it is no letter, as one of another version of tieline may not be."""
    return _decoder.decode(body)


def refusal(error: A2AError) -> tuple[str, int, str, dict[str, str], tuple[tuple[str, str], ...]]:
    """An error on its way to the replica whose caller is refused."""
    violations = tuple((violation.field, violation.description) for violation in error.violations)
    return error.reason, error.rpc_code, error.message, error.metadata, violations


def refused(given: tuple[str, int, str, dict[str, str], tuple[tuple[str, str], ...]]) -> A2AError:
    """The error that `refusal` has sent."""
    reason, code, message, metadata, violations = given
    return error_for(
        rpc_code=code,
        reason=reason,
        message=message,
        metadata=metadata,
        violations=[FieldViolation(field, description) for field, description in violations],
    )
