"""Small manners of HTTP: what is said where another verb, encoding or command was meant."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

import tieline
from tests.server.agents import worker
from tests.server.raw import JSON, asgi, in_loop

LIST = b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}'


@pytest.mark.parametrize("verb", ["GET", "PUT", "DELETE"])
@in_loop
async def test_the_agents_own_url_names_post_and_the_card(verb: str) -> None:
    reply = await asgi(tieline.app(worker()), verb, "/")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert "/.well-known/agent-card.json" in reply.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/", "/message:send"])
@in_loop
async def test_a_compressed_body_is_refused_in_words(path: str) -> None:
    headers = [*JSON, ("Content-Encoding", "gzip")]
    reply = await asgi(tieline.app(worker()), "POST", path, gzip.compress(LIST), headers)
    assert reply.status == 415
    assert "Content-Encoding" in reply.json()["error"]["message"]


@in_loop
async def test_a_list_of_parts_is_parts_and_a_state_is_a_status() -> None:
    @tieline.agent(name="Gives")
    async def gives(turn: tieline.Turn):  # type: ignore[no-untyped-def]
        yield [tieline.Part(text="a"), tieline.Part(data={"n": 1})]
        yield tieline.TaskState.INPUT_REQUIRED

    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    reply = await asgi(tieline.app(gives), "POST", "/", json.dumps(call).encode(), JSON)
    task = reply.json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert task["artifacts"][0]["parts"] == [{"text": "a"}, {"data": {"n": 1}}]


def test_the_package_is_the_command_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tieline", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"tieline {tieline.__version__}\n"
