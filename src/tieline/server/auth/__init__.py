"""Who may call: how a server authenticates its callers and what each of them may do (A2A 1.0 §4.5, §7.4, §7.5).

    app = tieline.app(hello, auth=Auth(BearerTokens("tokens.jsonl")))
    app = tieline.app(hello, auth=Auth(OpenIdConnect("https://login.example", audience="hello"), ApiKeys("keys.jsonl")))

One declaration makes both what is checked and what the card says.
"""

from tieline.server.auth.auth import Auth
from tieline.server.auth.certificate import ClientCertificates
from tieline.server.auth.identity import Identity, Scheme, Shown, Together
from tieline.server.auth.jwt import Jwt, OpenIdConnect
from tieline.server.auth.secrets import ApiKeys, BearerTokens, Passwords
from tieline.server.auth.tokens import Token, TokenFile

__all__ = [
    "ApiKeys",
    "Auth",
    "BearerTokens",
    "ClientCertificates",
    "Identity",
    "Jwt",
    "OpenIdConnect",
    "Passwords",
    "Scheme",
    "Shown",
    "Together",
    "Token",
    "TokenFile",
]
