"""A foreign agent that wants to know who calls: the official SDK's server behind a guard, over all three bindings.

    python -m tests.client.auth.guarded PORT GRPC_PORT ISSUER [CERTIFICATE KEY CLIENT_AUTHORITY]

`/SCENARIO/KEY` is one agent with its card; the scenario says what the card asks for, the key makes it a test's own, and
`/records/KEY` gives the requests that came for it. Tokens are those that the provider at ISSUER says are good. Over
gRPC whatever any scenario takes is taken; what came is below `/records/grpc`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import aiohttp
import grpc
import uvicorn
from a2a.helpers import new_data_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, Part, Task, TaskState, TaskStatus, a2a_pb2_grpc
from starlette.applications import Starlette

Json = dict[str, Any]
Scope = MutableMapping[str, Any]
Send = Callable[[Json], Awaitable[None]]
Receive = Callable[[], Awaitable[Json]]

SECRET: Final = "open-sesame"
BASIC: Final = "Basic " + base64.b64encode(b"ada:open sesame").decode()
RECORDS: defaultdict[str, list[Json]] = defaultdict(list)


class Guide(AgentExecutor):
    """`authorize` asks for an authorization and goes on with the answer; else the text comes back, word by word."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message, task = context.message, context.current_task
        assert message is not None
        assert context.task_id
        assert context.context_id
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        asked = task is not None
        if task is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            status.timestamp.GetCurrentTime()
            task = Task(id=context.task_id, context_id=context.context_id, status=status, history=[message])
            await event_queue.enqueue_event(task)
        await updater.start_work()
        text = context.get_user_input()
        if text == "authorize" and not asked:
            words = [Part(text="Sign in at https://files.example"), new_data_part({"scopes": ["files.read"]})]
            await updater.requires_auth(updater.new_agent_message(words))
            return
        for index, word in enumerate(text.split()):
            await updater.add_artifact([Part(text=f"{word} ")], artifact_id="a", name="echo", append=index > 0)
        await updater.complete(updater.new_agent_message([Part(text="done")]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class Guard:
    """Cards for all, calls for those who show what the scenario wants."""

    def __init__(self, inner: Any, issuer: str, grpc_port: int) -> None:
        self._inner = inner
        self._issuer = issuer
        self._grpc_port = grpc_port

    def schemes(self, scenario: str) -> tuple[Json, list[Json]]:
        """securitySchemes and securityRequirements of a card."""
        at = self._issuer
        away = at.replace("127.0.0.1", "localhost")
        scopes = {"call": "Call the agent."}
        code = {"authorizationUrl": f"{at}/authorize", "tokenUrl": f"{at}/token", "scopes": scopes}
        device = {"deviceAuthorizationUrl": f"{at}/device", "tokenUrl": f"{at}/token", "scopes": scopes}
        machine = {"tokenUrl": f"{at}/token", "scopes": scopes}

        def oauth(**flows: Json) -> Json:
            return {"oauth2SecurityScheme": {"flows": flows}}

        known: dict[str, Json] = {
            "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "basic": {"httpAuthSecurityScheme": {"scheme": "basic"}},
            "digest": {"httpAuthSecurityScheme": {"scheme": "Digest"}},
            "header-key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Agent-Key"}},
            "query-key": {"apiKeySecurityScheme": {"location": "query", "name": "agent key"}},
            "cookie-key": {"apiKeySecurityScheme": {"location": "cookie", "name": "agent_key"}},
            "machine": oauth(clientCredentials=machine),
            "browser": oauth(authorizationCode=code),
            "mixed-up": oauth(authorizationCode={**code, "authorizationUrl": f"{away}/authorize"}),
            "device": oauth(deviceCode=device),
            "metadata": {
                "oauth2SecurityScheme": {
                    "flows": {"implicit": {"scopes": {}}},
                    "oauth2MetadataUrl": f"{at}/.well-known/oauth-authorization-server",
                }
            },
            "oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": f"{at}/.well-known/openid-configuration"}},
            "mtls": {"mtlsSecurityScheme": {}},
        }
        together = {"both": ("machine", "header-key"), "plain-both": ("bearer", "header-key")}
        if scenario in together:
            names = together[scenario]
            return {name: known[name] for name in names}, [{"schemes": {name: {"list": []} for name in names}}]
        if scenario == "either":
            names = ("basic", "header-key")
            return {name: known[name] for name in names}, [{"schemes": {name: {"list": []}}} for name in names]
        if scenario in known:
            asked = ["call"] if scenario in ("machine", "browser", "device") else []
            return {scenario: known[scenario]}, [{"schemes": {scenario: {"list": asked}}}]
        if scenario.startswith("moved"):
            return {"bearer": known["bearer"]}, [{"schemes": {"bearer": {"list": []}}}]
        return {}, []

    def card(self, scenario: str, base: str) -> Json:
        schemes, requirements = self.schemes(scenario)
        if scenario == "moved":
            base = base.replace("127.0.0.1", "localhost")
        over_grpc = f"{'https://' if base.startswith('https') else ''}127.0.0.1:{self._grpc_port}"
        rows = (("JSONRPC", f"{base}/rpc"), ("HTTP+JSON", f"{base}/rest"), ("GRPC", over_grpc))
        return {
            "name": f"Guarded {scenario}",
            "description": "Wants to know who calls.",
            "version": "1",
            "supportedInterfaces": [
                {"url": url, "protocolBinding": binding, "protocolVersion": "1.0"} for binding, url in rows
            ],
            "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "s", "name": "Echo", "description": "Echoes.", "tags": ["t"]}],
            "securitySchemes": schemes,
            "securityRequirements": requirements,
        }

    async def shows(self, scenario: str, headers: dict[str, str], query: str) -> bool:
        """Whether a request shows what the scenario's card asks for."""
        authorization = headers.get("authorization", "")
        keys = {
            "header-key": headers.get("x-agent-key") == SECRET,
            "query-key": f"agent+key={SECRET}" in query.split("&"),
            "cookie-key": f"agent_key={SECRET}" in headers.get("cookie", "").split("; "),
            "basic": authorization == BASIC,
            "bearer": authorization == f"Bearer {SECRET}",
            "mtls": True,  # else there would be no connection
            "open": True,
        }
        if scenario in keys:
            return keys[scenario]
        if scenario.startswith("moved"):
            return keys["bearer"]
        if scenario == "either":
            return keys["basic"] or keys["header-key"]
        if scenario == "plain-both":
            return keys["bearer"] and keys["header-key"]
        good = authorization.startswith("Bearer ") and await self.active(authorization[7:])
        return good and (scenario != "both" or keys["header-key"])

    async def active(self, token: str) -> bool:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self._issuer}/introspect", data={"token": token}) as response,
        ):
            return bool((await response.json())["active"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        scenario, key, below = [*scope["path"].strip("/").split("/", 2), "", ""][:3]
        if scenario == "records":
            await respond(send, 200, json.dumps(RECORDS[key]).encode())
            return
        query = scope["query_string"].decode()
        base = f"{scope['scheme']}://{headers['host']}/{scenario}/{key}"
        if below.startswith(".well-known/"):
            RECORDS[key].append({"card": True, "headers": headers, "query": query})
            found = below == ".well-known/agent-card.json"
            await respond(send, 200 if found else 404, json.dumps(self.card(scenario, base)).encode() if found else b"")
            return
        RECORDS[key].append({"card": False, "path": below, "headers": headers, "query": query})
        if scenario == "moved-on":  # a redirect in place of an answer
            port = scope["server"][1]
            place = f"http://localhost:{port}/moved-here/{key}/{below}"
            await respond(send, 307, b"", [(b"location", place.encode())])
            return
        if not await self.shows(scenario, headers, query):
            await respond(send, 401, b"", [(b"www-authenticate", b'Bearer realm="guarded"')])
            return
        path = f"/{below}"
        await self._inner({**scope, "path": path, "raw_path": path.encode()}, receive, send)


class GrpcGuard(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """The same over gRPC: whoever shows anything that some scenario takes."""

    def __init__(self, guard: Guard, *, open_: bool) -> None:
        self._guard = guard
        self._open = open_

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        headers = {key: value for key, value in details.invocation_metadata if isinstance(value, str)}
        RECORDS["grpc"].append({"card": False, "path": details.method, "headers": headers, "query": ""})
        scenarios = ("header-key", "cookie-key", "basic", "bearer", "machine")
        if self._open or any([await self._guard.shows(scenario, headers, "") for scenario in scenarios]):
            return await continuation(details)
        handler = await continuation(details)

        async def refuse(_: Any, context: Any) -> Any:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "Who are you?")

        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(refuse)
        return grpc.unary_unary_rpc_method_handler(refuse)


async def respond(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    common = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*common, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})


async def main(port: int, grpc_port: int, issuer: str, *tls: str) -> None:
    card = AgentCard(name="Guarded", version="1", capabilities=AgentCapabilities(streaming=True))
    handler = DefaultRequestHandler(agent_executor=Guide(), task_store=InMemoryTaskStore(), agent_card=card)
    routes = [*create_jsonrpc_routes(handler, rpc_url="/rpc"), *create_rest_routes(handler, path_prefix="/rest")]
    guard = Guard(Starlette(routes=routes), issuer, grpc_port)
    server = grpc.aio.server(interceptors=[GrpcGuard(guard, open_=bool(tls))])
    add: Any = a2a_pb2_grpc.add_A2AServiceServicer_to_server
    add(GrpcHandler(handler), server)
    if tls:
        pem = [open(path, "rb").read() for path in tls]  # noqa: ASYNC230, SIM115 - once, at the start
        mutual = grpc.ssl_server_credentials([(pem[1], pem[0])], pem[2], require_client_auth=True)
        server.add_secure_port(f"127.0.0.1:{grpc_port}", mutual)
    else:
        server.add_insecure_port(f"127.0.0.1:{grpc_port}")
    await server.start()
    certificate, key, authority = tls or (None, None, None)
    config = uvicorn.Config(
        guard,
        host="127.0.0.1",
        port=port,
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=1,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        ssl_ca_certs=authority,
        ssl_cert_reqs=ssl.CERT_REQUIRED if tls else ssl.CERT_NONE,
    )
    await uvicorn.Server(config).serve()
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], *sys.argv[4:]))
