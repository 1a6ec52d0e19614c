"""What is known of a request while it is answered, for the log, the traces and the metrics."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tieline.errors import A2AError

if TYPE_CHECKING:
    from tieline.engine.run import Run

__all__ = [
    "ObservedRequest",
    "ObservedRun",
    "at_work",
    "called",
    "current_fields",
    "current_request",
    "named",
    "refused",
    "serving",
    "serving_no_more",
]

_current: ContextVar[ObservedRequest | ObservedRun | None] = ContextVar("tieline-observed", default=None)
_CHARACTERS = 200  # of what callers name


class ObservedRequest:
    """One request, from its first byte to the end of its answer. Holds nothing of its body, headers or query."""

    __slots__ = (
        "agent",
        "began",
        "binding",
        "client",
        "context",
        "dialect",
        "error",
        "method",
        "outcome",
        "over",
        "path",
        "run",
        "span",
        "status",
        "task",
        "verb",
    )

    def __init__(self, began: float, *, binding: str = "", verb: str = "", path: str = "", client: str = "") -> None:
        self.began = began  # by perf_counter: the clock of an event loop may only count milliseconds
        self.binding = binding  # "jsonrpc", "rest" or "grpc"; "" while that is not known
        self.verb = verb
        self.path = path
        self.client = client  # the address that the connection comes from
        self.agent = ""
        self.method = ""  # the operation's name in A2A 1.0; "" is none
        self.dialect = ""
        self.task = ""
        self.context = ""
        self.status: int | None = None  # of HTTP; None is no answer yet
        self.error: A2AError | None = None  # what it was refused with, or what broke its stream
        self.span: Any = None
        self.run: Run | None = None  # that it has begun
        self.outcome = ""  # how it has ended without an answer
        self.over = False  # answered: what else was begun in its context goes on without it

    def settle(self) -> None:
        """It has ended: a task that has come of it is known now."""
        run, self.run = self.run, None
        if run is not None and run.state is not None:
            self.concerns(run.task_id, run.context_id)

    def concerns(self, task_id: str | None, context_id: str | None) -> None:
        """These are its task and context, whose ids may be as long as callers like."""
        self.task, self.context = (task_id or "")[:_CHARACTERS], (context_id or "")[:_CHARACTERS]

    def fields(self) -> dict[str, Any]:
        """What a record of the log says of it."""
        return {
            "agent": self.agent,
            "task": self.task,
            "context": self.context,
            "method": self.method,
            "dialect": self.dialect,
            "binding": self.binding,
            "verb": self.verb,
            "path": quote(self.path[:_CHARACTERS], safe="/:@!$&'()*+,;=~"),
            "client": self.client,
        }


class ObservedRun:
    """One stretch of an agent's work on a task, and what is kept of the one before."""

    __slots__ = ("agent", "before", "began", "context", "parent", "span", "task")

    def __init__(self, agent: str, task: str, context: str) -> None:
        self.agent = agent
        self.task = task[:_CHARACTERS]  # callers of 0.1 name it, and all may name the context
        self.context = context[:_CHARACTERS]
        self.began: float | None = None  # by perf_counter; None while the agent is not at work
        self.parent: Any = None  # the trace that the message which it works on came in
        self.span: Any = None
        self.before: Any = None  # the span of the stretch before

    def fields(self) -> dict[str, Any]:
        """What a record of the log says of it."""
        return {"agent": self.agent, "task": self.task, "context": self.context}


def serving(request: ObservedRequest) -> Token[Any]:
    """From here on this request is answered."""
    return _current.set(request)


def serving_no_more(token: Token[Any]) -> None:
    """The request is answered."""
    request = current_request()
    if request is not None:
        request.over = True
    _current.reset(token)


def at_work(run: ObservedRun) -> None:
    """From here on, in this context, an agent is at work."""
    _current.set(run)


def current_request() -> ObservedRequest | None:
    """The request that is being answered here, where requests are observed."""
    current = _current.get()
    return current if type(current) is ObservedRequest else None


def current_fields() -> dict[str, Any]:
    """What a record of the log says of where it was written: of the request, or of the agent at work."""
    current = _current.get()
    if current is None or (type(current) is ObservedRequest and current.over):
        return {}
    return current.fields()


def refused(error: A2AError) -> None:
    """The request is answered with this error, or its stream ends with it."""
    request = current_request()
    if request is not None:
        request.error = error


def called(binding: str, method: str, dialect: str, agent: str) -> None:
    """The request is this operation."""
    request = current_request()
    if request is not None:
        request.binding = binding
        request.method = method
        request.dialect = dialect
        request.agent = agent


def named(value: Any, agent: str = "") -> None:
    """The request has these parameters, with the task and the context that they name, and is for this agent."""
    request = current_request()
    if request is not None:
        request.agent = agent or request.agent
        message = getattr(value, "message", None)
        if message is not None:
            request.concerns(message.task_id, message.context_id)
        else:
            task_id = getattr(value, "task_id", None) or getattr(value, "id", None)
            request.concerns(task_id, getattr(value, "context_id", None))
