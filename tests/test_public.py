"""What the package offers: sorted, documented, typed, and light to import."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import tieline

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(tieline.__path__, "tieline.")
    if name != "tieline.cli" and not name.startswith("tieline.cli.")  # a face, not an interface
]


def module_of(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_public_names_are_sorted_and_each_is_there() -> None:
    assert tieline.__all__ == sorted(tieline.__all__)
    for name in tieline.__all__:
        assert getattr(tieline, name) is not None


def test_every_public_name_has_one_home_and_is_seen_by_editors() -> None:
    source = inspect.getsource(tieline)
    imported = source.split("if TYPE_CHECKING:")[1].split("__version__")[0]
    for name in tieline.__all__:
        home = tieline._HOMES[name]
        assert f"from {home} import" in imported, home
        assert name in module_of(home).__all__, f"{name} is not public in {home}"
    assert sorted(tieline._HOMES) == tieline.__all__


@pytest.mark.parametrize("name", MODULES)
def test_a_module_lists_its_public_names_sorted_and_documents_them(name: str) -> None:
    module = module_of(name)
    assert (module.__doc__ or "").strip(), f"{name} has no docstring"
    public = vars(module).get("__all__")
    if public is None:
        assert hasattr(module, "__path__"), f"{name} has no __all__"
        return
    assert public == sorted(public)
    for entry in public:
        value = getattr(module, entry)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name}.{entry} has no docstring"


def test_public_functions_and_methods_are_annotated() -> None:
    for name in tieline.__all__:
        value = getattr(tieline, name)
        members = (
            [value] if inspect.isfunction(value) else [m for _, m in inspect.getmembers(value, inspect.isfunction)]
        )
        for member in members:
            ours = inspect.isfunction(member) and member.__module__.startswith("tieline")
            if not ours or member.__name__.startswith("_"):
                continue
            signature = inspect.signature(member)
            assert signature.return_annotation is not inspect.Signature.empty, f"{name}.{member.__name__}"


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = loaded_by("import tieline")
    assert not loaded & {"aiohttp", "uvicorn", "click", "sqlite3", "asyncio", "msgspec"}


def test_writing_an_agent_loads_no_server_and_no_client() -> None:
    loaded = loaded_by("from tieline import Artifact, Part, Rejected, Turn, agent")
    assert not loaded & {"aiohttp", "uvicorn", "click", "sqlite3"}


def test_serving_loads_no_client_and_calling_no_server() -> None:
    assert "aiohttp" not in loaded_by("import tieline; tieline.app")
    assert not loaded_by("import tieline; tieline.connect") & {"uvicorn", "sqlite3"}
