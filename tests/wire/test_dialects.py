"""Which dialect a request speaks (A2A 1.0 §3.6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import FIXED
from tieline.errors import VersionNotSupported
from tieline.types import Encoded, Task, TaskState, TaskStatus
from tieline.wire import rest_forms
from tieline.wire.dialect import Dialect
from tieline.wire.dialects import DIALECTS, VERSIONS, begun_in, dialect_of, spoken
from tieline.wire.methods import METHODS

either = pytest.mark.parametrize("strict", [True, False])


@either
@pytest.mark.parametrize(
    ("asked", "method", "version"),
    [
        ("1.0", "SendMessage", "1.0"),
        ("1.0.0", "SendMessage", "1.0"),
        ("1.0.99", "message/send", "1.0"),
        ("0.3", "message/send", "0.3"),
        ("0.3.0", "SendMessage", "0.3"),
        ("0.2.6", "message/send", "0.3"),
        ("0.2.0", "tasks/send", "0.1"),
        ("0.2", "tasks/get", "0.3"),
        ("0.2.0", "tasks/get", "0.1"),
        ("0.1", "tasks/get", "0.1"),
        ("", "message/send", "0.3"),
        ("", "tasks/sendSubscribe", "0.1"),
        ("", "tasks/get", "0.3"),
    ],
)
def test_the_version_decides_then_the_method(asked: str, method: str, version: str, strict: bool) -> None:
    assert spoken(asked, method, strict=strict).version == version


@pytest.mark.parametrize("method", METHODS)
def test_no_version_is_1_0_unless_strict_then_it_is_0_3(method: str) -> None:
    assert spoken("", method).version == "1.0"
    with pytest.raises(VersionNotSupported) as caught:
        spoken("", method, strict=True)
    assert caught.value.metadata["requestedVersion"] == "0.3"


@either
def test_a_method_that_nobody_has_is_for_the_latest_dialect_that_is_served(strict: bool) -> None:
    assert spoken("", "nothing", strict=strict) is DIALECTS[0]
    assert spoken("", "nothing", served=DIALECTS[1:], strict=strict) is DIALECTS[1]


def test_only_what_is_served_is_chosen_from_and_named() -> None:
    first, old, oldest = DIALECTS
    assert spoken("0.2", "message/send", served=(first, oldest)) is oldest
    assert spoken("", "tasks/get", served=(first, oldest)) is oldest
    for asked, method in (("0.3", "message/send"), ("", "message/send"), ("0.3", "tasks/send")):
        with pytest.raises(VersionNotSupported) as caught:
            spoken(asked, method, served=(first, oldest))
        assert caught.value.metadata == {"requestedVersion": "0.3", "supportedVersions": "1.0, 0.1, 0.2"}
    with pytest.raises(VersionNotSupported, match=r"0\.3"):
        rest_forms.spoken("", "/v1/tasks/t", served=(first,))
    with pytest.raises(VersionNotSupported, match=r"1\.0"):
        rest_forms.spoken("", "/tasks/t", served=(old,))


@either
@pytest.mark.parametrize(
    "asked", ["1.1", "2.0", "0.4", "1", "10", "v1.0", "1.0-rc", "1.0.0.0", "1.0.", "x", "1.0,0.3", "\uff11.\uff10"]
)
def test_a_version_that_is_not_served_is_refused_with_those_that_are(asked: str, strict: bool) -> None:
    with pytest.raises(VersionNotSupported) as caught:
        spoken(asked, "SendMessage", strict=strict)
    assert caught.value.metadata == {"requestedVersion": asked, "supportedVersions": "1.0, 0.3, 0.2, 0.1"}


@FIXED
@given(st.text(max_size=12), st.text(max_size=12))
def test_any_version_is_served_or_refused(asked: str, method: str) -> None:
    try:
        served = spoken(asked, method).version
    except VersionNotSupported:
        served = None
    assert served is None or served in VERSIONS


@pytest.mark.parametrize(
    ("version", "path", "form", "below"),
    [
        ("", "/message:send", "1.0", "/message:send"),
        ("", "/v1/message:send", "0.3", "/message:send"),
        ("", "/v1/card", "0.3", "/extendedAgentCard"),
        ("", "/v1/tasks/v1:cancel", "0.3", "/tasks/v1:cancel"),
        ("0.3", "/tasks/t", "0.3", "/tasks/t"),
        ("0.3.0", "/v1/tasks/t", "0.3", "/tasks/t"),
        ("1.0", "/tasks/t", "1.0", "/tasks/t"),
        ("1.0", "/v1/tasks/t", "1.0", "/v1/tasks/t"),
    ],
)
def test_rest_is_told_by_version_then_path(version: str, path: str, form: str, below: str) -> None:
    found, operation = rest_forms.spoken(version, path, strict=False)
    assert (found.version, operation) == (form, below)


def test_rest_has_no_0_1() -> None:
    with pytest.raises(VersionNotSupported) as caught:
        rest_forms.spoken("0.1", "/tasks/t", strict=False)
    assert caught.value.metadata["supportedVersions"] == "1.0, 0.3, 0.2"


def test_rest_without_a_version_is_refused_when_strict_unless_its_path_is_old() -> None:
    with pytest.raises(VersionNotSupported):
        rest_forms.spoken("", "/message:send", strict=True)
    assert rest_forms.spoken("", "/v1/message:send", strict=True)[0].version == "0.3"


@pytest.mark.parametrize(
    ("written", "version"),
    [
        ("1.0", "1.0"),
        ("1.0.0", "1.0"),
        ("0.3.0", "0.3"),
        ("0.3", "0.3"),
        ("0.2.6", "0.3"),
        ("0.2.0", "0.1"),
        ("0.1", "0.1"),
    ],
)
def test_the_dialect_of_a_cards_version(written: str, version: str) -> None:
    dialect = dialect_of(written)
    assert dialect is not None
    assert dialect.version == version


def test_a_card_may_name_a_version_that_is_not_spoken() -> None:
    assert dialect_of("7.0") is None
    assert dialect_of("latest") is None


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.version)
def test_each_name_of_a_dialect_leads_to_the_method_that_has_it(dialect: Dialect) -> None:
    assert {dialect.methods[name].name for name in dialect.names.values()} == set(dialect.names)
    assert set(dialect.names) <= set(METHODS)


def test_a_task_tells_which_dialect_it_was_begun_in() -> None:
    (naming,) = [dialect for dialect in DIALECTS if dialect.new_task is not None]
    plain = Task("t", TaskStatus(TaskState.WORKING), "c")
    named = Task("t", TaskStatus(TaskState.WORKING), "c", metadata=naming.new_task)
    shouting = Task("t", TaskStatus(TaskState.WORKING), "c", metadata={"said": "tieline/dialect"})
    default = DIALECTS[1]
    assert begun_in(Encoded(Task, value=named), default) is naming
    assert begun_in(Encoded(Task, value=plain), default) is default
    assert begun_in(Encoded(Task, value=shouting), default) is default
