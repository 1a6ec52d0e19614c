"""What `tieline serve` finds in a file with executors of the official SDK."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tieline import Agent
from tieline.runners import is_executor, is_official_card
from tieline.server.loading import CannotServe, load_agents

EXECUTOR = """
from a2a.server.agent_execution import AgentExecutor
from a2a.types import AgentCard

class PoliteExecutor(AgentExecutor):
    def __init__(self, words="Good day."):
        self.words = words
    async def execute(self, context, event_queue): ...
    async def cancel(self, context, event_queue): ...
"""
AGENT = """
import tieline

@tieline.agent
async def plain(turn): return "hi"
"""


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path / f"executors_{abs(hash(request.node.name))}.py"


def load(file: Path, *lines: str, name: str = "") -> Agent | dict[str, Agent]:
    file.write_text("\n".join(lines))
    found = load_agents(f"{file}:{name}" if name else str(file))
    assert isinstance(found, (Agent, dict))
    return found


def names(found: Agent | dict[str, Agent]) -> dict[str, str]:
    assert isinstance(found, dict)
    return {key: agent.name for key, agent in found.items()}


def refusal(file: Path, *lines: str, name: str = "") -> str:
    with pytest.raises(CannotServe) as refused:
        load(file, *lines, name=name)
    return str(refused.value)


def name_of(found: Agent | dict[str, Agent]) -> str:
    assert isinstance(found, Agent)
    return found.name


def test_only_executor_is_the_agent(file: Path) -> None:
    assert name_of(load(file, EXECUTOR, "it = PoliteExecutor()", "again = it")) == "Polite"


def test_card_beside_it_describes_it(file: Path) -> None:
    one = "any_name = AgentCard(name='Butler')"
    assert name_of(load(file, EXECUTOR, "it = PoliteExecutor()", one)) == "Butler"
    other = "agent_card = AgentCard(name='Valet')"
    assert name_of(load(file, EXECUTOR, "it = PoliteExecutor()", one, other)) == "Valet"
    assert name_of(load(file, EXECUTOR, one, name="PoliteExecutor")) == "Butler"


def test_object_may_be_an_executor_a_class_or_a_mapping(file: Path) -> None:
    lines = (EXECUTOR, "_it = PoliteExecutor()", "both = {'one': _it, 'two': PoliteExecutor()}")
    assert name_of(load(file, *lines, name="_it")) == "Polite"
    assert name_of(load(file, *lines, name="PoliteExecutor")) == "Polite"
    assert names(load(file, *lines, name="both")) == {"one": "Polite", "two": "Polite"}


def test_executors_and_agents_of_ours_are_served_side_by_side(file: Path) -> None:
    found = load(file, AGENT, EXECUTOR, "it = PoliteExecutor()", "_hidden = PoliteExecutor()")
    assert names(found) == {"plain": "Plain", "it": "Polite"}
    found = load(file, AGENT, EXECUTOR, "it = PoliteExecutor()", "agent_card = AgentCard(name='Butler')")
    assert names(found) == {"plain": "Plain", "it": "Butler"}


def test_what_cannot_be_decided_is_said(file: Path) -> None:
    cards = ("one = AgentCard(name='1')", "two = AgentCard(name='2')")
    assert "several agent cards (one, two)" in refusal(file, EXECUTOR, "it = PoliteExecutor()", *cards)
    several = refusal(file, EXECUTOR, "it, other = PoliteExecutor(), PoliteExecutor()", cards[0])
    assert "one agent card for 2 executors (it, other)" in several
    assert "from_executor" in several
    assert f"Give {file}:PoliteExecutor" in refusal(file, EXECUTOR)


def test_class_that_cannot_be_made_says_why(file: Path) -> None:
    needy = EXECUTOR.replace('words="Good day."', "words")
    assert "missing 1 required positional argument: 'words'" in refusal(file, needy, name="PoliteExecutor")


def test_card_that_makes_no_valid_one_says_why(file: Path) -> None:
    card = "agent_card = AgentCard(skills=[dict(id='a'), dict(id='a')])"
    assert "the id 'a' is used twice" in refusal(file, EXECUTOR, "it = PoliteExecutor()", card)


def test_executor_is_known_by_its_interface_and_what_only_looks_like_one_is_not() -> None:
    class Enough:
        async def execute(self, context: object, event_queue: object) -> None: ...
        async def cancel(self, context: object, event_queue: object) -> None: ...

    class Job:  # of a pool of threads, say
        def execute(self, a: object, b: object) -> None: ...
        def cancel(self, a: object, b: object) -> None: ...

    class Query:
        async def execute(self) -> None: ...
        async def cancel(self) -> None: ...

    assert is_executor(Enough())
    assert is_executor(Enough)
    for other in (Job(), Query(), Job, object(), None, "x", load_agents):
        assert not is_executor(other)
        assert not is_official_card(other)


def test_sdk_is_imported_only_where_an_executor_is_met(file: Path) -> None:
    file.write_text(AGENT)
    script = f"import sys; from tieline.server.loading import load_agents; load_agents({str(file)!r})"
    script += "; assert not [name for name in sys.modules if name == 'a2a' or name.startswith('a2a.')]"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_missing_sdk_is_named(file: Path) -> None:
    file.write_text(
        """
class Alone:
    async def execute(self, context, event_queue): ...
    async def cancel(self, context, event_queue): ...

alone = Alone()
"""
    )
    script = f"""
import sys
sys.modules["a2a"] = None
from tieline.server.loading import CannotServe, load_agents
try:
    load_agents({str(file)!r})
except CannotServe as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", script], check=True, timeout=60, capture_output=True, text=True)
    assert "alone in" in told.stdout
    assert "pip install 'a2a-sdk" in told.stdout
