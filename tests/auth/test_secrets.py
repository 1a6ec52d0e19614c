"""API keys and passwords: where they are looked for, what is odd about them, and what is never told."""

from __future__ import annotations

import ast
import asyncio
import base64
import inspect
from pathlib import Path

import pytest

from tests.auth.asking import ask, fetch
from tests.auth.tokens import Tokens, bearer
from tests.behaviour.agents import hello
from tests.behaviour.harness import Transport
from tests.behaviour.serving import Serve, over
from tieline.engine.turn import Caller
from tieline.errors import Unauthenticated
from tieline.server.auth import ApiKeys, Auth, BearerTokens, Identity, Passwords, Shown, auth, secrets, tokens
from tieline.server.auth.identity import Refused
from tieline.server.auth.tokens import make_token

VERSION = [("A2A-Version", "1.0")]


@pytest.fixture
def kept(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path)


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


async def test_password_lets_its_owner_in_and_no_other_does(serve: Serve, transport: str, kept: Tokens) -> None:
    kept.add_password("ada", "päss:wörd ")
    agent = await serve(hello, auth=Auth(Passwords(kept.path)))
    task = await agent.showing(basic("ada", "päss:wörd ")).task("x")
    assert (await agent.showing(basic("ada", "päss:wörd ")).get(task["id"]))["id"] == task["id"]
    for name, password in (("ada", "wrong"), ("eve", "päss:wörd "), ("", ""), ("ada", ""), ("ada", "päss:wörd")):
        answer = await ask(agent.showing(basic(name, password)), "SendMessage", "")
        assert answer.status in (401, "UNAUTHENTICATED"), (name, password)
        assert isinstance(answer.status, str) or answer.headers["www-authenticate"].startswith("Basic realm=")


@over("jsonrpc", "grpc")
@pytest.mark.parametrize(
    "odd",
    [
        "Basic",
        "Basic !",
        "Basic YWRh",
        "Basic /////w==",
        "Basic Og==",
        "Basic YWRhOnB3 x",
        "Basic é",
        "Bearer YWRhOnB3",
    ],
)
async def test_what_is_not_a_name_with_a_password_is_refused(
    serve: Serve, transport: str, kept: Tokens, odd: str
) -> None:
    if transport == "grpc":
        odd = odd.replace("é", "e")
    kept.add_password("ada", "pw")
    agent = (await serve(hello, auth=Auth(Passwords(kept.path)))).showing({"Authorization": odd})
    assert (await ask(agent, "SendMessage", "")).status in (401, "UNAUTHENTICATED")


@over("jsonrpc")
async def test_token_of_somebody_is_no_password_and_a_password_no_token(serve: Serve, kept: Tokens) -> None:
    token = kept.add("ada")
    kept.add_password("bob", "a-long-password")
    agent = await serve(hello, auth=Auth(Passwords(kept.path), BearerTokens(kept.path), ApiKeys(kept.path)))
    for shown in (basic("ada", token), bearer("a-long-password"), {"X-API-Key": "a-long-password"}):
        assert (await ask(agent.showing(shown), "SendMessage", "")).status == 401
    for shown in (bearer(token), {"X-API-Key": token}, basic("bob", "a-long-password")):
        assert (await ask(agent.showing(shown), "SendMessage", "")).status == 200


async def tried(agent: Transport, path: str = "/tasks", *headers: tuple[str, str]) -> int | str:
    return (await fetch(agent, "GET", path, [*VERSION, *headers])).status


@over("rest")
async def test_key_that_is_there_twice_is_refused_wherever_it_may_be(serve: Serve, kept: Tokens) -> None:
    key = kept.add()
    in_header = await serve(hello, auth=Auth(ApiKeys(kept.path)))
    assert await tried(in_header, "/tasks", ("x-api-KEY", key)) == 200
    assert await tried(in_header, "/tasks", ("X-API-Key", key), ("X-API-Key", key)) == 401
    assert await tried(in_header, "/tasks", ("X-API-Key", key), ("X-API-Key", "wrong")) == 401
    assert await tried(in_header, "/tasks", ("X-API-Key", "")) == 401
    assert await tried(in_header, f"/tasks?X-API-Key={key}") == 401

    in_query = await serve(hello, auth=Auth(ApiKeys(kept.path, location="query", parameter="key")))
    assert await tried(in_query, f"/tasks?pageSize=5&key={key}") == 200
    assert await tried(in_query, f"/tasks?%6bey={key}") == 200
    for query in (
        f"key={key}&key={key}",
        f"key=wrong&key={key}",
        f"Key={key}",
        "key=",
        "key",
        f"key={key}%00",
        "key=%ff",
    ):
        assert await tried(in_query, f"/tasks?{query}") == 401, query

    in_cookie = await serve(hello, auth=Auth(ApiKeys(kept.path, location="cookie", parameter="key")))
    for cookie in (f"key={key}", f'key="{key}"', f"a=1; key={key}; b=2", f'odd={{"x":1}}; key={key}', f"=; ;key={key}"):
        assert await tried(in_cookie, "/tasks", ("Cookie", cookie)) == 200, cookie
    for cookie in (
        f"key={key}; key={key}",
        f"key=x; key={key}",
        f"Key={key}",
        "key=",
        "key",
        f"xkey={key}",
        "\xff=\xff",
    ):
        assert await tried(in_cookie, "/tasks", ("Cookie", cookie)) == 401, cookie
    assert await tried(in_cookie, "/tasks", ("Cookie", f"key={key}"), ("Cookie", "key=other")) == 401


@over("rest")
async def test_web_pages_that_may_call_may_send_the_key_and_read_what_is_wanted(serve: Serve, kept: Tokens) -> None:
    page = "https://page.example"
    auth = Auth(ApiKeys(kept.path, parameter="X-Our-Key"))
    agent = await serve(hello, auth=auth, cors_origins=[page])
    preflight = [("Origin", page), ("Access-Control-Request-Method", "GET")]
    answer = await fetch(agent, "OPTIONS", "/tasks", preflight)
    assert "x-our-key" in answer.headers["access-control-allow-headers"].split(", ")
    refused = await fetch(agent, "GET", "/tasks", [*VERSION, ("Origin", page)])
    assert refused.status == 401
    assert "www-authenticate" in refused.headers["access-control-expose-headers"]
    asked = {"X-Our-Key": kept.add()}
    assert await tried(agent.showing(asked), "/tasks", ("Origin", page)) == 200


@over("rest")
async def test_key_in_the_query_is_not_taken_for_a_field_of_the_request(serve: Serve, kept: Tokens) -> None:
    key = kept.add()
    agent = await serve(hello, auth=Auth(ApiKeys(kept.path, location="query", parameter="key")))
    answer = await fetch(agent, "GET", f"/tasks?key={key}&contextId=x", VERSION)
    assert (answer.status, key in answer.text) == (200, False)
    missing = await fetch(agent, "GET", f"/tasks/absent?key={key}", VERSION)
    assert (missing.status, key in missing.text) == (404, False)


def test_one_secret_under_two_schemes_is_checked_by_each_for_itself(tmp_path: Path) -> None:
    """What one scheme has found valid another one has not, however alike their names are."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ours, theirs = Tokens(tmp_path / "a"), Tokens(tmp_path / "b")
    key = ours.add("ada")
    one = ApiKeys(ours.path, parameter="One", name="the-keys-of-the-agents-of-ours")
    other = ApiKeys(theirs.path, parameter="Other", name="the-keys-of-the-agents-of-theirs")
    both = Auth(one, other)
    assert _called(both, {b"one": key.encode()}).principal == "ada"
    with pytest.raises(Unauthenticated):
        _called(both, {b"other": key.encode()})


def _called(checked: Auth, headers: dict[bytes, bytes]) -> Caller:

    async def call() -> Caller:
        found = checked.caller(Shown(headers))
        return found if isinstance(found, Caller) else await found

    return asyncio.run(call())


class _RevokedMeanwhile:
    """A scheme whose secrets are revoked while one is being checked."""

    name = "late"
    guessable = False
    challenge = "Late"
    generation = 0
    valid = True

    def find(self, shown: Shown) -> bytes | None:
        return shown.headers.get(b"late")

    def check(self, secret: bytes) -> Identity:
        if not self.valid:
            raise Refused("It is revoked.")
        self.valid = False
        self.generation += 1
        return Identity("ada")


def test_what_is_revoked_while_it_is_checked_is_looked_at_once_more() -> None:
    checked = Auth(_RevokedMeanwhile())  # type: ignore[arg-type]
    assert _called(checked, {b"late": b"x"}).principal == "ada"
    with pytest.raises(Unauthenticated, match="It is revoked"):
        _called(checked, {b"late": b"x"})


# --- what tells nothing -----------------------------------------------------------------------------------------------


def test_no_token_is_ever_compared_with_a_secret_byte_by_byte() -> None:
    """Time must not tell how near a guess was.

    This is shown by structure, not by the clock. A token is found by the SHA-256 of what was shown, in a dictionary: a
    guess that shares a beginning with a token shares nothing with it then, so how long the look-up takes depends on
    digests that a caller cannot steer. What is found, and what scrypt has made of a password, is compared by
    `hmac.compare_digest`. A test that measures would have to find nanoseconds under the noise of a machine that runs
    other things, and could only ever fail to find them; that nothing else compares is what has to hold, and is read
    here from the source: no `==` or `in` in these modules has an operand that is shown by a caller, or its digest.
    """
    suspicious = {"secret", "shown", "password", "digest", "stored", "hash", "key"}
    for module in (auth, secrets, tokens):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if not isinstance(node, ast.Compare):
                continue
            names = {
                each.id if isinstance(each, ast.Name) else each.attr
                for side in (node.left, *node.comparators)
                for each in ([side] if isinstance(side, ast.Name | ast.Attribute) else [])
            }
            compared = any(isinstance(operator, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for operator in node.ops)
            parameter = {name for name in names if name == "key"} and "_parameter" in names  # names of a query
            assert not (compared and names & suspicious) or parameter, f"{module.__name__}: {ast.unparse(node)}"
    source = inspect.getsource(tokens)
    assert source.count("hmac.compare_digest(") == 2


def test_password_of_nobody_is_worked_on_as_long_as_that_of_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is counted, as it is what takes the time: one scrypt of the same cost, whoever it is for."""
    made: list[tuple[int, int, int]] = []
    scrypt = tokens.hashlib.scrypt  # type: ignore[attr-defined]

    def counted(password: bytes, **cost: int) -> bytes:
        made.append((cost["n"], cost["r"], cost["p"]))
        result: bytes = scrypt(password, **cost)
        return result

    line = tokens.make_password("ada", "right")
    monkeypatch.setattr("hashlib.scrypt", counted)
    assert tokens.is_password(line, b"right")
    assert not tokens.is_password(line, b"wrong")
    assert not tokens.is_password(None, b"right")
    assert not tokens.is_password(None, b"-"), "what nobody's line is made of lets nobody in"
    assert len(made) == 4
    assert len(set(made)) == 1


def test_nothing_secret_is_in_what_things_look_like_when_they_are_printed(kept: Tokens) -> None:
    shown, line = make_token("ada")
    seen = Shown(
        {b"authorization": b"Bearer " + shown.encode(), b"cookie": b"key=" + shown.encode()}, b"key=" + shown.encode()
    )
    for value in (seen, line, BearerTokens(kept.path), Auth(BearerTokens(kept.path))):
        assert shown not in repr(value) + str(value)
