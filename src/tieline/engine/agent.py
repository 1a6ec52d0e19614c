"""`@agent`: a function over a Turn, with what its card says."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from msgspec.structs import replace

from tieline.card import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    check_card,
)

if TYPE_CHECKING:
    from tieline.engine.turn import Caller, Turn

__all__ = ["Agent", "AgentFunction", "agent", "may_use"]

_SERVERS = "securityRequirements: "  # what a card says of security is for who serves the agent to check
AgentFunction = Callable[["Turn"], AsyncGenerator[Any, None] | Awaitable[Any]]
"""What an agent is: an async generator function or an async function over a Turn."""


class Agent:
    """An agent: its function and its description. Made by `agent`; calling it calls the function."""

    def __init__(
        self,
        function: AgentFunction,
        *,
        name: str,
        description: str,
        version: str,
        skills: Sequence[AgentSkill] = (),
        input_modes: Sequence[str] = ("text/plain",),
        output_modes: Sequence[str] = ("text/plain",),
        extensions: Sequence[AgentExtension] = (),
        streaming: bool = True,
        provider: AgentProvider | None = None,
        documentation_url: str | None = None,
        icon_url: str | None = None,
        while_running: Literal["queue", "refuse"] = "queue",
        task_after_s: float | None = 1.0,
        resumable: bool = False,
        extended_skills: Sequence[AgentSkill] = (),
    ) -> None:
        self.function = function
        self.is_generator = _is_generator(function)
        self.name = name
        self.description = description
        self.version = version
        self.skills = tuple(skills) or (_only_skill(name, description),)
        self.input_modes = tuple(input_modes)
        self.output_modes = tuple(output_modes)
        self.extensions = tuple(extensions)
        self.streaming = streaming
        self.provider = provider
        self.documentation_url = documentation_url
        self.icon_url = icon_url
        self.while_running = while_running
        self.task_after_s = task_after_s
        self.resumable = resumable
        self.extended_skills = tuple(extended_skills)
        self.required_extensions = frozenset(extension.uri for extension in extensions if extension.required)
        everything = (*self.skills, *self.extended_skills)
        self.accepted_types = frozenset(self.input_modes).union(*(skill.input_modes for skill in everything))
        self.guarded_skills = {skill.id: skill for skill in everything if skill.security_requirements}
        self.has_open_skill = len(self.guarded_skills) < len(everything)
        if while_running not in ("queue", "refuse"):
            raise ValueError(f"while_running is 'queue' or 'refuse', not {while_running!r}")
        placeholder = (AgentInterface("http://localhost/", "JSONRPC", "1.0"),)
        whole = replace(self.card(placeholder), skills=everything)
        faults = [fault for fault in check_card(whole) if not fault.startswith(_SERVERS)]
        if faults:
            raise ValueError(f"the card of agent {name!r} would not be valid: {'; '.join(faults)}")

    def __call__(self, turn: Turn) -> AsyncGenerator[Any, None] | Awaitable[Any]:
        return self.function(turn)

    def __repr__(self) -> str:
        return f"<Agent {self.name!r}>"

    def card(self, interfaces: Sequence[AgentInterface], *, push: bool = False) -> AgentCard:
        """The agent's card (A2A 1.0 §4.4.1) when it is mounted at `interfaces`; with `push` it sends notifications."""
        return AgentCard(
            name=self.name,
            description=self.description,
            supported_interfaces=tuple(interfaces),
            version=self.version,
            capabilities=AgentCapabilities(
                streaming=self.streaming,
                push_notifications=push,
                extensions=self.extensions,
                extended_agent_card=bool(self.extended_skills),
            ),
            default_input_modes=self.input_modes,
            default_output_modes=self.output_modes,
            skills=self.skills,
            provider=self.provider,
            documentation_url=self.documentation_url,
            icon_url=self.icon_url,
        )

    def extended_card(self, card: AgentCard, caller: Caller) -> AgentCard:
        """Its card with the skills that this caller may use, beside those that all are told of (A2A 1.0 §13.3)."""
        more = [skill for skill in self.extended_skills if may_use(skill, caller)]
        return replace(card, skills=(*card.skills, *more))

    def accepts(self, media_type: str) -> bool:
        """Whether a part of this media type is among the input modes; `*/*` and `image/*` are understood."""
        if media_type in self.accepted_types or "*/*" in self.accepted_types:
            return True
        bare = media_type.partition(";")[0].strip().lower()
        return bare in self.accepted_types or f"{bare.partition('/')[0]}/*" in self.accepted_types


def may_use(skill: AgentSkill, caller: Caller) -> bool:
    """Whether a caller meets one of a skill's security requirements, by schemes and scopes, or the skill has none."""
    return not skill.security_requirements or any(
        caller.schemes.issuperset(requirement.schemes)
        and all(caller.scopes.issuperset(scopes.list) for scopes in requirement.schemes.values())
        for requirement in skill.security_requirements
    )


@overload
def agent(function: AgentFunction, /) -> Agent: ...
@overload
def agent(
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "1.0.0",
    skills: Sequence[AgentSkill] = (),
    input_modes: Sequence[str] = ("text/plain",),
    output_modes: Sequence[str] = ("text/plain",),
    extensions: Sequence[AgentExtension] = (),
    streaming: bool = True,
    provider: AgentProvider | None = None,
    documentation_url: str | None = None,
    icon_url: str | None = None,
    while_running: Literal["queue", "refuse"] = "queue",
    task_after_s: float | None = 1.0,
    resumable: bool = False,
    extended_skills: Sequence[AgentSkill] = (),
) -> Callable[[AgentFunction], Agent]: ...
def agent(function: AgentFunction | None = None, /, **options: Any) -> Agent | Callable[[AgentFunction], Agent]:
    """Make an agent of an async function or async generator function with one parameter, the Turn.

    Args:
        name: What the card calls it; without one, the function's name.
        description: What the card says it does; without one, the first line of the function's docstring.
        version: The agent's own version, not the protocol's.
        skills: What it is good at; without any, one skill is made of name and description.
        input_modes: Media types it takes; parts of others are refused (-32005). `*/*` takes all.
        output_modes: Media types it gives.
        extensions: Extensions it speaks; a required one is enforced.
        streaming: Whether callers may stream and subscribe.
        while_running: What happens to a message for a task that is at work: "queue" keeps it for the next `ask`, or
            starts the agent with it once more when it is done; "refuse" answers UnsupportedOperation.
        task_after_s: An agent that has been silent for so many seconds becomes a task in state WORKING, so that its
            caller can see, follow and cancel it; a `reply` behind that ends the task with the words. None never does.
        resumable: When its server dies, the agent is started again with the message it was at, by the next server or
            another replica, instead of its task being FAILED. It does everything again: `ask` and `authorize` give
            the answers that were given, in their order, and what it says is told where it differs from what it had
            said. Do not opt in where doing a thing twice does harm.
        extended_skills: Skills that only callers who have authenticated are told of (A2A 1.0 §3.1.11), those with
            `security_requirements` only callers that have their scopes.

    Raises:
        TypeError: not an async function over one parameter.
        ValueError: the card would not be valid.
    """
    if function is not None:
        return _make(function, options)
    return lambda given: _make(given, options)


def _make(function: AgentFunction, options: dict[str, Any]) -> Agent:
    given = getattr(function, "__name__", type(function).__name__)
    if not _is_generator(function) and not _is_coroutine(function):
        raise TypeError(f"agent {given!r} has to be an async function or async generator function: write `async def`")
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise TypeError(f"agent {given!r} has to take one argument, the Turn: {error}") from None
    doc = inspect.getdoc(function) or ""
    name = options.pop("name", None) or given.replace("_", " ").strip().capitalize()
    description = options.pop("description", None) or doc.partition("\n")[0] or f"The agent {name}."
    version = options.pop("version", "1.0.0")
    return Agent(function, name=name, description=description, version=version, **options)


def _is_generator(function: Any) -> bool:
    return inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(getattr(function, "__call__", None))  # noqa: B004


def _is_coroutine(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _only_skill(name: str, description: str) -> AgentSkill:
    slug = slug_of(name)
    return AgentSkill(id=slug, name=name, description=description, tags=(slug,))


def slug_of(name: str) -> str:
    """A name as lower-case words joined by hyphens, for ids and file names."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "agent"
