"""From what a user names to the agents that are served: a file, a module, an object in one of them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tieline.engine.agent import Agent
from tieline.operation.secrets import without_secrets
from tieline.runners import is_executor, is_official_card
from tieline.server.asgi import App

__all__ = ["CannotServe", "load_agents"]


class CannotServe(Exception):
    """Serving could not begin; the sentence says why and what to do."""


def load_agents(target: str) -> Agent | dict[str, Agent] | App:
    """What `target` names: `FILE`, `FILE:object` or `module:object`.

    A file without an object gives its only agent, or all of them by their names in it. An object is an Agent, a
    mapping of agents, or an App. An AgentExecutor of the official SDK is an agent, too, with the AgentCard beside it;
    named as an object, it may be a class without arguments. The file's folder is put first on `sys.path`, as
    `python FILE` does.

    Raises:
        CannotServe: there is no such file, module or object, or it fails to load.
    """
    where, _, name = target.rpartition(":")
    if not where or not name.isidentifier():
        where, name = target, ""
    if not where.strip() or Path(where).is_dir():
        raise CannotServe(f"{target!r} is not a file or module. Give FILE.py or module:object.")
    if where.endswith(".py") or Path(where).is_file():
        module = _load_file(Path(where))
    else:
        sys.path.insert(0, str(Path.cwd()))
        try:
            module = vars(importlib.import_module(where))
        except ModuleNotFoundError as error:
            if error.name is not None and (where == error.name or where.startswith(f"{error.name}.")):
                raise CannotServe(f"There is no file or module {where!r}. Give FILE.py or module:object.") from None
            raise CannotServe(f"{where} needs {error.name!r}, which is not installed.") from error
        except (Exception, SystemExit) as error:
            raise CannotServe(f"{where} cannot be imported: {_reason(error)}") from error
    if name:
        if name not in module:
            raise CannotServe(f"{where} has no {name!r}. {_agents_in(module)}")
        found = module[name]
        if isinstance(found, (Agent, App)):
            return found
        if is_executor(found):
            return _agent_of(name, where, found, _card_in(where, module))
        if isinstance(found, Mapping) and found and all(_is_agent(value) for value in found.values()):
            return {key: _agent_of(f"{name}[{key!r}]", where, value) for key, value in found.items()}
        raise CannotServe(f"{name} in {where} is a {type(found).__name__}, not an agent. {_agents_in(module)}")
    named = {key: value for key, value in module.items() if _is_agent(value) and not key.startswith("_")}
    distinct = {id(value): key for key, value in named.items()}
    if not named:
        raise CannotServe(f"{where} has no agent: {_what_to_do(where, module)}")
    executors = [key for key, value in named.items() if distinct[id(value)] == key and not isinstance(value, Agent)]
    card = _card_in(where, module) if executors else None
    if card is not None and len(executors) > 1:
        raise CannotServe(
            f"{where} has one agent card for {len(executors)} executors ({', '.join(executors)}): make agents of them"
            " with tieline.runners.official.from_executor(executor, card=...)."
        )
    agents = {key: _agent_of(key, where, value, card) for key, value in named.items() if distinct[id(value)] == key}
    return next(iter(agents.values())) if len(agents) == 1 else agents


def _is_agent(value: object) -> bool:
    """Whether it is an agent as it stands: one of ours, or an executor of the official SDK that has been made."""
    return isinstance(value, Agent) or (not isinstance(value, type) and is_executor(value))


def _agent_of(name: str, where: str, found: Any, card: object | None = None) -> Agent:
    """An agent of ours as it is, an executor or its class as an agent, described by `card`."""
    if isinstance(found, Agent):
        return found
    try:
        from tieline.runners.official import from_executor

        return from_executor(found() if isinstance(found, type) else found, card=card)
    except ImportError as error:
        raise CannotServe(f"{name} in {where} cannot be served: {error}") from error
    except Exception as error:  # the class is the user's
        raise CannotServe(f"{name} in {where} cannot be served: {_reason(error)}") from error


def _card_in(where: str, module: Mapping[str, object]) -> object | None:
    """The official SDK's AgentCard of a module: `agent_card`, or the only one."""
    cards = {key: value for key, value in module.items() if is_official_card(value)}
    if "agent_card" in cards:
        return cards["agent_card"]
    if len({id(card) for card in cards.values()}) > 1:
        raise CannotServe(f"{where} has several agent cards ({', '.join(cards)}): call the one to serve agent_card.")
    return next(iter(cards.values()), None)


def _what_to_do(where: str, module: Mapping[str, object]) -> str:
    classes = [
        key
        for key, value in module.items()
        if isinstance(value, type) and is_executor(value) and value.__module__ == module.get("__name__")
    ]
    if classes:
        return f"the executor {classes[0]} is a class. Give {where}:{classes[0]}, or make one at the end of the file."
    return "decorate an async function with @tieline.agent."


def _load_file(path: Path) -> dict[str, object]:
    if not path.is_file():
        raise CannotServe(f"There is no file {path}.")
    sys.path.insert(0, str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CannotServe(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise CannotServe(f"{path} cannot be loaded: {_reason(error)}") from error
    return vars(module)


def _reason(error: BaseException) -> str:
    """What went wrong while a module was loaded, and on which line of it."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    at = f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
    return without_secrets(f"{at}{type(error).__name__}: {error}")


def _agents_in(module: Mapping[str, object]) -> str:
    names = sorted(key for key, value in module.items() if _is_agent(value))
    return f"Its agents: {', '.join(names)}." if names else "It has no agents."
