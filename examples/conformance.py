"""The agents that a conformance kit is run against (scripts/conformance does it).

The A2A Technology Compatibility Kit for 1.0 chooses what the agent does by the first letters of each message's id.
`full`, `plain` and `extended` behave alike and differ in what their cards promise: together they reach every test of
it. The kit for 0.3 wants one agent, `asking`, that works for some seconds and then asks for more, again and again.

    tieline serve examples/conformance.py:plain

`full` and `asking` have an extended card, and so want their callers to authenticate: `tieline serve --auth bearer`.
"""

from __future__ import annotations

import asyncio

from tieline import AgentExtension, AgentSkill, Answer, Message, Part, Rejected, Turn, agent

# Twice the kit's own waiting time (TCK_STREAMING_TIMEOUT, 2 s unless set): a subscriber must find the task running.
LONG_RUN_S = 4.0
WORK_S = 3.0  # long enough to be seen at work, and cancelled; short enough for callers that wait

# What these agents do does not depend on a message's content, so they take any. The refusal of other media types
# cannot be judged by the kit: the test that is named after it (CORE-SEND-003) passes only where it is accepted.
ANY_MEDIA_TYPE = ("*/*",)
# The kit for 0.3 sends files and data only where the card has these words among its input modes.
MODES_03 = (*ANY_MEDIA_TYPE, "text", "file", "data")

TEXTS = {
    "tck-artifact-text": "Generated text content",
    "tck-stream-artifact-text": "Streamed text content",
    "tck-stream-ordering-001": "Ordered output",
    "tck-stream-001": "Stream hello from TCK",
    "tck-stream-003": "Stream task lifecycle",
}
FILE = Part(raw=b"Generated file content", filename="output.txt", media_type="text/plain")
LINK = Part(url="https://example.com/output.txt", filename="output.txt", media_type="text/plain")

SKILL = AgentSkill(
    id="conformance",
    name="Conformance",
    description="Does what the id of a message asks for.",
    tags=("conformance", "test"),
)
INNER_SKILL = AgentSkill(
    id="inside",
    name="Inside",
    description="Does the same for those who have authenticated: only they read of it.",
    tags=("conformance",),
)


async def behave(turn: Turn) -> Message | Part | str | dict[str, object] | None:
    """Do what the message's id begins with; an id that is not known completes the task."""
    message_id = turn.message.message_id
    while message_id.startswith("tck-input-required"):
        answer: Answer = await turn.ask("What should be done?")
        message_id = answer.message.message_id

    if message_id.startswith("tck-message-response"):
        return turn.reply("Direct message response")
    if message_id.startswith("tck-reject-task"):
        raise Rejected("rejected")
    if message_id.startswith(("tck-stream-", "test-resubscribe-")) and not message_id.startswith("tck-stream-002"):
        await turn.status("Working on it.")
    if message_id.startswith("test-resubscribe-message-id"):
        await asyncio.sleep(LONG_RUN_S)

    for prefix, text in TEXTS.items():
        if message_id.startswith(prefix):
            return text
    # The longer of two ids with the same beginning comes first.
    if message_id.startswith("tck-artifact-file-url"):
        return LINK
    if message_id.startswith(("tck-artifact-file", "tck-stream-artifact-file")):
        return FILE
    if message_id.startswith("tck-artifact-data"):
        return {"key": "value", "count": 42}
    if message_id.startswith("tck-stream-artifact-chunked"):
        async with turn.artifact("chunks", media_type="text/plain") as out:
            await out.write("chunk-1 ")
            await out.write("chunk-2")
        return None
    await turn.complete("Hello from TCK")
    return None


full = agent(
    name="Conformance: full",
    description="Every capability that this package has.",
    skills=(SKILL,),
    input_modes=ANY_MEDIA_TYPE,
    streaming=True,
    extended_skills=(INNER_SKILL,),
)(behave)

plain = agent(
    name="Conformance: plain",
    description="No streaming, no push notifications, no extended card.",
    skills=(SKILL,),
    input_modes=ANY_MEDIA_TYPE,
    streaming=False,
)(behave)

extended = agent(
    name="Conformance: extended",
    description="Refuses callers that do not name its extension.",
    skills=(SKILL,),
    input_modes=ANY_MEDIA_TYPE,
    streaming=True,
    extensions=(AgentExtension(uri="urn:a2a:tck:required-extension", required=True),),
)(behave)


async def work_and_ask(turn: Turn) -> None:
    """Work for some seconds on each message, then ask for the next; only a cancel ends the task."""
    message = turn.message
    while True:
        await turn.status("Processing your question")
        await asyncio.sleep(LONG_RUN_S if message.message_id.startswith("test-resubscribe-message-id") else WORK_S)
        answer: Answer = await turn.ask("Hello world!")
        message = answer.message


asking = agent(
    name="Conformance: asking",
    description="Works for three seconds, then asks.",
    skills=(SKILL,),
    input_modes=MODES_03,
    streaming=True,
    extended_skills=(INNER_SKILL,),
)(work_and_ask)
