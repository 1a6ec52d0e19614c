"""What an rpc is: a method of a gRPC service, with the values that it carries as bytes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from google.protobuf.message import DecodeError

from tieline.errors import InvalidParams, InvalidPeerResponse, ParseError, UnsupportedOperation
from tieline.types import Task
from tieline.wire.protobuf_fields import Fault
from tieline.wire.protobuf_structs import demanding, reader_of, write_fields

__all__ = ["Form", "Rpc", "form_of", "rpc", "rpcs_by_name"]

Form = tuple[Any, Callable[[Any], Any], Callable[[Any, Any], None]]
"""How a value is carried: its protobuf class, how a message of it is read, and how one is written."""


class Rpc(NamedTuple):
    """One method of a gRPC service, with what it carries as bytes.

    `operation` is its name in A2A 1.0, the dialect of the values. The answer of a stream is one event; `write_passing`
    writes one behind which the stream goes on.

    Readers raise ParseError or InvalidParams for requests and InvalidPeerResponse for answers. What protobuf cannot
    carry is InvalidParams in a request, UnsupportedOperation in an answer; both name the field.
    """

    name: str
    operation: str
    read_request: Callable[[bytes], Any]
    write_request: Callable[[Any], bytes]
    read_answer: Callable[[bytes], Any]
    write_answer: Callable[[Any], bytes]
    write_passing: Callable[[Any], bytes]

    @property
    def streaming(self) -> bool:
        return self.operation in ("SendStreamingMessage", "SubscribeToTask")


def rpc(
    name: str,
    request: Form,
    answer: Form,
    *,
    operation: str = "",
    passing: Callable[[Any, Any], None] | None = None,
) -> Rpc:
    """Puts an rpc together. `operation`: its name in A2A 1.0, where that is another. `passing`: how an event is written
    behind which the stream goes on, where that is another way than the last one's.
    """
    write_answer = _writer(answer[0], answer[2], _refuse_answer)
    return Rpc(
        name,
        operation or name,
        _request_reader(request[0], request[1]),
        _writer(request[0], request[2], _refuse_request),
        _answer_reader(answer[0], answer[1]),
        write_answer,
        write_answer if passing is None else _writer(answer[0], passing, _refuse_answer),
    )


def _request_reader(class_: Any, read: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    parse = class_.FromString

    def read_request(data: bytes) -> Any:
        try:
            return read(parse(data))
        except Fault as fault:
            raise InvalidParams.at(fault.field or "request", fault.description) from None
        except DecodeError:
            raise ParseError(f"The request is not a {class_.DESCRIPTOR.full_name} in protobuf.") from None

    return read_request


def _answer_reader(class_: Any, read: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    parse = class_.FromString

    def read_answer(data: bytes) -> Any:
        try:
            return read(parse(data))
        except Fault as fault:
            where = f"{fault.field}: " if fault.field else "it "
            raise InvalidPeerResponse(f"The answer is not valid: {where}{fault.description}") from None
        except DecodeError:
            name = class_.DESCRIPTOR.full_name
            raise InvalidPeerResponse(f"The answer is not a {name} in protobuf.") from None

    return read_answer


def _writer(
    class_: Any, write: Callable[[Any, Any], None], refuse: Callable[[Any, Fault], NoReturn]
) -> Callable[[Any], bytes]:
    def write_bytes(value: Any) -> bytes:
        message = class_()
        try:
            write(message, value)
        except Fault as fault:
            refuse(value, fault)
        except TypeError as error:
            refuse(value, Fault("", str(error)))
        data: bytes = message.SerializeToString()
        return data

    return write_bytes


def _refuse_request(value: Any, fault: Fault) -> NoReturn:
    raise InvalidParams.at(fault.field or "request", fault.description)


def _refuse_answer(value: Any, fault: Fault) -> NoReturn:
    metadata = {"field": fault.field}
    about = getattr(value, "task_id", None) or (value.id if isinstance(value, Task) else None)
    if about:
        metadata["taskId"] = about
    of_task = f" of task {about!r}" if about else ""
    raise UnsupportedOperation(
        f"The answer{of_task} cannot be given by gRPC: {fault.field}: {fault.description}.", metadata=metadata
    )


def rpcs_by_name(rpcs: Iterable[Rpc]) -> dict[str, Rpc]:
    """The calls of a service by the names that it has for them."""
    return {each.name: each for each in rpcs}


def form_of(class_: Any, type_: type[Any], *names: str) -> Form:
    """The form of a value whose fields have the names that they have in protobuf; `names` are of required strings."""
    return class_, demanding(reader_of(type_), names), write_fields
