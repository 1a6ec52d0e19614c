"""The agent card as bytes: in each version's form, in one form for 0.3 and 1.0 at once, and from whatever is found.

Readers before 1.0 know other members than those of 1.0, and none has another meaning in both: so one body serves both
(`write`). What peers write is brought to the form of 1.0 by the rows of `QUIRKS`, one after the other (`read`).

| members of 1.0 | of 0.3 |
|---|---|
| supportedInterfaces | url, preferredTransport, additionalInterfaces, protocolVersion |
| capabilities.extendedAgentCard | supportsAuthenticatedExtendedCard |
| securityRequirements | security |
| securitySchemes.x.httpAuthSecurityScheme | securitySchemes.x.type, and the scheme's members beside it |
| a scheme's apiKeySecurityScheme.location | in |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from tieline.card import AgentCard, AgentInterface, SecurityScheme
from tieline.errors import InvalidParams
from tieline.types import decode, encode, exact

__all__ = ["JOINT", "OLDEST", "QUIRKS", "Quirk", "form_of", "lacking", "read", "write"]

Json = dict[str, Any]

JOINT: Final = ""
"""The form that is right for readers of 0.3 and of 1.0."""

OLDEST: Final = "0.1+0.2"
"""The form for readers of all versions before 0.3, which is right for those of 0.3, too: what is in agent.json."""

_VERSION_03: Final = "0.3.0"  # as cards wrote it: with the patch number
_VERSION_02: Final = "0.2.6"

# --- writing ----------------------------------------------------------------------------------------------------------

_KINDS: Final = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}
"""Security schemes: the `type` that they had, and the member that they are in since 1.0."""


def write(card: AgentCard, form: str = JOINT) -> bytes:
    """The card as JSON. `form` is JOINT, OLDEST, or a version: "1.0", "0.3", "0.2" or "0.1".

    Before 1.0 only interfaces of those versions are named, from 1.0 on all. JOINT without any interface of 0.3 is the
    card of 1.0.

    Raises:
        ValueError: the card cannot be written in this form; see `lacking`.
    """
    if form == "1.0" or (form == JOINT and not _of(card, "0.3")):
        return encode(card)
    if faults := lacking(card, form):
        raise ValueError("; ".join(faults))
    now: Json = msgspec.json.decode(encode(card))
    if form not in (JOINT, "0.3"):
        return encode(exact(_card_02(card, now, form if _of(card, "0.3") else "0.1")))
    old = _card_03(card, now, _of(card, "0.3")[0])
    return encode(exact(old if form == "0.3" else _both(now, old)))


def form_of(asked: str) -> str | None:
    """The form for a reader that names a version; None where there is none for it."""
    match = re.fullmatch(r"(\d+\.\d+)(?:\.\d+)?", asked, re.ASCII)
    return match.group(1) if match and match.group(1) in ("1.0", "0.3", "0.2", "0.1") else None


def lacking(card: AgentCard, form: str) -> list[str]:
    """Why a card without faults (`check_card`) cannot be written in a form: sentences that begin with a path."""
    if form == "1.0":
        return []
    interfaces = _of(card, "0.3")
    faults = [
        f"supportedInterfaces: the tenant {i.tenant!r} cannot be told to readers of 0.3: leave it out, or serve no 0.3"
        for i in interfaces
        if i.tenant
    ]
    if form in (JOINT, "0.3") and not interfaces:
        faults.append("supportedInterfaces: readers of 0.3 need an interface of 0.3")
    elif form not in (JOINT, "0.3") and _first_old(card) is None:
        faults.append("supportedInterfaces: readers before 0.3 need a JSONRPC interface of 0.3 or 0.1")
    faults += [
        f"capabilities.extensions[{index}].uri: must not be empty for readers of 0.3"
        for index, extension in enumerate(card.capabilities.extensions)
        if not extension.uri
    ]
    return faults


def _of(card: AgentCard, version: str) -> tuple[AgentInterface, ...]:
    return tuple(interface for interface in card.supported_interfaces if interface.protocol_version == version)


def _first_old(card: AgentCard) -> AgentInterface | None:
    """Where readers before 0.3 call: they know JSON-RPC alone, and one URL has all their methods."""
    old = (*_of(card, "0.3"), *_of(card, "0.1"))
    return next((interface for interface in old if interface.protocol_binding == "JSONRPC"), None)


def _card_03(card: AgentCard, now: Json, main: AgentInterface) -> Json:
    """The card of 0.3 out of `now`, that of 1.0."""
    interfaces = dict.fromkeys((i.url, i.protocol_binding) for i in (main, *_of(card, "0.3")))
    capabilities = {**now["capabilities"], "stateTransitionHistory": False}
    extended = capabilities.pop("extendedAgentCard", None)
    out: Json = {"protocolVersion": _VERSION_03, "name": card.name, "description": card.description, "url": main.url}
    out["preferredTransport"] = main.protocol_binding
    out["additionalInterfaces"] = [{"url": url, "transport": binding} for url, binding in interfaces]
    out |= _same(now, "provider", "iconUrl", "version", "documentationUrl")
    out["capabilities"] = capabilities
    if card.security_schemes:
        out["securitySchemes"] = {name: _scheme_03(scheme) for name, scheme in now["securitySchemes"].items()}
    if card.security_requirements:
        out["security"] = [_requirement_03(requirement) for requirement in now["securityRequirements"]]
    out |= _same(now, "defaultInputModes", "defaultOutputModes")
    out["skills"] = [_skill_03(skill) for skill in now["skills"]]
    if extended is not None:
        out["supportsAuthenticatedExtendedCard"] = extended
    return out | _same(now, "signatures")


def _card_02(card: AgentCard, now: Json, form: str) -> Json:
    """The card of 0.2.6 with what 0.1 has beside it; for 0.1 alone, without what came later."""
    main = _first_old(card)
    assert main is not None
    out = _card_03(card, now, main)
    out.pop("signatures", None)  # over another form
    for skill in out["skills"]:
        skill.pop("security", None)
    # 0.2.6 has no mutualTLS, and its readers take no card with a scheme that they do not know: what TLS asks for is
    # left out of what is to be shown, and an object without anything in it is nothing more.
    schemes = {name: scheme for name, scheme in out.pop("securitySchemes", {}).items() if scheme["type"] != "mutualTLS"}
    words = dict.fromkeys(word for scheme in schemes.values() if (word := _authentication(scheme)))
    if words and form != "0.2":
        out["authentication"] = {"schemes": list(words)}
    if form == "0.1":
        for name in ("protocolVersion", *_NEWER_THAN_01):
            out.pop(name, None)
        out["capabilities"].pop("extensions", None)
        return out
    if schemes:
        out["securitySchemes"] = schemes
    if "security" in out:
        out["security"] = [{name: each[name] for name in each if name in schemes} for each in out["security"]]
    # Readers of 1.0 that still look here take 0.3.0 for what it is, and leave 0.2.6 alone.
    out["protocolVersion"] = _VERSION_02 if form == "0.2" else _VERSION_03
    return out


def _same(now: Json, *names: str) -> Json:
    return {name: now[name] for name in names if name in now}


def _scheme_03(scheme: Json) -> Json:
    ((kind, inner),) = scheme.items()
    out = {"type": next(old for old, new in _KINDS.items() if new == kind), **inner}
    if "location" in out:
        out["in"] = out.pop("location")
    if "flows" not in out:
        return out
    flows = {name: dict(flow) for name, flow in out.pop("flows").items() if name != "deviceCode"}
    if not flows:  # 0.3 has no device code: what the caller gets by one goes into Authorization all the same
        return {"type": "http", "scheme": "Bearer", **_same(out, "description")}
    for flow in flows.values():
        flow.pop("pkceRequired", None)  # nor a word for it
        flow.setdefault("scopes", {})
    return {**out, "flows": flows}


def _requirement_03(requirement: Json) -> Json:
    return {name: scopes.get("list", []) for name, scopes in requirement.get("schemes", {}).items()}


def _skill_03(skill: Json) -> Json:
    out = dict(skill)
    if requirements := out.pop("securityRequirements", None):
        out["security"] = [_requirement_03(requirement) for requirement in requirements]
    return out


def _authentication(scheme: Json) -> str:
    """0.1's word for a scheme: that of HTTP where there is one, as tokens go into Authorization."""
    kind = scheme["type"]
    if kind == "http":
        return str(scheme["scheme"])
    return {"apiKey": "ApiKey"}.get(kind, "Bearer")


def _both(now: Json, old: Json) -> Json:
    """One object with the members of both; where both have one, 1.0's, which 0.3's is part of."""
    out = {**old, **now}
    for name in ("capabilities", "securitySchemes"):
        if name in out:
            out[name] = {
                key: {**value, **now[name][key]} if isinstance(value, dict) else value
                for key, value in {**now[name], **old[name]}.items()
            }
    out["skills"] = [{**before, **skill} for before, skill in zip(old["skills"], now["skills"], strict=True)]
    return out


# --- reading ----------------------------------------------------------------------------------------------------------


class Quirk(NamedTuple):
    """One thing that cards in the field have otherwise, and what brings it to the form of 1.0, in place."""

    name: str
    mend: Callable[[Json], None]


def read(document: bytes) -> AgentCard:
    """The card in a document of any version, with interfaces in the order of preference.

    Their versions are exactly "1.0", "0.3" or "0.1" where they are told in another form, and their bindings JSONRPC,
    HTTP+JSON or GRPC. Where a card does not tell whether it is of 0.1 or of 0.2, its JSON-RPC interface is there
    twice. What has an empty value here and should have none, `check_card` tells.

    Raises:
        InvalidParams: with the path of the bad field.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: not JSON.
    """
    document = document.removeprefix(b"\xef\xbb\xbf")
    raw = msgspec.json.decode(document)
    if not isinstance(raw, dict):
        return decode(document, AgentCard)  # which says what it is instead
    card: Json = exact(raw)
    for quirk in QUIRKS:
        quirk.mend(card)
    return decode(encode(card), AgentCard)


_FREE_FORM: Final = frozenset(("params", "header"))
_BY_NAME: Final = frozenset(("schemes", "scopes", "securitySchemes"))  # objects whose keys are names of the caller's
_TOLD: Final = frozenset(
    ("name", "description", "version", "id", "uri", "url", "organization", "protected", "signature")
)
_OLD_SECURITY: Final = "security"


def _members(value: Any, change: Callable[[Json], Json], key: str = "") -> Any:
    """A copy in which the members of each object of the protocol's own are as `change` has them."""
    if isinstance(value, list):
        return [_members(item, change, key) for item in value]
    if not isinstance(value, dict) or key in _FREE_FORM:
        return value
    if key not in _BY_NAME and key != _OLD_SECURITY:
        value = change(value)
        return {name: _members(item, change, name) for name, item in value.items()}
    return {name: _members(item, change, name if key == _OLD_SECURITY else "") for name, item in value.items()}


def _each(card: Json, *names: str) -> Iterator[Json]:
    """The objects in lists of the card."""
    for name in names:
        listed = card.get(name)
        if isinstance(listed, list):
            yield from (item for item in listed if isinstance(item, dict))


def _mend_names(card: Json) -> None:
    def camel(members: Json) -> Json:
        out: Json = {}
        for name, item in members.items():
            out.setdefault(re.sub(r"_([a-z0-9])", lambda match: match.group(1).upper(), name), item)
        return out

    mended = _members(card, camel)
    card.clear()
    card.update(mended)


def _mend_absent(card: Json) -> None:
    def present(members: Json) -> Json:
        return {name: item for name, item in members.items() if item is not None and (item != "" or name in _TOLD)}

    mended = _members(card, present)
    card.clear()
    card.update(mended)


def _mend_transport(card: Json) -> None:
    for interface in _each(card, "supportedInterfaces", "additionalInterfaces"):
        if "transport" in interface:
            interface.setdefault("protocolBinding", interface.pop("transport"))


_NEWER_THAN_01: Final = (
    "preferredTransport", "additionalInterfaces", "securitySchemes", "security", "iconUrl",
    "supportsAuthenticatedExtendedCard", "signatures",
)  # fmt: skip
_UNTOLD: Final = "0.2.0"


def _mend_versionless(card: Json) -> None:
    """A card of one URL that names no version is of 0.1 or 0.2: what it has beside tells, or does not."""
    if not card.get("url") or card.get("supportedInterfaces") or "protocolVersion" in card:
        return
    newer = any(name in card for name in _NEWER_THAN_01)
    capabilities = card.get("capabilities")
    newer = newer or (isinstance(capabilities, dict) and "extensions" in capabilities)
    if "authentication" in card:
        card["protocolVersion"] = _UNTOLD if newer else "0.1+"
    else:
        card["protocolVersion"] = _VERSION_03 if newer else _UNTOLD


def _mend_url(card: Json) -> None:
    listed = card.get("supportedInterfaces", [])
    url = card.get("url")
    version = card.get("protocolVersion")
    if not isinstance(listed, list):
        return
    found = [{"protocolVersion": version or "1.0", **i} if isinstance(i, dict) else i for i in listed]
    others = list(_each(card, "additionalInterfaces"))
    if version is not None:
        if url:
            others.insert(0, {"url": url, "protocolBinding": card.get("preferredTransport", "JSONRPC")})
        found += [{"protocolVersion": version, **other} for other in others]
    if found or "supportedInterfaces" in card:
        card["supportedInterfaces"] = found


_BINDINGS: Final = {
    "jsonrpc": "JSONRPC", "jsonrpc2": "JSONRPC", "jsonrpc20": "JSONRPC", "httpjsonrpc": "JSONRPC",
    "httpjson": "HTTP+JSON", "httpsjson": "HTTP+JSON", "rest": "HTTP+JSON", "httprest": "HTTP+JSON",
    "http": "HTTP+JSON",
    "grpc": "GRPC",
}  # fmt: skip
"""Bindings by their letters and digits alone."""


def _mend_bindings(card: Json) -> None:
    for interface in _each(card, "supportedInterfaces"):
        name = interface.get("protocolBinding")
        if isinstance(name, str):
            interface["protocolBinding"] = _BINDINGS.get(re.sub(r"[^a-z0-9]", "", name.lower()), name)


_SPOKEN: Final = (
    (r"0\.1\+", ("0.1", "0.3")),  # has what only 0.1 and 0.2.0 had
    (r"0\.2(\.0)?", ("0.3", "0.1")),  # tasks/send or message/send: nothing tells
    (r"0\.2\.\d+", ("0.3",)),  # message/send, in the form that 0.3 has
    (r"(\d+)", (r"\1.0",)),
    (r"(\d+\.\d+)(\.\d+)?([-+.]?(a|b|rc|dev|alpha|beta|preview|draft).*)?", (r"\1",)),
)
"""Versions as cards have them, and those to speak with the agent, the likelier first."""


def _mend_versions(card: Json) -> None:
    if not isinstance(card.get("supportedInterfaces"), list):
        return
    found: list[Any] = []
    for interface in card["supportedInterfaces"]:
        version = interface.get("protocolVersion") if isinstance(interface, dict) else None
        if not isinstance(version, str):
            found.append(interface)
            continue
        plain = version.strip().lower().removeprefix("v")
        rows = ((re.fullmatch(pattern, plain, re.ASCII), spoken) for pattern, spoken in _SPOKEN)
        versions = next(([match.expand(to) for to in spoken] for match, spoken in rows if match), [version])
        if interface.get("protocolBinding") != "JSONRPC":  # 0.1 has no other
            versions = [each for each in versions if each != "0.1"] or versions
        found += [{**interface, "protocolVersion": each} for each in versions]
    card["supportedInterfaces"] = found


def _mend_twice(card: Json) -> None:
    if not isinstance(card.get("supportedInterfaces"), list):
        return
    found: list[Any] = []
    seen: set[str] = set()
    for interface in card["supportedInterfaces"]:
        if isinstance(interface, dict):
            url = str(interface.get("url")).rstrip("/")
            key = repr((url, interface.get("protocolBinding"), interface.get("protocolVersion")))
            own = f"{key}{interface.get('tenant')!r}"
            if key in seen and (interface.get("tenant") is None or own in seen):
                continue
            seen |= {key, own}
        found.append(interface)
    card["supportedInterfaces"] = found


_OLD_KINDS: Final = {old.lower(): new for old, new in _KINDS.items()}


def _mend_scheme_types(card: Json) -> None:
    schemes = card.get("securitySchemes")
    if not isinstance(schemes, dict):
        return
    for name, scheme in schemes.items():
        if not isinstance(scheme, dict) or any(kind in scheme for kind in _KINDS.values()):
            continue
        kind = _OLD_KINDS.get(str(scheme.get("type")).lower())
        if kind is not None:
            inner = {key: item for key, item in scheme.items() if key != "type"}
            for word in ("in", "in_"):  # the second is what Python programs call the first
                if word in inner:
                    inner.setdefault("location", str(inner.pop(word)).lower())
            schemes[name] = {kind: inner}


_FLOWS: Final = ("authorizationCode", "clientCredentials", "deviceCode", "implicit", "password")


def _mend_flows(card: Json) -> None:
    schemes = card.get("securitySchemes")
    for scheme in schemes.values() if isinstance(schemes, dict) else ():
        inner = scheme.get("oauth2SecurityScheme") if isinstance(scheme, dict) else None
        flows = inner.get("flows") if isinstance(inner, dict) else None
        if isinstance(inner, dict) and isinstance(flows, dict):
            name = next((name for name in _FLOWS if isinstance(flows.get(name), dict)), None)
            if name is not None:
                inner["flows"] = {name: {"scopes": {}, **flows[name]}}


def _mend_unreadable_schemes(card: Json) -> None:
    schemes = card.get("securitySchemes")
    if not isinstance(schemes, dict):
        return
    for name in list(schemes):
        try:
            decode(encode(schemes[name]), SecurityScheme)
        except InvalidParams:
            del schemes[name]


def _mend_requirements(card: Json) -> None:
    for holder in (card, *_each(card, "skills")):
        old = holder.pop(_OLD_SECURITY, None)
        if isinstance(old, list):
            wrapped = [each if "schemes" in each else {"schemes": each} for each in old if isinstance(each, dict)]
            holder.setdefault("securityRequirements", wrapped)
        for requirement in _each(holder, "securityRequirements"):
            schemes = requirement.get("schemes")
            if isinstance(schemes, dict):
                requirement["schemes"] = {
                    name: {"list": scopes or []} if isinstance(scopes, list | None) else scopes
                    for name, scopes in schemes.items()
                }


_OPEN: Final = frozenset(("", "none", "public", "anonymous", "noauth"))


def _mend_authentication(card: Json) -> None:
    authentication = card.pop("authentication", None)
    schemes = authentication.get("schemes") if isinstance(authentication, dict) else None
    if not isinstance(schemes, list) or "securitySchemes" in card:
        return
    words = [word for word in schemes if isinstance(word, str) and word.lower() not in _OPEN]
    if not words:
        return
    # A token of OAuth or OpenID goes into Authorization as Bearer; where else it comes from 0.1 has no word for.
    names = {word: "Bearer" if word.lower() in ("bearer", "oauth2", "openidconnect") else word for word in words}
    card["securitySchemes"] = {word: {"httpAuthSecurityScheme": {"scheme": name}} for word, name in names.items()}
    card.setdefault("securityRequirements", [{"schemes": {word: {"list": []}}} for word in words])


def _mend_extended(card: Json) -> None:
    for name in ("supportsAuthenticatedExtendedCard", "supportsExtendedAgentCard"):
        extended = card.pop(name, None)
        if isinstance(extended, bool) and isinstance(card["capabilities"], dict):
            card["capabilities"].setdefault("extendedAgentCard", extended)


def _mend_capabilities(card: Json) -> None:
    card.setdefault("capabilities", {})


_TEXT: Final = {"text": "text/plain"}


def _mend_modes(card: Json) -> None:
    for name in ("defaultInputModes", "defaultOutputModes"):
        card.setdefault(name, ["text/plain"])
    for holder in (card, *_each(card, "skills")):
        for name in ("defaultInputModes", "defaultOutputModes", "inputModes", "outputModes"):
            modes = holder.get(name)
            if isinstance(modes, list):
                holder[name] = [_TEXT.get(mode, mode) if isinstance(mode, str) else mode for mode in modes]


def _mend_words(card: Json) -> None:
    for name in ("description", "version"):
        card.setdefault(name, "")


def _mend_skills(card: Json) -> None:
    card.setdefault("skills", [])
    for number, skill in enumerate(_each(card, "skills"), 1):
        skill.setdefault("id", skill.get("name") or f"skill-{number}")
        skill.setdefault("name", skill["id"])
        skill.setdefault("description", "")
        skill.setdefault("tags", [])


def _mend_provider(card: Json) -> None:
    provider = card.get("provider")
    if not isinstance(provider, dict):
        return
    if not any(provider.get(name) for name in ("url", "organization")):
        del card["provider"]
        return
    for name in ("url", "organization"):
        provider.setdefault(name, "")


QUIRKS: Final = (
    Quirk("snake_case names", _mend_names),
    Quirk("null, and empty strings where nothing is to be told", _mend_absent),
    Quirk("an interface has transport for protocolBinding", _mend_transport),
    Quirk("no protocolVersion in a card of one URL", _mend_versionless),
    Quirk("url, preferredTransport and additionalInterfaces", _mend_url),
    Quirk("bindings in another spelling", _mend_bindings),
    Quirk("versions with a patch number, a v, or before 0.3", _mend_versions),
    Quirk("one interface twice", _mend_twice),
    Quirk("security schemes by type", _mend_scheme_types),
    Quirk("several flows in one OAuth scheme, or no scopes", _mend_flows),
    Quirk("security schemes that cannot be read", _mend_unreadable_schemes),
    Quirk("security as plain objects and lists", _mend_requirements),
    Quirk("authentication of 0.1", _mend_authentication),
    Quirk("no capabilities", _mend_capabilities),
    Quirk("whether there is an extended card, at the top", _mend_extended),
    Quirk("no modes, or text for text/plain", _mend_modes),
    Quirk("no description or version", _mend_words),
    Quirk("no skills, or skills without id, name, description or tags", _mend_skills),
    Quirk("a provider without url or organization", _mend_provider),
)
"""What is mended, in this order."""
