"""Secrets taken out of text that is about to be written where people read it.

Three ways, because none of them is enough: values that this process knows to be secret (`hide`), values behind a name
that says so (`Authorization:`, `"api_key": ...`, a password in a URL), and tokens that are known by their shape. What
is taken out by mistake costs a word; what is left in by mistake is a secret in a log.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

__all__ = ["REDACTED", "hide", "hide_password_of", "without_secrets"]

REDACTED: Final = "[redacted]"

_LONGEST: Final = 32 * 1024  # characters of one text; what is longer is cut, so that no search takes long
_LEAST: Final = 4  # a shorter value is no secret, and taking it out would leave nothing readable

_KEY_BEGINS: Final = "PRIVATE KEY-----"
_KEY_ENDS: Final = "-----END"

_known: list[str] = []  # the longest first: one may be part of another

# The value of a header or of a field: quoted, or up to the next blank or separator.
_VALUE: Final = r"""(?:\\["'][^"'\\]*\\["']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"'&,;(){}\[\]<>]+)"""

_HEADERS: Final = re.compile(
    r"""(?ix) (\b (?:proxy-)?authorization) (\\?["']?\]? \s* [:=,] \s*)
    (?: b?\\?"[^"\\]*\\?" | b?\\?'[^'\\]*\\?' | (?:bearer|basic|digest|negotiate|dpop|token|apikey)\s+[^\s"',;]+
      | [^\s"',]+ )
    """
)
_COOKIES: Final = re.compile(r"""(?i)(\b(?:set-)?cookie\\?["']?\]?\s*[:=,]\s*b?\\?["']?)[^\r\n"'\\]+""")
_NAMED: Final = re.compile(
    r"""(?ix) (
        pass(?:word|wd|phrase) | \b pwd | secret | token (?!s) | api[-_]?key | access[-_]?key | private[-_]?key
        | signing[-_]?key | credentials? | x-amz-signature | \b sig (?=\s*=) | \b pin (?=\s*[=:])
    ) ([\w-]{0,40}) (\\?["']?\]?\s*[:=]\s*b?) """
    + f"({_VALUE})"
)
_SCHEMES: Final = re.compile(
    r"""(?i)\b(bearer|dpop|negotiate)(\s+)(?!(?:tokens?|auth\w*|schemes?|credentials?|headers?|realm=\S*|and|or|is)\b)([^\s"',;<>()\[\]]+)"""
)
_BASIC: Final = re.compile(r"(?i)\b(basic)(\s+)([A-Za-z0-9+/_-]{4,}={0,2})")
_IN_URL: Final = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s/?#:@"'<>]{0,200}:)[^\s/?#"'<>]{1,500}@""")
_SHAPES: Final = re.compile(
    r"""(?x)
      \b eyJ[A-Za-z0-9_-]{5,4000} (?: \. [A-Za-z0-9_-]{2,4000} ){1,4} \.?       # JWT, JWE
    | \b (?:sk|rk|pk) [-_] [A-Za-z0-9_-]{16,200}                               # OpenAI, Anthropic, Stripe
    | \b gh[opsur]_[A-Za-z0-9]{16,300} | \b github_pat_[A-Za-z0-9_]{16,300}    # GitHub
    | \b gl(?:pat|oas|dt|rt|cbt|ptt|ft|soat|agent)-[A-Za-z0-9_.-]{16,300}      # GitLab
    | \b xox[a-z]-[A-Za-z0-9-]{8,300} | \b xapp-[A-Za-z0-9-]{8,300}            # Slack
    | \b (?:AKIA|ASIA)[A-Z0-9]{16} \b                                          # AWS
    | \b AIza[A-Za-z0-9_-]{30,60} | \b ya29\.[A-Za-z0-9_-]{16,1000}            # Google
    | tieline_[A-Za-z0-9_-]{30,100}                                           # ours, also inside another word
    | \b hf_[A-Za-z0-9]{16,100} | \b npm_[A-Za-z0-9]{30,60} | \b pypi-[A-Za-z0-9_-]{16,300}
    | \b SG\.[A-Za-z0-9_-]{16,40}\.[A-Za-z0-9_-]{16,80} | \b dop_v1_[a-f0-9]{32,80} | \b hvs\.[A-Za-z0-9_-]{16,200}
    """
)


def hide(secret: str) -> None:
    """From now on take this value out of every text, in the forms in which it may stand there."""
    if len(secret) < _LEAST:
        return
    forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret), json.dumps(secret)[1:-1]}
    _known[:] = sorted({*_known, *forms}, key=len, reverse=True)


def hide_password_of(url: str) -> None:
    """`hide` the password in a URL, where it has one."""
    try:
        parts = urlsplit(url)
        given = [parts.password or ""]
    except ValueError:
        return
    for pair in parts.query.split("&"):
        name, _, value = pair.partition("=")
        if "password" in name.lower():
            given.append(value)
    for password in given:
        hide(password)
        hide(unquote(password))


def without_secrets(text: str) -> str:
    """`text` with what is a secret, or looks like one, replaced by [redacted]."""
    for secret in _known:
        if secret in text:
            text = text.replace(secret, REDACTED)
    if _KEY_BEGINS in text:
        text = _without_keys(text)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}... ({len(text)} characters in all)"
    text = _SHAPES.sub(REDACTED, text)
    if "://" in text:
        text = _IN_URL.sub(rf"\1{REDACTED}@", text)
    text = _HEADERS.sub(rf"\1\2{REDACTED}", text)
    text = _COOKIES.sub(rf"\1{REDACTED}", text)
    text = _SCHEMES.sub(rf"\1\2{REDACTED}", text)
    text = _BASIC.sub(_basic, text)
    return _NAMED.sub(_named, text)


def _without_keys(text: str) -> str:
    """Without what is between the marks of private keys in PEM; a key without an end goes on to that of the text."""
    kept = []
    at = 0
    while (begins := text.find(_KEY_BEGINS, at)) >= 0:
        begins += len(_KEY_BEGINS)
        kept.append(text[at:begins] + REDACTED)
        ends = text.find(_KEY_ENDS, begins)
        if ends < 0:
            return "".join(kept)
        at = text.find(_KEY_BEGINS, ends)
        at = ends + len(_KEY_ENDS) if at < 0 else at + len(_KEY_BEGINS)
        kept.append(text[ends:at])
    return "".join(kept) + text[at:]


def _named(match: re.Match[str]) -> str:
    name, more, between, value = match.groups()
    if value.strip("\"'") in ("None", "null", "true", "false", "True", "False", ""):
        return match.group()
    quoted = value[0] if value[0] in "\"'" else ""
    return f"{name}{more}{between}{quoted}{REDACTED}{quoted}"


def _basic(match: re.Match[str]) -> str:
    """Credentials of HTTP's Basic are a user and a password in Base64; "basic things" are none."""
    word, between, given = match.groups()
    try:
        if b":" not in base64.b64decode(
            given + "=" * (-len(given) % 4), altchars=b"-_" if set(given) & {*"-_"} else None
        ):
            return match.group()
    except (ValueError, binascii.Error):
        return match.group()
    return f"{word}{between}{REDACTED}"
