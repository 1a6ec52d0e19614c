"""An agent that asks three questions and goes on where it was when its server dies in between.

    tieline serve examples/interview.py
    tieline send -a 127.0.0.1:8000 "Hello"

Kill the server with -9 at any moment and start it again: no question is asked twice, and no answer is lost.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from tieline import Turn, agent

QUESTIONS = ("What is your name?", "What do you do?", "What do you like about it?")


@agent(name="Interview", description="Asks three questions and writes what it has heard.", resumable=True)
async def interview(turn: Turn) -> AsyncGenerator[str, None]:
    # Started again it runs from here, and what was answered is there at once. So these lines are written as if no
    # server ever died; what is told depends on nothing but the answers, and so nothing is told twice.
    name, work, why = [(await turn.ask(question)).strip() for question in QUESTIONS]
    yield f"{name} does {work}, "
    # A line that acts on the world would do it again, too: turn.task_id is the same each time, so that whoever is
    # asked to do it can see that it is asked twice.
    yield f"and likes this about it: {why}"
