"""A peer that is not ours: a server whose every answer is written down here, for what ours never does.

`/SCENARIO/KEY/` is one agent with its JSON-RPC endpoint and its card; a key makes it a test's own. `/records/KEY` gives
the requests that came for a key. Run as a process: `python foreign.py PORT [CERTIFICATE KEY]`.
"""

from __future__ import annotations

import asyncio
import copy
import json
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

Scope = MutableMapping[str, Any]
Json = dict[str, Any]

RECORDS: defaultdict[str, list[Json]] = defaultdict(list)
READS: defaultdict[str, int] = defaultdict(int)  # how often a key's task was read

SCHEMES: dict[str, Json] = {
    "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    "oauth": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://login.example/oidc"}},
    "header-key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Agent-Key"}},
    "query-key": {"apiKeySecurityScheme": {"location": "query", "name": "agent_key"}},
    "cookie-key": {"apiKeySecurityScheme": {"location": "cookie", "name": "agent_key"}},
    "mtls": {"mtlsSecurityScheme": {}},
}
PLAIN = {"streaming": False}
# What GetTask gives, reading by reading; the last one again and again.
READINGS: dict[str, list[str]] = {
    "polled": ["WORKING", "WORKING", "COMPLETED"],
    "unspecified": ["UNSPECIFIED", "UNSPECIFIED", "COMPLETED"],
    "asking": ["WORKING", "INPUT_REQUIRED"],
    "never": ["WORKING"],
    "flaky": ["HTTP 503", "HTTP 503", "COMPLETED"],
    "lost": ["ERROR -32001"],
    "cut": ["WORKING", "COMPLETED"],
}


def card_of(scenario: str, base: str) -> Json:
    card: Json = {
        "name": f"Foreign {scenario}",
        "description": "Written by hand.",
        "supportedInterfaces": [{"url": base, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "version": "2.0",
        "capabilities": {"streaming": scenario in ("cut", "stubborn", "breaks", "forgets", "one-message")},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "Skill", "description": "Something.", "tags": ["t"]}],
    }
    if scenario in SCHEMES:
        card["securitySchemes"] = {scenario: SCHEMES[scenario]}
        card["securityRequirements"] = [{"schemes": {scenario: {"list": []}}}]
    elif scenario == "two-schemes":
        card["securitySchemes"] = {"bearer": SCHEMES["bearer"], "header-key": SCHEMES["header-key"]}
        card["securityRequirements"] = [{"schemes": {"bearer": {"list": []}, "header-key": {"list": []}}}]
    elif scenario == "tenant":
        card["supportedInterfaces"][0]["tenant"] = "acme"
    elif scenario == "grpc-first":
        grpc = {"url": "grpc.example:443", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
        card["supportedInterfaces"].insert(0, grpc)
    elif scenario in ("elsewhere", "keyed-elsewhere"):
        card["supportedInterfaces"][0]["url"] = base.replace("127.0.0.1", "localhost")
        if scenario == "keyed-elsewhere":
            card["securitySchemes"] = {"header-key": SCHEMES["header-key"]}
    elif scenario == "newer":
        card["supportedInterfaces"].insert(0, {**card["supportedInterfaces"][0], "protocolVersion": "1.7"})
    elif scenario in ("old", "wrong-version"):
        card["supportedInterfaces"][0]["protocolVersion"] = "0.3"
    elif scenario == "only-newer":
        card["supportedInterfaces"][0]["protocolVersion"] = "2.0"
    elif scenario == "only-grpc":
        card["supportedInterfaces"][0] |= {"protocolBinding": "GRPC", "protocolVersion": "0.1"}
    elif scenario == "faulty-card":
        del card["skills"][0]["tags"]
        card["defaultInputModes"] = "text/plain"
    elif scenario == "empty-card":
        card["skills"], card["name"] = [], ""
    elif scenario == "no-skills":
        card["skills"] = []
    elif scenario == "odd-card":
        card["preferredTransport"] = "JSONRPC"
        card["capabilities"]["stateTransitionHistory"] = True
        card["skills"][0]["colour"] = "red"
    elif scenario == "signed":
        card["signatures"] = [{"protected": "eyJhbGciOiJFUzI1NiJ9", "signature": "c2ln"}]
    return card


def task(key: str, state: str, **more: Any) -> Json:
    found: Json = {"id": f"task-{key}", "contextId": f"context-{key}", "status": {"state": f"TASK_STATE_{state}"}}
    if state == "COMPLETED":
        found["artifacts"] = [{"artifactId": "a", "name": "answer", "parts": [{"text": "done"}]}]
    elif state == "INPUT_REQUIRED":
        words = {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "Which one?"}]}
        found["status"]["message"] = words
    return {**found, **more}


class HttpError(Exception):
    def __init__(self, status: int, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        super().__init__(str(status))
        self.status = status
        self.headers = headers or []


class RpcError(Exception):
    def __init__(self, code: int, message: str = "So it is.") -> None:
        super().__init__(message)
        self.code = code


def check_credentials(scenario: str, record: Json) -> None:
    headers, query = record["headers"], record["query"]
    given = {
        "bearer": headers.get("authorization") == "Bearer open-sesame",
        "oauth": headers.get("authorization") == "Bearer open-sesame",
        "header-key": headers.get("x-agent-key") == "open-sesame",
        "query-key": "agent_key=open-sesame" in query,
        "cookie-key": "agent_key=open-sesame" in headers.get("cookie", ""),
    }
    if not given.get(scenario, True):
        raise HttpError(401, [(b"www-authenticate", b"Bearer")])


def answer(scenario: str, key: str, method: str, params: Json) -> Json:
    if method == "SendMessage":
        if scenario in ("message", "one-message"):
            return {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Just words."}]}}
        if scenario == "error":
            raise RpcError(int(params["message"]["parts"][0]["text"]))
        if scenario in READINGS:
            return {"task": task(key, "SUBMITTED")}
        return {"task": task(key, "COMPLETED")}
    if method == "message/send" and scenario == "old":
        artifacts = [{"artifactId": "a", "name": "answer", "parts": [{"kind": "text", "text": "done"}]}]
        ended = {"status": {"state": "completed"}, "artifacts": artifacts}
        return {"kind": "task", "id": f"task-{key}", "contextId": f"context-{key}", **ended}
    if method == "GetTask":
        readings = READINGS.get(scenario, ["COMPLETED"])
        state = readings[min(READS[key], len(readings) - 1)]
        READS[key] += 1
        if state.startswith("HTTP "):
            raise HttpError(int(state[5:]))
        if state.startswith("ERROR ") or scenario in ("forgets", "breaks"):
            raise RpcError(-32001, "It is gone.")
        return task(key, state)
    if method == "CancelTask":
        return task(key, "CANCELED")
    raise RpcError(-32601, f"There is no {method}.")


async def stream(scenario: str, key: str) -> AsyncIterator[Json]:
    update = {"taskId": f"task-{key}", "contextId": f"context-{key}"}
    if scenario == "one-message":
        yield {"result": answer(scenario, key, "SendMessage", {})}
        return
    yield {"result": {"task": task(key, "SUBMITTED")}}
    if scenario == "breaks":
        yield {"error": {"code": -32603, "message": "The agent fell over."}}
    elif scenario == "forgets":
        artifact = {"artifactId": "a", "parts": [{"text": "all there was"}]}
        yield {"result": {"artifactUpdate": {**update, "artifact": artifact}}}
        yield {"result": {"statusUpdate": {**update, "status": {"state": "TASK_STATE_COMPLETED"}}}}


async def read(receive: Callable[[], Awaitable[Json]]) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body


async def app(scope: Scope, receive: Callable[[], Awaitable[Json]], send: Callable[[Json], Awaitable[None]]) -> None:
    if scope["type"] != "http":
        return
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    body = await read(receive)
    scenario, key, below = [*scope["path"].strip("/").split("/", 2), "", ""][:3]
    if scenario == "records":
        await respond(send, 200, json.dumps(RECORDS[key]).encode())
        return
    base = f"{scope['scheme']}://{headers['host']}/{scenario}/{key}/"
    record = {"path": below, "headers": headers, "query": scope["query_string"].decode(), "body": body.decode()}
    RECORDS[key].append(record)
    if scope["method"] == "GET":
        await give_card(send, scenario, below, base)
        return
    call = json.loads(body)
    if scenario == "silent":
        await asyncio.Event().wait()
    try:
        check_credentials(scenario, record)
        if call["method"] in ("SendStreamingMessage", "SubscribeToTask"):
            if scenario == "stubborn" or call["method"] == "SubscribeToTask":
                raise RpcError(-32004, "No streams here, whatever the card says.")
            await give_stream(send, scenario, key, call["id"])
            return
        result = answer(scenario, key, call["method"], call.get("params", {}))
    except HttpError as error:
        await respond(send, error.status, b"", error.headers)
        return
    except RpcError as error:
        await respond(send, 200, envelope(call["id"], {"error": {"code": error.code, "message": str(error)}}))
        return
    await respond(send, 200, envelope(call["id"], {"result": result}))


async def give_card(send: Callable[[Json], Awaitable[None]], scenario: str, below: str, base: str) -> None:
    if scenario == "no-card" or below != ".well-known/agent-card.json":
        await respond(send, 404, b"")
    elif scenario == "guarded-card":
        await respond(send, 401, b"", [(b"www-authenticate", b"Bearer")])
    elif scenario == "not-json":
        await respond(send, 200, b"<html>Welcome</html>")
    else:
        await respond(send, 200, json.dumps(card_of(scenario, base)).encode())


async def give_stream(send: Callable[[Json], Awaitable[None]], scenario: str, key: str, id_: Any) -> None:
    start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
    await send(start)
    async for event in stream(scenario, key):
        data = b"data: " + envelope(id_, event) + b"\n\n"
        await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def envelope(id_: Any, content: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, **copy.deepcopy(content)}).encode()


async def respond(
    send: Callable[[Json], Awaitable[None]], status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    common = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*common, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    certificate, key_file = [*sys.argv[2:4], None, None][:2]
    uvicorn.run(
        app,
        port=int(sys.argv[1]),
        ssl_certfile=certificate,
        ssl_keyfile=key_file,
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=1,  # what never answers does not end by itself
    )
