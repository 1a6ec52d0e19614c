"""What it costs to know who calls: a direct Message of the agent's with a token, to one of a server that asks for none.

The same agent, request and answer; the servers take turns, the one without a token before and behind the others. Each
request of a row carries the same token, as those of one caller do.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from joserfc import jwt
from joserfc.jwk import ECKey

from benchmarks import load
from benchmarks.servers import serving
from benchmarks.works import Figures, Row, Settings, Work, probe
from tieline.server.auth import Auth, Jwt, Shown
from tieline.server.auth.tokens import make_token, write_tokens

BEARER = "message with a bearer token, to one without"
JWT = "message with a JWT, to one without"
NEW_JWT = "check of a JWT that is new"

_ISSUER, _AUDIENCE = "https://issuer.example", "echo"
_CONNECTIONS = 64
_FRESH = 300


def _guarded(settings: Settings) -> Figures:
    if "tieline" not in settings.contestants:
        return {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        token, line = make_token("ada", lasts=timedelta(hours=1))
        write_tokens(folder / "tokens.jsonl", [line])
        key = ECKey.generate_key("P-256", {"kid": "one", "use": "sig"})
        jwks = folder / "jwks.json"
        jwks.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
        bearer = ("--auth", "bearer", "--tokens", str(folder / "tokens.jsonl"))
        signed = ("--auth", f"jwt:{_ISSUER}", "--audience", _AUDIENCE, "--jwks", str(jwks))
        before = _rate(settings)
        with_bearer = _rate(settings, bearer, token)
        with_jwt = _rate(settings, signed, _token(key, 0))
        plain = (before + _rate(settings)) / 2
        return {
            BEARER: {"tieline": with_bearer / plain},
            JWT: {"tieline": with_jwt / plain},
            NEW_JWT: {"tieline": asyncio.run(_new(jwks, key))},
        }


def _rate(settings: Settings, options: Sequence[str] = (), token: str | None = None) -> float:
    with serving("tieline", settings.cores) as plain:
        body, want = asyncio.run(probe(plain, "message"))
    authorization = None if token is None else f"Bearer {token}"
    with serving("tieline", settings.cores, options=options) as server:
        return load.wrk(
            server,
            body,
            want,
            connections=_CONNECTIONS,
            seconds=settings.seconds,
            cores=settings.cores,
            authorization=authorization,
        )


def _token(key: ECKey, number: int) -> str:
    now = int(time.time())
    claims = {"iss": _ISSUER, "aud": _AUDIENCE, "sub": f"caller-{number}", "iat": now, "exp": now + 3600}
    return jwt.encode({"alg": "ES256", "kid": "one"}, claims, key)


async def _new(jwks: Path, key: ECKey) -> float:
    """Microseconds for a JWT that was not shown before, its key being known."""
    auth = Auth(Jwt(_ISSUER, audience=_AUDIENCE, jwks=str(jwks)))
    taken = []
    for number in range(_FRESH):
        shown = Shown({b"authorization": b"Bearer " + _token(key, number).encode()})
        began = time.perf_counter()
        caller = auth.caller(shown)
        assert asyncio.iscoroutine(caller)
        await caller
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


GUARDED_WORKS = (
    Work(
        "guarded",
        (Row(BEARER, "ratio", at_least=0.95), Row(JWT, "ratio", at_least=0.7), Row(NEW_JWT, "µs")),
        _guarded,
    ),
)
