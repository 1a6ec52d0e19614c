"""HTTPS: uvicorn's own context, as `--ssl-certfile` makes it, in front of an app (A2A 1.0 §7.1)."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import pytest
import uvicorn

import tieline
from tests.server.agents import worker
from tests.server.raw import A2A_JSON, JSON, Wire, in_loop, serve

CERTIFICATE = Path(__file__).with_name(
    "localhost.pem"
)  # self-signed for localhost, with its key; valid from 2020 to 2120
MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


def server_side() -> ssl.SSLContext:
    """What uvicorn serves with when it is given a certificate and nothing else."""
    config = uvicorn.Config(worker(), ssl_certfile=str(CERTIFICATE), log_config=None)
    config.load()
    assert config.ssl is not None
    return config.ssl


def client_side(highest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(CERTIFICATE))
    context.maximum_version = highest
    return context


@pytest.mark.requirement("tls.encrypted", "tls.modern")
@in_loop
async def test_card_calls_and_streams_work_over_tls_1_3() -> None:
    async with serve(tieline.app(worker()), tls=server_side()) as port, Wire(port, tls=client_side()) as wire:
        assert wire.writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        card = (await wire.request("GET", "/.well-known/agent-card.json")).json()
        assert [each["url"] for each in card["supportedInterfaces"]] == [
            f"https://127.0.0.1:{port}/",
            f"https://127.0.0.1:{port}",
        ] * 2  # of 1.0, and of 0.3
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": MESSAGE}}
        answer = (await wire.request("POST", "/", json.dumps(call).encode(), JSON)).json()
        assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        await wire.write(
            "POST", "/message:stream", json.dumps({"message": {**MESSAGE, "messageId": "m-2"}}).encode(), A2A_JSON
        )
        await wire.head()
        frames = [frame async for frame in wire.frames()]
        assert frames[-1].data["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.requirement("tls.modern")
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
@in_loop
async def test_tls_1_2_is_taken_and_what_is_older_is_refused() -> None:
    async with serve(tieline.app(worker()), tls=server_side()) as port:
        async with Wire(port, tls=client_side(ssl.TLSVersion.TLSv1_2)) as wire:
            assert (await wire.request("GET", "/tasks")).status == 200
        old = client_side(ssl.TLSVersion.TLSv1_1)
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with Wire(port, tls=old) as wire:
                await wire.request("GET", "/tasks")


@in_loop
async def test_plain_http_on_the_port_of_tls_gets_no_answer() -> None:
    async with serve(tieline.app(worker()), tls=server_side()) as port, Wire(port) as wire:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await wire.request("GET", "/tasks")
