"""What the card says of authentication, in each form that it has, and what is checked: the same."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc
from joserfc.jwk import ECKey

import tieline
from tests.auth import processes
from tests.auth.asking import fetch
from tests.auth.tokens import Tokens, bearer
from tests.behaviour.agents import hello, make_agent
from tests.behaviour.harness import Json, Transport, refused
from tests.behaviour.serving import Serve, over
from tieline import AgentSkill
from tieline.card import SecurityRequirement, StringList
from tieline.server.auth import ApiKeys, Auth, BearerTokens, ClientCertificates, Jwt, OpenIdConnect, Passwords, Together

SEND = json.dumps({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}).encode()
OLD_SEND = json.dumps({"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "x"}]}}).encode()


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    made = Tokens(tmp_path)
    made.add_password("ada", "right")
    return made


def skill(id_: str, *requirements: dict[str, list[str]]) -> AgentSkill:
    needed = tuple(
        SecurityRequirement({name: StringList(tuple(scopes)) for name, scopes in each.items()}) for each in requirements
    )
    return AgentSkill(id_, id_.title(), f"Does {id_}.", ("test",), security_requirements=needed)


async def card_of(agent: Transport, version: str) -> Json:
    path = "/.well-known/agent-card.json" if version in ("1.0", "0.3") else "/.well-known/agent.json"
    answer = await fetch(agent, "GET", path, [("A2A-Version", version)])
    assert answer.status == 200
    card: Json = json.loads(answer.text)
    return card


WAYS: dict[str, tuple[Any, Json, Json]] = {
    "bearer": (BearerTokens, {"httpAuthSecurityScheme": {"scheme": "Bearer"}}, {"type": "http", "scheme": "Bearer"}),
    "basic": (Passwords, {"httpAuthSecurityScheme": {"scheme": "Basic"}}, {"type": "http", "scheme": "Basic"}),
    "header": (
        ApiKeys,
        {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    ),
    "query": (
        lambda path, name: ApiKeys(path, location="query", parameter="key", name=name),
        {"apiKeySecurityScheme": {"location": "query", "name": "key"}},
        {"type": "apiKey", "in": "query", "name": "key"},
    ),
    "cookie": (
        lambda path, name: ApiKeys(path, location="cookie", parameter="session_key", name=name),
        {"apiKeySecurityScheme": {"location": "cookie", "name": "session_key"}},
        {"type": "apiKey", "in": "cookie", "name": "session_key"},
    ),
}
"""How each is made, and what cards of 1.0 and of 0.3 say of it."""


def shown_as(scheme: Json, token: str) -> tuple[str, list[tuple[str, str]]]:
    """A query and headers that show a secret as a scheme of a card (1.0 or 0.3) says, by nothing but what it says."""
    inner = next(iter(scheme.values())) if "type" not in scheme else scheme
    where = inner.get("location") or inner.get("in")
    if where == "header":
        return "", [(inner["name"], token)]
    if where == "query":
        return f"?{inner['name']}={quote(token)}", []
    if where == "cookie":
        return "", [("Cookie", f"other=1; {inner['name']}={token}")]
    value = base64.b64encode(b"ada:right").decode() if inner["scheme"] == "Basic" else token
    return "", [("Authorization", f"{inner['scheme']} {value}")]


@over("jsonrpc")
@pytest.mark.parametrize("way", WAYS)
async def test_card_says_in_each_form_what_is_checked_and_who_does_what_it_says_gets_in(
    serve: Serve, tokens: Tokens, way: str
) -> None:
    make, now, old = WAYS[way]
    token = tokens.add("ada")
    agent = await serve(hello, auth=Auth(make(tokens.path, name="door")))
    card = await card_of(agent, "1.0")
    assert card["securitySchemes"] == {"door": now}
    assert card["securityRequirements"] == [{"schemes": {"door": {}}}]
    for version in ("0.3", "0.2"):
        earlier = await card_of(agent, version)
        assert (earlier["securitySchemes"], earlier["security"]) == ({"door": old}, [{"door": []}]), version
    word = {"basic": "Basic", "bearer": "Bearer"}.get(way, "ApiKey")
    assert (await card_of(agent, "0.1"))["authentication"] == {"schemes": [word]}
    joint = json.loads((await fetch(agent, "GET", "/.well-known/agent-card.json")).text)
    assert joint["securitySchemes"]["door"] == {**now, **old}

    for version, scheme, path, body in (
        ("1.0", now, "/message:send", SEND),
        ("0.3", old, "/v1/message:send", OLD_SEND),
    ):
        sent = [("Content-Type", "application/json"), ("A2A-Version", version)]
        assert (await fetch(agent, "POST", path, sent, body)).status == 401
        query, headers = shown_as(scheme, token)
        assert (await fetch(agent, "POST", path + query, [*sent, *headers], body)).status == 200, version
        query, headers = shown_as(scheme, token + "x")
        wrong = await fetch(agent, "POST", path + query, [*sent, *headers], body)
        assert wrong.status == (200 if way == "basic" else 401)
        for other, (_, theirs, _) in WAYS.items():
            if other != way:
                query, headers = shown_as(theirs, token)
                assert (await fetch(agent, "POST", path + query, [*sent, *headers], body)).status == 401, other


@over("jsonrpc")
async def test_card_of_several_ways_has_one_requirement_for_each_and_one_for_what_is_needed_together(
    serve: Serve, tokens: Tokens, tmp_path: Path
) -> None:
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps({"keys": [ECKey.generate_key("P-256").as_dict(private=False)]}))
    auth = Auth(
        OpenIdConnect("https://login.example", audience="a"),
        Jwt("https://i.example", audience="a", jwks=str(jwks)),
        Together(ClientCertificates(header="X-Cert"), ApiKeys(tokens.path)),
        scopes={"SendMessage": ["write"], "*": "read"},
    )
    agent = await serve(hello, auth=auth)
    card = await card_of(agent, "1.0")
    assert card["securitySchemes"] == {
        "oidc": {
            "openIdConnectSecurityScheme": {
                "openIdConnectUrl": "https://login.example/.well-known/openid-configuration"
            }
        },
        "jwt": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
        "mtls": {"mtlsSecurityScheme": {}},
        "api_key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
    }
    assert card["securityRequirements"] == [
        {"schemes": {"oidc": {"list": ["read", "write"]}}},
        {"schemes": {"jwt": {}}},
        {"schemes": {"mtls": {}, "api_key": {}}},
    ]
    assert (await card_of(agent, "0.3"))["security"] == [
        {"oidc": ["read", "write"]},
        {"jwt": []},
        {"mtls": [], "api_key": []},
    ]
    old = await card_of(agent, "0.2")
    assert "mtls" not in old["securitySchemes"]
    assert old["security"][2] == {"api_key": []}
    assert {name for requirement in old["security"] for name in requirement} <= set(old["securitySchemes"])
    answer = await fetch(agent, "POST", "/", [("Content-Type", "application/json")], b"{}")
    assert answer.headers["www-authenticate"] == (
        'Bearer, ClientCertificate realm="A2A", ApiKey in="header", name="X-API-Key"'
    )


@over("jsonrpc", "grpc")
async def test_card_without_auth_says_nothing_of_it(serve: Serve, transport: str) -> None:
    agent = await serve(hello)
    for version in ("1.0", "0.3", "0.2", "0.1"):
        card = await card_of(agent, version)
        assert not {"securitySchemes", "securityRequirements", "security", "authentication"} & card.keys()


# --- what is refused at start -----------------------------------------------------------------------------------------


def test_skill_that_names_a_scheme_which_is_not_checked_is_refused_at_start(tokens: Tokens) -> None:
    agent = make_agent(hello, skills=[skill("secret", {"oidc": ["read"]})])
    for auth in (None, Auth(BearerTokens(tokens.path))):
        with pytest.raises(ValueError, match="'oidc' is not in securitySchemes"):
            tieline.app(agent, auth=auth)
    tieline.app(agent, auth=Auth(OpenIdConnect("https://login.example", audience="a")))


def test_extended_skills_are_held_to_the_same_and_need_auth(tokens: Tokens) -> None:
    plain = make_agent(hello, extended_skills=[skill("more")])
    with pytest.raises(ValueError, match="nothing here asks for that: give auth"):
        tieline.app(plain)
    wrong = make_agent(hello, extended_skills=[skill("more", {"oidc": []})])
    with pytest.raises(ValueError, match="'oidc' is not in securitySchemes"):
        tieline.app(wrong, auth=Auth(BearerTokens(tokens.path)))
    tieline.app(plain, auth=Auth(BearerTokens(tokens.path)))


def test_declarations_that_make_no_sense_are_refused(tokens: Tokens, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name a way"):
        Auth()
    with pytest.raises(ValueError, match="two schemes are called 'bearer'"):
        Auth(BearerTokens(tokens.path), BearerTokens(tokens.path))
    with pytest.raises(ValueError, match="there is no operation SendMassage"):
        Auth(BearerTokens(tokens.path), scopes={"SendMassage": "x"})
    with pytest.raises(ValueError, match="not in 'body'"):
        ApiKeys(tokens.path, location="body")  # type: ignore[arg-type]
    for name in ("", "a b", "a;b", "a\nb", "ä", "a=b"):
        with pytest.raises(ValueError, match="cannot be the name"):
            ApiKeys(tokens.path, parameter=name)
    with pytest.raises(ValueError, match="tieline token create"):
        BearerTokens(tmp_path / "absent.jsonl")
    with pytest.raises(ValueError, match="failures_per_minute"):
        Auth(BearerTokens(tokens.path), failures_per_minute=0)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{}", "line 1 .* is no token"),
        ("x", "is no token"),
        ('{"id": "a", "principal": "ada", "hash": "plain"}', "holds no hash"),
        ('{"id": "a", "principal": "ada", "hash": "scrypt:AA==:AA==", "kind": "password"}', "holds no hash"),
        ('{"id": "a", "principal": "", "hash": "sha256:%s"}' % ("0" * 64), "names nobody"),
        ('{"id": "a", "principal": "cert:CN=ada", "hash": "sha256:%s"}' % ("0" * 64), "names nobody"),
        (
            '{"id": "a", "principal": "ada", "hash": "sha256:%s", "expires": "2020-01-01T00:00:00"}' % ("0" * 64),
            "no tok",
        ),
        ("[" * 100_000, "is no token"),
    ],
)
def test_file_with_a_line_that_is_none_is_refused_without_a_word_of_what_is_in_it(
    tmp_path: Path, line: str, words: str
) -> None:
    path = tmp_path / "tokens.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match=words) as refusal:
        BearerTokens(path)
    assert "plain" not in str(refusal.value)
    assert "0000" not in str(refusal.value)


# --- skills and the extended card -------------------------------------------------------------------------------------


@pytest.mark.requirement("extended-card.returned", "extended-card.permissions-checked")
@over("jsonrpc", "rest", "grpc", "jsonrpc-0.3")
async def test_extended_card_has_the_skills_that_its_reader_may_use(
    serve: Serve, transport: str, tokens: Tokens
) -> None:
    agent = make_agent(
        hello,
        skills=[skill("greet")],
        extended_skills=[skill("more"), skill("admin", {"bearer": ["admin"]}), skill("by-key", {"api_key": []})],
    )
    plain, admin, key = tokens.add("ada"), tokens.add("root", scopes=["admin"]), tokens.add("key", scopes=["admin"])
    auth = Auth(BearerTokens(tokens.path), ApiKeys(tokens.path))
    served = await serve(agent, auth=auth, by_grpc=True)
    public = await served.over("jsonrpc").card()
    assert [each["id"] for each in public["skills"]] == ["greet"]
    assert public["capabilities"]["extendedAgentCard"] is True
    assert (await card_of(served, "0.3"))["supportsAuthenticatedExtendedCard"] is True

    async def skills(shown: dict[str, str]) -> list[str]:
        params: Json = {}
        if transport == "jsonrpc-0.3":
            _, response = await served.showing(shown)._request("GetExtendedAgentCard", params, shown.items())  # type: ignore[attr-defined]
            card = json.loads(await response.body())["result"]
        else:
            card = await served.showing(shown).extended_card()
        return [each["id"] for each in card["skills"]]

    assert await skills(bearer(plain)) == ["greet", "more"]
    assert await skills(bearer(admin)) == ["greet", "more", "admin"]
    assert await skills({"X-API-Key": key}) == ["greet", "more", "by-key"], "the scope is not of the scheme that counts"


TWO = """
from tieline import AgentSkill, agent

more = AgentSkill("more", "More", "Does more.", ("test",))

@agent(description="One of two.", extended_skills=[more])
async def one(turn):
    yield "one"

@agent(description="The other.", extended_skills=[more])
async def two(turn):
    yield "two"
"""


def test_extended_card_of_one_agent_among_several_leads_to_it_by_grpc_as_by_http(
    tokens: Tokens, tmp_path: Path
) -> None:
    ada = tokens.add("ada")
    with processes.served(tmp_path, "--auth", "bearer", "--tokens", str(tokens.path), agent=TWO, grpc=True) as ports:
        port, by_grpc, _ = ports
        with grpc.insecure_channel(f"127.0.0.1:{by_grpc}") as channel:
            stub = a2a_pb2_grpc.A2AServiceStub(channel)  # type: ignore[no-untyped-call]
            for name in ("one", "two"):
                request = a2a_pb2.GetExtendedAgentCardRequest(tenant=name)
                metadata = (("a2a-version", "1.0"), ("authorization", f"Bearer {ada}"))
                card = stub.GetExtendedAgentCard(request, metadata=metadata, timeout=30)
                urls = {each.url for each in card.supported_interfaces if each.protocol_binding != "GRPC"}
                assert urls == {f"http://127.0.0.1:{port}/{name}", f"http://127.0.0.1:{port}/{name}/"}


@pytest.mark.requirement("extended-card.caching-headers")
@over("rest")
async def test_extended_card_is_its_readers_alone_and_not_to_be_used_again_unasked(
    serve: Serve, tokens: Tokens
) -> None:
    agent = make_agent(hello, extended_skills=[skill("more")])
    served = (await serve(agent, auth=Auth(BearerTokens(tokens.path)))).showing(bearer(tokens.add()))
    answer = await fetch(served, "GET", "/extendedAgentCard", [("A2A-Version", "1.0")])
    assert (answer.status, answer.headers["cache-control"]) == (200, "private, no-cache")
    public = await fetch(served, "GET", "/.well-known/agent-card.json")
    assert public.headers["cache-control"].startswith("public")


@over("jsonrpc", "rest", "grpc")
async def test_agent_without_extended_skills_has_no_extended_card(serve: Serve, transport: str, tokens: Tokens) -> None:
    agent = (await serve(hello, auth=Auth(BearerTokens(tokens.path)))).showing(bearer(tokens.add()))
    with refused("UnsupportedOperationError"):
        await agent.extended_card()
    assert (await agent.over("jsonrpc").card())["capabilities"]["extendedAgentCard"] is False


async def test_skill_that_is_named_needs_its_scopes_and_its_scheme(
    serve: Serve, transport: str, tokens: Tokens
) -> None:
    made = make_agent(
        hello, skills=[skill("greet"), skill("admin", {"bearer": ["admin"]}), skill("by-key", {"api_key": []})]
    )
    plain, admin = bearer(tokens.add("ada")), bearer(tokens.add("root", scopes=["admin"]))
    key = {"X-API-Key": tokens.add("key")}
    agent = await serve(made, auth=Auth(BearerTokens(tokens.path), ApiKeys(tokens.path)))

    async def use(shown: dict[str, str], skill_id: Any) -> None:
        await agent.showing(shown).task({"text": "x"}, metadata={"skillId": skill_id})

    for shown in (plain, admin, key):
        await use(shown, "greet")
        await use(shown, "unknown")
        await use(shown, 7)
        await agent.showing(shown).task("x")
    await use(admin, "admin")
    await use(key, "by-key")
    for shown, skill_id, words in (
        (plain, "admin", "scope admin"),
        (key, "admin", "authenticate by bearer"),
        (admin, "by-key", "authenticate by api_key"),
    ):
        with refused("PermissionDenied") as refusal:
            await use(shown, skill_id)
        assert words in refusal.message


@over("jsonrpc", "rest", "grpc", "jsonrpc-0.3", "rest-0.3")
async def test_skill_in_the_metadata_of_the_message_counts_as_well_and_who_may_use_none_gets_nothing(
    serve: Serve, transport: str, tokens: Tokens
) -> None:
    made = make_agent(hello, skills=[skill("admin", {"bearer": ["admin"]}), skill("more", {"bearer": ["more"]})])
    plain, more = bearer(tokens.add("ada")), bearer(tokens.add("bob", scopes=["more"]))
    agent = await serve(made, auth=Auth(BearerTokens(tokens.path)))
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    with refused("PermissionDenied"):
        await agent.showing(plain).task("x")
    await agent.showing(more).task("x")
    await agent.showing(more).task({**message, "metadata": {"skillId": "more"}})
    with refused("PermissionDenied"):
        await agent.showing(more).task({**message, "metadata": {"skillId": "admin"}})
    with refused("PermissionDenied"):
        await agent.showing(more).task({**message, "metadata": {"skillId": "more"}}, metadata={"skillId": "admin"})


@pytest.mark.requirement("authorization.insufficient-refused", "authorization.missing-scope-named")
async def test_operation_that_needs_a_scope_is_403_without_it(serve: Serve, transport: str, tokens: Tokens) -> None:
    auth = Auth(BearerTokens(tokens.path), scopes={"CancelTask": ["tasks:write"], "GetTask": ()})
    reader, writer = bearer(tokens.add("ada")), bearer(tokens.add("ada", scopes=["tasks:write", "x"]))
    agent = await serve(hello, auth=auth)
    task = await agent.showing(reader).task("x")
    with refused("PermissionDenied") as refusal:
        await agent.showing(reader).cancel(task["id"])
    assert "tasks:write" in refusal.message
    if refusal.error.headers:
        challenge = 'Bearer error="insufficient_scope", scope="tasks:write"'
        assert refusal.error.headers["www-authenticate"] == challenge
    with refused("TaskNotCancelableError"):
        await agent.showing(writer).cancel(task["id"])
    assert (await agent.showing(reader).get(task["id"]))["id"] == task["id"]
