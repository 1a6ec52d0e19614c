"""From what a user names to the agents that are served: a file, a module, an object in one of them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from tieline.engine.agent import Agent
from tieline.server.asgi import App

__all__ = ["CannotServe", "load_agents"]


class CannotServe(Exception):
    """Serving could not begin; the sentence says why and what to do."""


def load_agents(target: str) -> Agent | dict[str, Agent] | App:
    """What `target` names: `FILE`, `FILE:object` or `module:object`.

    A file without an object gives its only agent, or all of them by their names in it. An object is an Agent, a
    mapping of agents, or an App. The file's folder is put first on `sys.path`, as `python FILE` does.

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
        if isinstance(found, Mapping) and found and all(isinstance(value, Agent) for value in found.values()):
            return dict(found)
        raise CannotServe(f"{name} in {where} is a {type(found).__name__}, not an agent. {_agents_in(module)}")
    agents = {key: value for key, value in module.items() if isinstance(value, Agent) and not key.startswith("_")}
    distinct = {id(value): key for key, value in agents.items()}
    if len(distinct) == 1:
        return next(iter(agents.values()))
    if not agents:
        raise CannotServe(f"{where} has no agent: decorate an async function with @tieline.agent.")
    return {key: value for key, value in agents.items() if distinct[id(value)] == key}


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
    return f"{at}{type(error).__name__}: {error}"


def _agents_in(module: Mapping[str, object]) -> str:
    names = sorted(key for key, value in module.items() if isinstance(value, Agent))
    return f"Its agents: {', '.join(names)}." if names else "It has no agents."
