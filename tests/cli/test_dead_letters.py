"""`push dead` and `push replay`, over every store that outlives its server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Tieline
from tests.cli.test_store import KINDS, in_store, url_of
from tieline.stores.base import Webhook

SCOPE = "0:/0:/"
CONFIG = (
    b'{"url":"https://hooks.example/in?key=s3cret","id":"%b","token":"t0ken",'
    b'"authentication":{"scheme":"Bearer","credentials":"cr3dential"}}'
)


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with a living webhook and three dead ones, of two tasks."""
    made = url_of(request.param, tmp_path)

    async def fill(store: Any) -> None:
        for number, (task_id, id_) in enumerate((("t", "a"), ("t", "b"), ("u", "a"), ("u", "alive")), 1):
            webhook = Webhook(
                SCOPE, task_id, id_, CONFIG % id_.encode(), "1.0", number, number, store.replica if store.shared else ""
            )
            assert await store.set_webhook(webhook, 10)
            if id_ != "alive":
                await store.give_up_webhook(webhook, number, 10 + number, number * 1_000_000, "It said no.")

    in_store(made, fill)
    return made


def test_dead_letters_are_listed_the_last_first_without_what_is_secret(bare: Tieline, url: str) -> None:
    shown = bare("push", "dead", url, "-o", "json")
    assert shown.code == 0, shown.err
    assert [(letter["taskId"], letter["id"]) for letter in shown.json["dead"]] == [("u", "a"), ("t", "b"), ("t", "a")]
    assert shown.json["dead"][0] == {
        "taskId": "u",
        "id": "a",
        "url": "https://hooks.example/in",
        "after": 3,
        "failures": 13,
        "reason": "It said no.",
        "at": "1970-01-01T00:00:03.000Z",
    }
    plain = bare("push", "dead", url, "--limit", "1")
    assert plain.code == 0, plain.err
    assert {**plain.fields, "Store": ""} == {
        "Store": "",
        "Dead webhooks": "1",
        "Task ID": "u",
        "Webhook ID": "a",
        "URL": "https://hooks.example/in",
        "Behind event": "3",
        "Failures": "13",
        "Reason": "It said no.",
        "Given up": "1970-01-01T00:00:03.000Z",
    }
    for said in (shown, plain):
        for secret in ("s3cret", "t0ken", "cr3dential"):
            assert secret not in said.out + said.err


def test_dead_letters_are_replayed_one_by_one_by_task_and_all(bare: Tieline, url: str) -> None:
    one = bare("push", "replay", url, "--task", "t", "--id", "b", "-o", "json")
    assert one.json["replayed"] == [{"taskId": "t", "id": "b"}]
    again = bare("push", "replay", url, "--task", "t", "--id", "b", "-o", "json")
    assert again.code != 0
    assert again.error["code"] == "TIELINE_ERR_NO_DEAD_LETTER"
    assert bare("push", "replay", url, "--all", "-o", "json").json["replayed"] == [
        {"taskId": "u", "id": "a"},
        {"taskId": "t", "id": "a"},
    ]
    assert bare("push", "dead", url, "-o", "json").json["dead"] == []
    none = bare("push", "replay", url, "--all")
    assert none.code == 0
    assert "0" in none.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--task ID, or --all"),
        (("--task", "t", "--all"), "--task ID, or --all"),
        (("--all", "--id", "a"), "give --task, too"),
    ],
)
def test_replay_that_does_not_say_what_of_is_a_mistake(
    bare: Tieline, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    said = bare("push", "replay", f"sqlite:{tmp_path / 'none.db'}", *arguments)
    assert said.code != 0
    assert words in said.err


def test_store_that_is_not_there_is_a_mistake(bare: Tieline, tmp_path: Path) -> None:
    for command in (("push", "dead"), ("push", "replay", "--all")):
        said = bare(*command[:2], f"sqlite:{tmp_path / 'none.db'}", *command[2:])
        assert said.code != 0
        assert "There is no file" in said.err
