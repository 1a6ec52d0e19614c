"""Short ways to write the values of one task."""

from __future__ import annotations

from tieline import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

__all__ = ["CONTEXT", "TASK", "appended", "artifact", "artifact_update", "message", "status", "task"]

TASK, CONTEXT = "task-1", "context-1"
TIME = "2026-01-02T03:04:05.678Z"


def message(text: str) -> Message:
    """The agent's message; its id is its text."""
    return Message(f"id of {text}", Role.AGENT, (Part(text=text),))


def artifact(id_: str, text: str) -> Artifact:
    return Artifact(id_, (Part(text=text),))


def task(state: TaskState = TaskState.SUBMITTED, *artifacts: Artifact) -> Task:
    return Task(TASK, TaskStatus(state, None, TIME), CONTEXT, artifacts)


def status(state: TaskState, words: str | None = None) -> TaskStatusUpdateEvent:
    said = None if words is None else message(words)
    return TaskStatusUpdateEvent(TASK, CONTEXT, TaskStatus(state, said, TIME))


def artifact_update(id_: str, text: str) -> TaskArtifactUpdateEvent:
    return TaskArtifactUpdateEvent(TASK, CONTEXT, artifact(id_, text))


def appended(id_: str, text: str) -> TaskArtifactUpdateEvent:
    return TaskArtifactUpdateEvent(TASK, CONTEXT, artifact(id_, text), append=True)
