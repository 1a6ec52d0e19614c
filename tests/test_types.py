"""The values against the protocol's own table: names, presence, unions, round trips, and errors that name the field."""

from __future__ import annotations

import base64
import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.schema import ENUMS, MESSAGES, Field, struct_of
from tests.wire.strategies import FIXED, exactly, free_json, minimal, minimal_of, rewritten, structs, wire_json
from tieline.errors import InvalidParams
from tieline.types import (
    Artifact,
    Encoded,
    GetTaskRequest,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
    TaskStatus,
    decode,
    encode,
    exact,
    load,
    snake_names,
)

EVERY = sorted(MESSAGES)
EVERY_FIELD = [(name, field) for name in EVERY for field in MESSAGES[name]]
FIELD_IDS = [f"{name}.{field.json}" for name, field in EVERY_FIELD]
REQUIRED = [(name, field) for name, field in EVERY_FIELD if field.required]
every_message = pytest.mark.parametrize("name", EVERY)
every_field = pytest.mark.parametrize(("name", "field"), EVERY_FIELD, ids=FIELD_IDS)


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def refusal(data: Any, type_: type[Any]) -> InvalidParams:
    with pytest.raises(InvalidParams) as caught:
        decode(as_bytes(data), type_)
    return caught.value


def fields_of(error: InvalidParams) -> list[str]:
    return [violation.field for violation in error.violations]


# --- the table --------------------------------------------------------------------------------------------------------


@every_message
def test_every_message_has_a_frozen_struct_with_exactly_the_protocols_fields(name: str) -> None:
    struct = struct_of(name)
    assert set(struct.__struct_fields__) == {field.proto for field in MESSAGES[name]}
    value = msgspec.convert(minimal(name), struct)
    with pytest.raises(AttributeError):
        setattr(value, struct.__struct_fields__[0], None)


@pytest.mark.requirement("json.camel-case")
@every_field
def test_every_field_has_its_camel_case_name_on_the_wire(name: str, field: Field) -> None:
    struct = struct_of(name)
    assert struct.__struct_encode_fields__[struct.__struct_fields__.index(field.proto)] == field.json


@pytest.mark.requirement("json.enum-names")
@pytest.mark.parametrize(("enum", "name"), [(TaskState, "TaskState"), (Role, "Role")])
def test_enums_have_exactly_the_protocols_names_in_its_order(enum: Any, name: str) -> None:
    assert tuple(member.value for member in enum) == ENUMS[name]
    assert [json.loads(encode(member)) for member in enum] == list(ENUMS[name])


def test_terminal_and_interrupted_states_are_those_of_the_specification() -> None:
    terminal = {state for state in TaskState if state.terminal}
    assert terminal == {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
    assert {state for state in TaskState if state.interrupted} == {TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED}


@pytest.mark.requirement("fields.required-present")
@pytest.mark.parametrize(("name", "field"), REQUIRED, ids=[f"{name}.{field.json}" for name, field in REQUIRED])
def test_a_required_field_is_written_even_when_it_is_empty_or_zero(name: str, field: Field) -> None:
    value = msgspec.convert(minimal(name), struct_of(name))
    empty: dict[str, Any] = {"string": "", "int32": 0}
    if field.type in empty or field.type.startswith(("[", "{")):
        nothing = empty.get(field.type, {} if field.type.startswith("{") else ())
        value = msgspec.structs.replace(value, **{field.proto: nothing})
    assert field.json in json.loads(encode(value))


def test_an_empty_page_of_tasks_still_has_all_four_fields() -> None:
    assert json.loads(encode(ListTasksResponse((), "", 50, 0))) == {
        "tasks": [],
        "nextPageToken": "",
        "pageSize": 50,
        "totalSize": 0,
    }


# --- round trips ------------------------------------------------------------------------------------------------------


@every_message
def test_every_message_is_written_as_it_was_read(name: str) -> None:
    struct = struct_of(name)

    @FIXED
    @given(wire_json(name))
    def check(wire: dict[str, Any]) -> None:
        value = decode(as_bytes(wire), struct)
        written = encode(value)
        assert exactly(json.loads(written)) == exactly(wire)
        assert decode(written, struct) == value
        assert load(written, struct) == value
        assert decode(msgspec.Raw(written), struct) == value

    check()


@FIXED
@given(free_json)
def test_any_json_value_comes_through_a_data_part_unchanged(value: Any) -> None:
    read = decode(as_bytes({"data": value}), Part)
    assert exactly(read.data) == exactly(value)
    assert exactly(json.loads(encode(read))) == exactly({"data": value})
    made = Part(data=exact(value))
    assert encode(made) == encode(read)


@FIXED
@given(structs)
def test_metadata_is_kept_at_every_place_that_has_it(metadata: dict[str, Any]) -> None:
    def visit(name: str, field: Field, value: Any) -> dict[str, Any]:
        return {field.json: metadata if field.type == "Struct" else value}

    for name in ("SendMessageRequest", "Task", "StreamResponse"):
        wire = rewritten(name, minimal(name, whole=True), visit)
        assert exactly(json.loads(encode(decode(as_bytes(wire), struct_of(name))))) == exactly(wire)


@pytest.mark.parametrize("digits", [18, 19, 20, 21, 40, 4000])
@pytest.mark.parametrize("sign", [1, -1])
def test_integers_of_any_size_stay_integers(digits: int, sign: int) -> None:
    number = sign * (10**digits - 1)
    for data in (number, {"a": [number, {"b": number}]}):
        value = decode(as_bytes({"data": data, "metadata": {"n": number}}), Part)
        assert json.loads(encode(value)) == {"data": data, "metadata": {"n": number}}


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
def test_integers_at_the_edges_of_64_bits_stay_integers(number: int) -> None:
    assert encode(decode(as_bytes({"data": number}), Part)) == b'{"data":%d}' % number
    assert encode(Part(data=exact(number))) == b'{"data":%d}' % number


def test_an_integer_of_more_digits_than_python_reads_is_refused_by_the_path_of_its_field() -> None:
    with pytest.raises(InvalidParams) as caught:
        decode(b'{"metadata":{"n":' + b"1" * 5000 + b'},"data":1}', Part)
    assert fields_of(caught.value)[0].startswith("metadata")


@pytest.mark.parametrize("literal", ["1e999", "-1e999", "1" + "0" * 400 + ".0"])
def test_a_number_beyond_every_float_is_refused_by_the_path_of_its_field(literal: str) -> None:
    parts = '[{"text":"a"},{"data":{"n":LITERAL}}]'.replace("LITERAL", literal)
    data = '{"message":{"messageId":"m","role":"ROLE_USER","parts":' + parts + "}}"
    with pytest.raises(InvalidParams) as caught:
        decode(data.encode(), SendMessageRequest)
    assert fields_of(caught.value)[0].startswith("message.parts[1].data")


def test_null_data_is_there_and_absent_data_is_not() -> None:
    null = decode(b'{"data":null}', Part)
    assert null.data is None
    assert null.kind == "data"
    assert encode(null) == b'{"data":null}'
    text = decode(b'{"text":"hi"}', Part)
    assert text.data is msgspec.UNSET
    assert encode(text) == b'{"text":"hi"}'


@pytest.mark.requirement("fields.presence-kept")
@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("GetTaskRequest", {"id": "t", "historyLength": 0}),
        ("SendMessageConfiguration", {"historyLength": 0}),
        ("ListTasksRequest", {"pageSize": 0, "historyLength": 0, "includeArtifacts": False}),
        ("AgentCapabilities", {"streaming": False, "pushNotifications": False, "extendedAgentCard": False}),
        ("AgentCard", {**minimal("AgentCard"), "documentationUrl": "", "iconUrl": ""}),
        ("Part", {"text": ""}),
        ("Part", {"raw": ""}),
        ("Part", {"url": ""}),
        ("Part", {"data": None}),
        ("Part", {"data": False}),
    ],
)
def test_an_optional_field_at_its_default_is_still_there_and_an_unset_one_is_not(
    name: str, wire: dict[str, Any]
) -> None:
    struct = struct_of(name)
    assert json.loads(encode(decode(as_bytes(wire), struct))) == wire
    for field in MESSAGES[name]:
        if field.optional:
            without = {key: value for key, value in wire.items() if key != field.json}
            assert json.loads(encode(decode(as_bytes(without), struct))) == without


def test_every_explicitly_optional_field_of_the_protocol_keeps_its_presence() -> None:
    for name, field in EVERY_FIELD:
        if field.optional:
            default = {"int32": 0, "bool": False, "string": ""}[field.type]
            wire = {**minimal(name), field.json: default}
            assert json.loads(encode(decode(as_bytes(wire), struct_of(name)))) == wire, f"{name}.{field.json}"


@FIXED
@given(wire_json("Task"))
def test_a_value_and_its_json_are_made_from_each_other(wire: dict[str, Any]) -> None:
    task = decode(as_bytes(wire), Task)
    from_value = Encoded(Task, value=task)
    from_json = Encoded(Task, json=from_value.json)
    assert from_json.value == task
    assert from_json.json == encode(task)


# --- what ProtoJSON allows to be read ---------------------------------------------------------------------------------


def _number_of(type_: str, value: Any) -> Any:
    return ENUMS[type_].index(value) if type_ in ENUMS else value


def _as_snake(name: str, field: Field, value: Any) -> dict[str, Any]:
    return {field.proto: value}


def _as_numbers(name: str, field: Field, value: Any) -> dict[str, Any]:
    return {field.json: _number_of(field.type, value)}


def _as_url_safe(name: str, field: Field, value: Any) -> dict[str, Any]:
    safe = value.replace("+", "-").replace("/", "_").rstrip("=") if field.type == "bytes" else value
    return {field.json: safe}


def _with_unknown(name: str, field: Field, value: Any) -> dict[str, Any]:
    return {field.json: value, "kind": "message", "x-unknown": {"a": [1, None]}, "later_field": 2**80}


def _all_at_once(name: str, field: Field, value: Any) -> dict[str, Any]:
    return _as_snake(name, field, next(iter(_as_url_safe(name, field, _number_of(field.type, value)).values())))


VARIANTS = {
    "snake_case names": _as_snake,
    "numbers of enums": _as_numbers,
    "base64 in the URL alphabet": _as_url_safe,
    "fields nobody knows": _with_unknown,
    "several of these": _all_at_once,
}


@pytest.mark.parametrize("variant", sorted(VARIANTS))
@every_message
def test_every_message_is_read_alike_in_each_form_that_protojson_allows(name: str, variant: str) -> None:
    wire = minimal(name, whole=True)
    written = rewritten(name, wire, VARIANTS[variant])
    assert decode(as_bytes(written), struct_of(name)) == decode(as_bytes(wire), struct_of(name))


@every_field
def test_one_snake_case_name_among_others_is_read(name: str, field: Field) -> None:
    wire = {} if field.one_of else minimal(name)
    wire.pop(field.json, None)
    value = minimal_of(field.type)
    read = decode(as_bytes({**wire, field.proto: value}), struct_of(name))
    assert read == decode(as_bytes({**wire, field.json: value}), struct_of(name))


@every_message
def test_null_is_an_absent_field(name: str) -> None:
    wire = minimal(name)
    absent = [field for field in MESSAGES[name] if field.json not in wire and field.type != "Value"]
    expected = decode(as_bytes(wire), struct_of(name))
    for form in ("json", "proto"):
        nulls = {getattr(field, form): None for field in absent}
        assert decode(as_bytes({**wire, **nulls}), struct_of(name)) == expected
    for field in MESSAGES[name]:
        if field.required:
            assert fields_of(refusal({**wire, field.json: None}, struct_of(name))) == [field.json]


@pytest.mark.parametrize("variant", sorted(VARIANTS))
@pytest.mark.parametrize("name", ["SendMessageRequest", "StreamResponse", "Task", "AgentCard"])
def test_any_message_is_read_alike_in_each_form_that_protojson_allows(name: str, variant: str) -> None:
    struct = struct_of(name)

    @FIXED
    @given(wire_json(name))
    def check(wire: dict[str, Any]) -> None:
        assert decode(as_bytes(rewritten(name, wire, VARIANTS[variant])), struct) == decode(as_bytes(wire), struct)

    check()


@FIXED
@given(st.binary(max_size=40))
def test_bytes_are_read_in_all_four_forms_of_base64(raw: bytes) -> None:
    for text in (base64.b64encode(raw), base64.urlsafe_b64encode(raw)):
        for form in (text, text.rstrip(b"=")):
            assert decode(b'{"raw":"' + form + b'"}', Part).raw == raw


def test_free_form_json_keeps_names_that_look_like_fields() -> None:
    inner = {"media_type": None, "raw": "-_", "role": 1, "state": 3, "a_b": {"c_d": 1}, "data": {"e_f": None}}
    for form in ({"data": inner}, {"text": "x", "metadata": inner}, {"data": inner, "media_type": "a/b"}):
        read = json.loads(encode(decode(as_bytes(form), Part)))
        assert read[next(key for key in ("data", "metadata") if key in form)] == inner


def test_names_of_security_schemes_and_scopes_are_not_taken_for_fields() -> None:
    card = minimal("AgentCard", whole=True)
    card["securitySchemes"] = {"my_scheme": card["securitySchemes"]["key"]}
    card["securityRequirements"] = [{"schemes": {"my_scheme": {"list": ["read_all"]}}}]
    read = json.loads(encode(decode(as_bytes({**card, "icon_url": "https://x/i.png"}), struct_of("AgentCard"))))
    assert list(read["securitySchemes"]) == ["my_scheme"]
    assert read["securityRequirements"] == [{"schemes": {"my_scheme": {"list": ["read_all"]}}}]


@pytest.mark.requirement("fields.server-ignores-unknown")
@every_message
def test_fields_nobody_knows_are_ignored_and_not_written_again(name: str) -> None:
    wire = minimal(name)
    value = decode(as_bytes({**wire, "kind": "x", "$type": 1, "unknown": {"deep": [None, 1.5]}}), struct_of(name))
    assert json.loads(encode(value)) == wire


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("fields.server-refuses-missing")
@every_field
def test_a_message_without_a_required_field_is_refused_by_its_name(name: str, field: Field) -> None:
    wire = minimal(name)
    without = {key: value for key, value in wire.items() if key != field.json}
    if field.required:
        assert fields_of(refusal(without, struct_of(name))) == [field.json]
    elif not field.one_of:
        decode(as_bytes(without), struct_of(name))


def _wrong(type_: str) -> list[Any]:
    if type_.startswith(("[", "{")) or type_ == "Struct":
        return ["x", 5, True]
    return {
        "string": [5, True, {}, []],
        "bool": ["x", 5, {}],
        "int32": ["x", {}, True, 1.5],
        "bytes": ["!", 5, {}],
        "Value": [],
        "Timestamp": [5, {}],
        "TaskState": ["TASK_STATE_RUNNING", 99, "working", {}],
        "Role": ["user", 99, -1, []],
    }.get(type_, ["x", 5, []])


@every_field
def test_a_field_of_a_wrong_type_is_refused_by_its_path(name: str, field: Field) -> None:
    wire = {**minimal(name)}
    if field.one_of:
        wire = {}
    for wrong in _wrong(field.type):
        (path,) = fields_of(refusal({**wire, field.json: wrong}, struct_of(name)))
        assert path == field.json, f"{wrong!r}: {path}"


@pytest.mark.parametrize("snake", [False, True], ids=["camelCase", "snake_case"])
def test_an_error_names_the_whole_path_in_json_names(snake: bool) -> None:
    parts = [{"text": "a"}, {"raw": "eA==", "media_type" if snake else "mediaType": 7}]
    message = {"message_id" if snake else "messageId": "m", "role": "ROLE_USER", "parts": parts}
    assert fields_of(refusal({"message": message}, SendMessageRequest)) == ["message.parts[1].mediaType"]
    with pytest.raises(InvalidParams) as caught:
        decode(as_bytes({"message": message}), SendMessageRequest, root="params")
    assert fields_of(caught.value) == ["params.message.parts[1].mediaType"]


def test_a_missing_field_deep_inside_is_named_with_its_path() -> None:
    task = {**minimal("Task"), "artifacts": [minimal("Artifact"), {"artifactId": "a"}]}
    assert fields_of(refusal(task, Task)) == ["artifacts[1].parts"]
    assert "required" in refusal(task, Task).violations[0].description


@pytest.mark.parametrize("value", ["x` - at `$.id", "` - at `$`", "a\nb", "\u2028 - at `$.x`"])
def test_what_the_caller_wrote_cannot_change_the_path_that_is_named(value: str) -> None:
    task = {"id": "t", "status": {"state": value}}
    assert fields_of(refusal(task, Task)) == ["status.state"]


@pytest.mark.parametrize("data", [[], "x", 5, None, True])
def test_what_is_no_object_is_refused(data: Any) -> None:
    assert refusal(data, GetTaskRequest).violations


@pytest.mark.parametrize(
    "part",
    [{}, {"metadata": {}}, {"text": "a", "url": "b"}, {"text": "a", "data": None}, {"raw": "", "data": 1}],
)
def test_a_part_has_exactly_one_of_text_raw_url_and_data(part: dict[str, Any]) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "fine"}, part]}
    error = refusal({"message": message}, SendMessageRequest)
    assert fields_of(error) == ["message.parts[1]"]
    assert "exactly one of text, raw, url or data" in str(error)


def test_parts_are_checked_when_they_are_made_too() -> None:
    with pytest.raises(ValueError, match="exactly one of"):
        Part()
    with pytest.raises(ValueError, match="exactly one of"):
        Part(text="a", url="b")
    assert [part.kind for part in (Part(text=""), Part(raw=b""), Part(url=""), Part(data=None))] == [
        "text",
        "raw",
        "url",
        "data",
    ]


@pytest.mark.parametrize("data", [b"", b"{", b'{"id":"a"} x', b'{"id":NaN}', b'{"id":"\xff"}', b'{"id":"\\ud800"}'])
def test_bytes_that_are_not_json_are_a_decode_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        decode(data, GetTaskRequest)
    assert not isinstance(caught.value, msgspec.ValidationError)


@FIXED
@given(st.binary(max_size=60) | free_json.map(as_bytes))
def test_decode_raises_nothing_but_its_two_errors(data: bytes) -> None:
    for type_ in (SendMessageRequest, Task, StreamResponse, struct_of("AgentCard")):
        try:
            decode(data, type_)
        except (InvalidParams, msgspec.DecodeError) as error:
            caught: Exception = error
            assert not isinstance(caught, msgspec.ValidationError)
            assert not isinstance(caught, InvalidParams) or caught.violations


# --- what values say of themselves ------------------------------------------------------------------------------------


@pytest.mark.requirement("time.read-and-written")
@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2025-10-28T10:30:00Z", 0),
        ("2025-10-28T10:30:00.5Z", 500_000),
        ("2025-10-28T10:30:00.000Z", 0),
        ("2025-10-28T10:30:00.142Z", 142_000),
        ("2025-10-28T10:30:00.680794Z", 680_794),
        ("2025-10-28T10:30:00.123456789Z", 123_456),
        ("2025-10-28T12:30:00.142+02:00", 142_000),
    ],
)
def test_a_status_time_is_read_with_any_number_of_digits(text: str, micros: int) -> None:
    time = TaskStatus(TaskState.WORKING, timestamp=text).time
    assert time is not None
    assert time.timestamp() == pytest.approx(1761647400 + micros / 1e6, abs=1e-6)


@pytest.mark.parametrize("text", [None, "", "yesterday", "2025-13-01T00:00:00Z", "2025-02-30T10:00:00Z", "1730000000"])
def test_a_status_time_that_is_none_is_none(text: str | None) -> None:
    assert TaskStatus(TaskState.WORKING, timestamp=text).time is None


def test_texts_are_put_together() -> None:
    message = Message("m", Role.USER, (Part(text="a"), Part(data=1), Part(text="b")))
    assert message.text == "a\nb"
    artifact = Artifact("a", (Part(text="c"), Part(text="d")))
    assert artifact.text == "cd"
    asked = TaskStatus(TaskState.INPUT_REQUIRED, message)
    assert Task("t", asked).text == "a\nb"
    assert Task("t", asked, artifacts=(artifact, Artifact("b", (Part(data=1),)), artifact)).text == "cd\ncd"
    assert Task("t", TaskStatus(TaskState.WORKING)).text == ""


@pytest.mark.parametrize("wire", [{}, {"task": minimal("Task"), "message": minimal("Message")}])
def test_a_stream_event_is_exactly_one_of_four(wire: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="exactly one of"):
        _ = decode(as_bytes(wire), StreamResponse).event


def test_the_table_has_no_type_that_values_of_it_do_not() -> None:
    for name, field in EVERY_FIELD:
        hints = msgspec.structs.fields(struct_of(name))
        hint = next(each for each in hints if each.name == field.proto)
        assert minimal_of(field.type) is not None
        assert hint.required == field.required or (name == "Part" and field.one_of), f"{name}.{field.json}"
        if not field.required and not field.type.startswith(("[", "{")) and field.type not in ("bool", "Value"):
            empty = hint.default
            assert empty is None or (field.json, empty) == ("uri", ""), f"{name}.{field.json}: {get_args(hint.type)}"


class Words(str):
    """A text that knows more, as the answer to a question does."""


class Bag(dict[str, Any]):
    """An object that knows more."""


class Number(int):
    """An integer that knows more."""


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Part(text=Words("hi")), {"text": "hi"}),
        (Part(url=Words("https://a"), media_type=Words("a/b"), filename=Words("f")), None),
        (Part(data=Words("hi")), {"data": "hi"}),
        (Part(data={"a": [Words("b"), Number(5), True]}), {"data": {"a": ["b", 5, True]}}),
        (Part(data=Bag(a=Words("b"))), {"data": {"a": "b"}}),
        (Part(data={"role": Role.USER}), {"data": {"role": "ROLE_USER"}}),
        (Message(Words("m"), Role.USER, (Part(text=Words("hi")),), task_id=Words("t")), None),
    ],
)
def test_what_is_more_than_a_json_value_is_written_as_the_value_that_it_is(value: Any, written: Any) -> None:
    read = json.loads(encode(value))
    if written is not None:
        assert read == written
    assert decode(encode(value), type(value)) == value


def test_only_the_fields_of_a_type_are_looked_for_in_snake_case() -> None:
    finds = snake_names(SendMessageRequest)
    assert finds(b'{"message_id" : "m"}')
    assert finds(b'{"configuration":{"task_push_notification_config":{}}}')
    assert not finds(b'{"metadata":{"user_id":1,"a_b_c":2},"text":"message_id: x"}')
    assert not snake_names(Role)(b'"anything_at_all":')
