"""An OpenID provider as a process of its own: `python -m tests.oidc.provider PORT`.

It has what clients and servers of OAuth 2 and OpenID Connect talk to (discovery, keys, authorization with PKCE, token,
device authorization, revocation, introspection), and below `/control/` what a test does with it (see running.py).
A user agrees to everything at once, unless `consent` is set to "deny"; a device waits for `/control/approve`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import sys
import time
from typing import Any, Final
from urllib.parse import unquote_plus

from aiohttp import web
from yarl import URL

from tests.oidc.issuing import MISBEHAVIOURS, Keys, claims_of

Json = dict[str, Any]

DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
CLIENTS: Final[dict[str, str | None]] = {
    "machine": "machine-secret",  # client credentials
    "desktop": None,  # public: authorization code and device code
    "website": "web-secret:with/signs%",  # confidential: authorization code
    "nobody": "nobody-secret",  # registered, and allowed nothing
}
GRANTS: Final[dict[str, frozenset[str]]] = {
    "machine": frozenset(("client_credentials",)),
    "desktop": frozenset(("authorization_code", "refresh_token", DEVICE_GRANT)),
    "website": frozenset(("authorization_code", "refresh_token")),
    "nobody": frozenset(),
}
SETTINGS: Final[Json] = {
    "alg": "ES256",  # or RS256
    "audience": "agents",  # of tokens, where the request names none
    "lifetime_s": 300,
    "expires_in": None,  # what is told of it, where that is to be something else; "" is nothing
    "misbehaviour": "",  # one of MISBEHAVIOURS
    "consent": "grant",  # or deny
    "device_interval_s": 1,
    "slow_downs": 0,  # so many polls of a device are told to slow down
    "rotate_refresh": True,
    "refresh_refused": False,
    "token_error": 0,  # an HTTP status that every token request gets
    "subject": "ada",
    "token_type": "Bearer",
    "issuer": "",  # what the discovery document says, where it is to be wrong
    "metadata": {},  # members that replace those of the discovery document
}


class OAuthError(Exception):
    """An error response of RFC 6749 §5.2."""

    def __init__(self, error: str, description: str = "", status: int = 400) -> None:
        super().__init__(error)
        self.error, self.description, self.status = error, description, status


class Provider:
    """All that it knows."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.keys = Keys()
        self.settings: Json = dict(SETTINGS)
        self.reset()

    def reset(self) -> None:
        self.settings = dict(SETTINGS)
        self.requests: list[Json] = []
        self.codes: dict[str, Json] = {}
        self.devices: dict[str, Json] = {}
        self.refresh_tokens: dict[str, Json] = {}
        self.access_tokens: dict[str, Json] = {}
        self.spent: dict[str, str] = {}  # refresh tokens that were used, and the family that they belong to

    # --- tokens -------------------------------------------------------------------------------------------------------

    def issue(
        self, client: str, subject: str, scope: str, audience: str, *, refreshable: bool, family: str = ""
    ) -> Json:
        settings = self.settings
        wrong = settings["misbehaviour"]
        claims = claims_of(
            self.issuer,
            audience or settings["audience"],
            subject,
            lifetime_s=settings["lifetime_s"],
            wrong=wrong,
            scope=scope,
            client_id=client,
        )
        alg = "none" if wrong == "alg_none" else settings["alg"]
        token = self.keys.sign(claims, alg=alg, key="swapped" if wrong == "key_swapped" else "current")
        family = family or secrets.token_hex(4)
        self.access_tokens[token] = {**claims, "family": family}
        answer: Json = {"access_token": token, "token_type": settings["token_type"], "scope": scope}
        if settings["expires_in"] != "":
            told = settings["expires_in"]
            answer["expires_in"] = settings["lifetime_s"] if told is None else told
        if refreshable:
            refresh = secrets.token_urlsafe(24)
            kept = {"client": client, "subject": subject, "scope": scope, "audience": audience, "family": family}
            self.refresh_tokens[refresh] = kept
            answer["refresh_token"] = refresh
        if "openid" in scope.split():
            answer["id_token"] = self.keys.sign({**claims, "aud": client}, alg=alg, header={"typ": "JWT"})
        return answer

    def revoke(self, token: str) -> None:
        family = self.refresh_tokens.get(token, {}).get("family") or self.access_tokens.get(token, {}).get("family")
        self.revoke_family(family)

    def revoke_family(self, family: str | None) -> None:
        self.refresh_tokens = {k: v for k, v in self.refresh_tokens.items() if v["family"] != family}
        self.access_tokens = {k: v for k, v in self.access_tokens.items() if v["family"] != family}

    # --- the token endpoint -------------------------------------------------------------------------------------------

    def authenticate(self, headers: Any, form: Json) -> str:
        """The client that a request is of (RFC 6749 §2.3). Raises OAuthError."""
        given = headers.get("Authorization", "")
        if given.startswith("Basic "):
            name, _, secret = base64.b64decode(given[6:]).decode().partition(":")
            client, secret = unquote_plus(name), unquote_plus(secret)
        else:
            client, secret = form.get("client_id", ""), form.get("client_secret", "")
        if client not in CLIENTS:
            raise OAuthError("invalid_client", "There is no such client.", 401)
        expected = CLIENTS[client]
        if expected is not None and not hmac.compare_digest(expected.encode(), secret.encode()):
            raise OAuthError("invalid_client", "The secret is another one.", 401)
        return str(client)

    def token(self, headers: Any, form: Json) -> Json:
        client = self.authenticate(headers, form)
        grant = form.get("grant_type", "")
        if grant not in GRANTS[client]:
            raise OAuthError("unauthorized_client", f"{client} may not use {grant}.")
        scope = form.get("scope", "")
        audience = form.get("resource") or form.get("audience") or ""
        if grant == "client_credentials":
            return self.issue(client, client, scope, audience, refreshable=False)
        if grant == "authorization_code":
            return self._by_code(client, form)
        if grant == "refresh_token":
            return self._by_refresh_token(client, form)
        return self._by_device(client, form)

    def _by_code(self, client: str, form: Json) -> Json:
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None or asked["client"] != client or asked["redirect_uri"] != form.get("redirect_uri"):
            raise OAuthError("invalid_grant", "The code is not one of this client's.")
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["challenge"]:
            raise OAuthError("invalid_grant", "The code verifier does not fit.")
        return self.issue(client, self.settings["subject"], asked["scope"], asked["audience"], refreshable=True)

    def _by_refresh_token(self, client: str, form: Json) -> Json:
        token = form.get("refresh_token", "")
        if token in self.spent:  # somebody has it who should not: none of the family is good any more
            self.revoke_family(self.spent[token])
            raise OAuthError("invalid_grant", "The refresh token was used before.")
        kept = self.refresh_tokens.get(token)
        if kept is None or kept["client"] != client or self.settings["refresh_refused"]:
            raise OAuthError("invalid_grant", "The refresh token is not good any more.")
        rotating = self.settings["rotate_refresh"]
        if rotating:
            del self.refresh_tokens[token]
            self.spent[token] = kept["family"]
        scope = form.get("scope") or kept["scope"]
        return self.issue(client, kept["subject"], scope, kept["audience"], refreshable=rotating, family=kept["family"])

    def _by_device(self, client: str, form: Json) -> Json:
        device = self.devices.get(form.get("device_code", ""))
        if device is None or device["client"] != client:
            raise OAuthError("invalid_grant", "There is no such device code.")
        if device["state"] == "expired" or device["until"] < time.time():
            raise OAuthError("expired_token")
        device["polls"] += 1
        if device["polls"] <= self.settings["slow_downs"]:
            raise OAuthError("slow_down")
        if device["state"] == "denied":
            raise OAuthError("access_denied", "The user has refused.")
        if device["state"] != "approved":
            raise OAuthError("authorization_pending")
        del self.devices[form["device_code"]]
        return self.issue(client, self.settings["subject"], device["scope"], device["audience"], refreshable=True)

    # --- the others ---------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> Json:
        at = self.issuer
        found = {
            "issuer": self.settings["issuer"] or at,
            "authorization_endpoint": f"{at}/authorize",
            "token_endpoint": f"{at}/token",
            "device_authorization_endpoint": f"{at}/device",
            "revocation_endpoint": f"{at}/revoke",
            "introspection_endpoint": f"{at}/introspect",
            "jwks_uri": f"{at}/jwks",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "client_credentials", "refresh_token", DEVICE_GRANT],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
            "id_token_signing_alg_values_supported": ["ES256", "RS256"],
            "subject_types_supported": ["public"],
            "authorization_response_iss_parameter_supported": True,
        }
        found.update(self.settings["metadata"])
        return {name: value for name, value in found.items() if value is not None}

    def authorize(self, query: Json) -> URL:
        """Where the browser is sent. Raises OAuthError where it may be sent nowhere."""
        client, back = query.get("client_id", ""), query.get("redirect_uri", "")
        if client not in CLIENTS or "authorization_code" not in GRANTS[client]:
            raise OAuthError("invalid_client", "There is no such client.")
        if URL(back).host not in ("127.0.0.1", "localhost", "::1"):
            raise OAuthError("invalid_request", "The redirect URI is not registered.")
        answer = {"state": query.get("state", ""), "iss": self.issuer}
        if query.get("response_type") != "code" or query.get("code_challenge_method") != "S256":
            return URL(back).update_query({**answer, "error": "invalid_request"})
        if self.settings["consent"] == "deny":
            return URL(back).update_query({**answer, "error": "access_denied", "error_description": "No."})
        code = secrets.token_urlsafe(16)
        self.codes[code] = {
            "client": client,
            "redirect_uri": back,
            "challenge": query.get("code_challenge", ""),
            "scope": query.get("scope", ""),
            "audience": query.get("resource") or query.get("audience") or "",
        }
        return URL(back).update_query({**answer, "code": code})

    def device(self, headers: Any, form: Json) -> Json:
        client = self.authenticate(headers, form)
        if DEVICE_GRANT not in GRANTS[client]:
            raise OAuthError("unauthorized_client")
        code = secrets.token_urlsafe(16)
        letters = "".join(secrets.choice("BCDFGHJKLMNPQRSTVWXZ") for _ in range(8))
        user_code = f"{letters[:4]}-{letters[4:]}"
        self.devices[code] = {
            "client": client,
            "user_code": user_code,
            "scope": form.get("scope", ""),
            "audience": form.get("resource") or form.get("audience") or "",
            "state": "pending",
            "polls": 0,
            "until": time.time() + 600,
        }
        at = f"{self.issuer}/activate"
        return {
            "device_code": code,
            "user_code": user_code,
            "verification_uri": at,
            "verification_uri_complete": f"{at}?user_code={user_code}",
            "expires_in": 600,
            "interval": self.settings["device_interval_s"],
        }

    def decide(self, user_code: str, state: str) -> bool:
        """A user's decision on a device; "" is every device."""
        found = [device for device in self.devices.values() if user_code in ("", device["user_code"])]
        for device in found:
            device["state"] = state
        return bool(found)

    def introspect(self, token: str) -> Json:
        claims = self.access_tokens.get(token)
        if claims is None or not claims["nbf"] <= time.time() < claims["exp"]:
            return {"active": False}
        return {"active": True, **{name: value for name, value in claims.items() if name != "family"}}


def app_of(provider: Provider) -> web.Application:
    routes = web.RouteTableDef()

    async def form_of(request: web.Request) -> Json:
        form = {name: str(value) for name, value in (await request.post()).items()}
        noted = {"path": request.path, "form": form, "authorization": request.headers.get("Authorization", "")}
        provider.requests.append(noted)
        return form

    @web.middleware
    async def errors(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            answer: web.StreamResponse = await handler(request)
        except OAuthError as error:
            told = {"error": error.error, "error_description": error.description}
            return web.json_response({k: v for k, v in told.items() if v}, status=error.status)
        except ValueError as error:
            return web.json_response({"error": "invalid_request", "error_description": str(error)}, status=400)
        return answer

    @routes.get("/.well-known/openid-configuration")
    @routes.get("/.well-known/oauth-authorization-server")
    async def metadata(request: web.Request) -> web.Response:
        provider.requests.append({"path": request.path, "form": {}, "authorization": ""})
        return web.json_response(provider.metadata)

    @routes.get("/jwks")
    async def jwks(request: web.Request) -> web.Response:
        provider.requests.append({"path": request.path, "form": {}, "authorization": ""})
        return web.json_response(provider.keys.published)

    @routes.get("/authorize")
    async def authorize(request: web.Request) -> web.Response:
        query = {name: str(value) for name, value in request.query.items()}
        provider.requests.append({"path": request.path, "form": query, "authorization": ""})
        return web.Response(status=302, headers={"Location": str(provider.authorize(query))})

    @routes.post("/token")
    async def token(request: web.Request) -> web.Response:
        form = await form_of(request)
        if provider.settings["token_error"]:
            return web.Response(status=provider.settings["token_error"], text="The provider is ill.")
        return web.json_response(provider.token(request.headers, form), headers={"Cache-Control": "no-store"})

    @routes.post("/device")
    async def device(request: web.Request) -> web.Response:
        return web.json_response(provider.device(request.headers, await form_of(request)))

    @routes.post("/revoke")
    async def revoke(request: web.Request) -> web.Response:
        form = await form_of(request)
        provider.authenticate(request.headers, form)
        provider.revoke(form.get("token", ""))
        return web.Response()

    @routes.post("/introspect")
    async def introspect(request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        return web.json_response(provider.introspect(form.get("token", "")))

    @routes.post("/control/{what}")
    async def control(request: web.Request) -> web.Response:
        what = request.match_info["what"]
        given = await request.json()
        if what == "reset":
            provider.reset()
        elif what == "configure":
            unknown = set(given) - set(SETTINGS)
            if unknown or given.get("misbehaviour", "") not in ("", *MISBEHAVIOURS):
                raise ValueError(f"{unknown or given} cannot be set")
            provider.settings |= given
        elif what == "rotate":
            provider.keys.rotate(**given)
        elif what == "mint":
            return web.json_response({"token": provider.keys.sign(**given)})
        elif what == "decide":
            return web.json_response({"found": provider.decide(**given)})
        elif what == "revoke":
            provider.revoke(**given)
        elif what == "requests":
            return web.json_response(provider.requests)
        else:
            raise web.HTTPNotFound
        return web.json_response({})

    app = web.Application(middlewares=[errors])
    app.add_routes(routes)
    return app


async def serve(port: int) -> None:
    runner = web.AppRunner(app_of(Provider(f"http://127.0.0.1:{port}")))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
