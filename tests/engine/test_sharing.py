"""What an agent gives is taken as it is in that moment: later changes to its own objects change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.scene import CALLER, in_loop, rest_of, says, serving
from tieline import Artifact, Part, Turn
from tieline.ids import new_id
from tieline.types import GetTaskRequest, Message, Role, SendMessageRequest, Task, TaskArtifactUpdateEvent


async def told_and_kept(function: Any) -> tuple[list[Any], list[Any]]:
    """The content that a stream told, part by part, and that of the task read afterwards."""
    async with serving(function) as service:
        cursor = await service.send_streaming_message(says("begin"), CALLER)
        events = [event for _, event in await rest_of(cursor)]
        chunks = [event.artifact for event in events if isinstance(event, TaskArtifactUpdateEvent)]
        (task,) = [event for event in events if isinstance(event, Task)]
        kept = (await service.get_task(GetTaskRequest(task.id), CALLER)).value
    return (
        [[part.data, part.metadata] for artifact in chunks for part in artifact.parts],
        [[part.data, part.metadata] for artifact in kept.artifacts for part in artifact.parts],
    )


@pytest.mark.parametrize("kind", ["list", "dict", "nested", "part", "metadata"])
@in_loop
async def test_an_agent_may_go_on_using_what_it_has_yielded(kind: str) -> None:
    async def grows(turn: Turn) -> Any:
        rows: list[int] = []
        table: dict[str, Any] = {"rows": rows}
        for number in range(3):
            rows.append(number)
            table["count"] = number
            if kind == "list":
                yield rows
            elif kind == "dict":
                yield table
            elif kind == "nested":
                yield {"table": table}
            elif kind == "part":
                yield Part(data=rows)
            else:
                yield Artifact(str(number), (Part(data=number, metadata=table),), metadata=table)

    told, kept = await told_and_kept(grows)
    assert len(told) == 3
    assert told == kept
    counts = [str(one) for one in told]
    assert len(set(counts)) == 3, "what was told first has grown with what came later"


@in_loop
async def test_an_agent_may_change_what_it_has_read_of_its_caller() -> None:
    """`turn.data` is a dict like any other: an agent that puts something into it must not rewrite the history."""

    async def writes(turn: Turn) -> Any:
        turn.data["mine"] = True
        turn.metadata["mine"] = True
        assert turn.message.metadata is not None
        turn.message.metadata["deep"]["mine"] = True
        yield turn.data
        answer = await turn.ask("Which?")
        answer.data["mine"] = True
        yield answer.data

    def sent(task_id: str | None = None) -> SendMessageRequest:
        message = Message(
            new_id(),
            Role.USER,
            (Part(data={"yours": 1}, metadata={"deep": {}}),),
            task_id=task_id,
            metadata={"deep": {}},
        )
        return SendMessageRequest(message)

    async with serving(writes) as service:
        task = (await service.send_message(sent(), CALLER)).value
        assert isinstance(task, Task)
        ended = (await service.send_message(sent(task.id), CALLER)).value
        assert isinstance(ended, Task)
        kept = (await service.get_task(GetTaskRequest(task.id), CALLER)).value
        for shown in (task, ended, kept):
            for heard in shown.history:
                if heard.role is Role.USER:
                    assert heard.parts[0].data == {"yours": 1}
                    assert heard.metadata == {"deep": {}}
        assert [part.data for part in kept.artifacts[0].parts] == [{"yours": 1, "mine": True}] * 2
