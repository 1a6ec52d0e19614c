"""What has to hold at the end, of what the store says and of what callers were told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.seen import Work
from tieline import Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from tieline.engine.fold import Fold, NotAllowed
from tieline.engine.resume import RESUMED
from tieline.engine.tasks import STOPPED
from tieline.stores.base import StoredTask
from tieline.types import decode

__all__ = ["Death", "Fault", "faults_of", "judge"]

_OFTEN = 3  # an agent that goes on after a crash is given up when its server has died once more


@dataclass(frozen=True)
class Death:
    """A replica was down from one moment to the other; seconds since the start."""

    replica: int
    began: float
    ended: float


@dataclass(frozen=True)
class Fault:
    """What is wrong with a task, and all that is known of it."""

    name: str
    words: list[str]
    story: list[str]


def judge(works: Sequence[Work], stored: Sequence[StoredTask], deaths: Sequence[Death]) -> list[Fault]:
    """Everything that is wrong, by task."""
    by_id = {task.record.task_id: task for task in stored}
    by_message: dict[str, list[str]] = {}
    for task in stored:
        by_message.setdefault(_told(task).history[0].message_id, []).append(task.record.task_id)
    found = []
    named = set()
    for work in works:
        words = list(work.faults)
        task_ids = by_message.get(work.message_id, [])
        named.update(task_ids)
        if len(task_ids) != 1:
            words.append(f"its message has made {len(task_ids)} tasks: {task_ids}")
        kept = by_id.get(work.task_id or "")
        if kept is None:
            words.append("it is not in the store")
        else:
            words += [*faults_of(kept), *_against(work, kept, deaths)]
        if words:
            found.append(Fault(f"{work.name} {work.plan}", words, _story(work, kept)))
    found += [
        Fault(task.record.task_id, ["nobody has begun this task"], _log(task))
        for task in stored
        if task.record.task_id not in named
    ]
    return found


def faults_of(stored: StoredTask) -> list[str]:
    """What is wrong with a task as the store has it, that should have ended."""
    record = stored.record
    events = stored.events
    numbers = [number for number, _ in events]
    found = []
    if numbers != list(range(1, len(numbers) + 1)) or not numbers:
        found.append(f"its log has the numbers {numbers}")
        return found
    if record.version != numbers[-1]:
        found.append(f"its version is {record.version}, its last event {numbers[-1]}")
    if not record.state.terminal:
        found.append(f"it is {record.state} for ever; its owner is {record.owner!r}")
    ends = [number for number, event in events if _state(event.value) in _TERMINAL]
    if ends != numbers[-1:]:
        found.append(f"it ends at {ends} of {numbers[-1]} events")
    first = events[0][1].value
    if not isinstance(first, Task):
        found.append(f"its log begins with {events[0][1].json!r}")
        return found
    fold = Fold(first)
    try:
        for _, event in events[1:]:
            fold.apply(event.value)
    except NotAllowed as error:
        found.append(f"its log does not fold: {error}")
        return found
    folded, kept = fold.task(), _told(stored)
    if folded.status != kept.status or _text(folded) != _text(kept):
        found.append(f"its log folds into {folded.status} {_text(folded)!r}, it says {kept.status} {_text(kept)!r}")
    if record.state is not kept.state:
        found.append(f"its record says {record.state}, its snapshot {kept.state}")
    return found


def _against(work: Work, stored: StoredTask, deaths: Sequence[Death]) -> list[str]:
    """What its callers were told that is not so, and what it should have come to."""
    task, plan = _told(stored), work.plan
    state = task.state.removeprefix("TASK_STATE_")
    found = []
    if work.told_ends != {state}:
        found.append(f"it is {state}, its callers were told {sorted(work.told_ends)}")
    log: dict[int, Any] = {number: json.loads(event.json) for number, event in stored.events}
    for subscriber in work.subscribers:
        for number, value in subscriber.events.items():
            if log.get(number) != value:
                found.append(f"{subscriber.name} was told {number} {value}, the log has {log.get(number)}")
    if task.state is TaskState.COMPLETED:
        texts = {_text(task), "".join(_chunks(stored)), *work.texts}
        if texts != {plan.text}:
            found.append(f"its text is {texts}, not {plan.text!r}")
    elif task.state is TaskState.FAILED:
        found += _failure(work, stored, deaths)
    elif task.state is not TaskState.CANCELED or plan.cancel_behind is None:
        found.append(f"it should not have ended {state}")
    answers = [message for message in task.history if message.message_id == work.answer_id]
    if len(answers) > 1 or (work.answered and not answers):
        found.append(f"its answer was acknowledged ({work.answered}), and stands {len(answers)} times in its history")
    return found


def _failure(work: Work, stored: StoredTask, deaths: Sequence[Death]) -> list[str]:
    """Whether it may have FAILED: its replica died, and its agent does not go on, or has gone on often enough."""
    message = _told(stored).status.message
    said = "" if message is None else message.text
    resumed = sum(
        RESUMED in (event.value.metadata or {})
        for _, event in stored.events
        if isinstance(event.value, TaskStatusUpdateEvent)
    )
    if not any(death.began <= work.ended and death.ended >= work.began - 1 for death in deaths):
        return [f"it failed, and no replica has died: {said}"]
    if work.plan.agent == "frail" and said != STOPPED:
        return [f"it failed for another reason: {said}"]
    if work.plan.agent == "tough" and (resumed < _OFTEN or f"stopped {resumed + 1} times" not in said):
        return [f"it failed though its agent goes on after a crash, and was started again {resumed} times: {said}"]
    return []


_TERMINAL = [state for state in TaskState if state.terminal]


def _state(value: object) -> TaskState | None:
    return value.status.state if isinstance(value, Task | TaskStatusUpdateEvent) else None


def _told(stored: StoredTask) -> Task:
    """The task as its snapshot and the events behind that say."""
    record = stored.record
    fold = Fold(decode(record.snapshot, Task))
    for number, event in stored.events:
        if number > record.snapshot_version:
            fold.apply(event.value)
    return fold.task()


def _text(task: Task) -> str:
    return "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts)


def _chunks(stored: StoredTask) -> list[str]:
    values = [event.value for _, event in stored.events]
    return [
        part.text or ""
        for value in values
        if isinstance(value, TaskArtifactUpdateEvent)
        for part in value.artifact.parts
    ]


def _log(stored: StoredTask) -> list[str]:
    return [f"owner {stored.record.owner!r}", *(f"{number:5} {event.json.decode()}" for number, event in stored.events)]


def _story(work: Work, stored: StoredTask | None) -> list[str]:
    return [
        f"task {work.task_id}, from {work.began:.2f} s to {work.ended:.2f} s",
        *work.journal,
        "the log in the store:",
        *([] if stored is None else _log(stored)),
    ]
