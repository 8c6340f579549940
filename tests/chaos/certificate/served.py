"""The tools and hooks of the certificate's agents, as its workers import them: each leaves lines in the ledger."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from holdfast import ToolContext, tool
from holdfast.core.agent.hooks import Changes, HookContext, hook
from holdfast.testing.ledger import Ledger
from tests.chaos.tools import note, pay, sign

HOLD_SECONDS_MAX: Final = 600

TOOLS: Final = (note, pay, sign)


def gate_of(ledger: Path) -> Path:
    """Return the file whose presence lets the tool `hold` go on."""
    return ledger.with_suffix(".gate")


@tool(timeout_seconds=HOLD_SECONDS_MAX)
async def hold(text: str = "held", *, context: ToolContext) -> str:
    """Wait until somebody opens the gate."""
    path = Path(os.environ["HOLDFAST_LEDGER"])
    Ledger(path).append("tool", "hold", "started", key=context.idempotency_key, detail={"text": text})
    while not gate_of(path).exists():  # noqa: ASYNC110  # a file tells nobody that it is there
        await asyncio.sleep(0.02)
    Ledger(path).append("tool", "hold", "finished", key=context.idempotency_key, detail={"text": text})
    return f"held {text}"


@hook("before_tool", tools=("note",))
def rename(context: HookContext) -> Changes | None:
    """Change what is noted."""
    arguments = dict(context.call.arguments) if context.call else {}
    return Changes(arguments={**arguments, "text": f"{arguments['text']}, renamed"})


@hook("after_tool", tools=("note",))
def count_notes(context: HookContext) -> Changes:
    """Count the notes in the metadata."""
    before = context.metadata.get("notes", 0)
    return Changes(metadata={"notes": before + 1 if isinstance(before, int) else 1})


@hook("after_inference")
def censor(context: HookContext) -> Changes | None:
    """Change the answer."""
    text = context.response.text if context.response else ""
    return Changes(answer=text.replace("secret", "*****")) if "secret" in text else None


@hook("after_step")
def once_more(context: HookContext) -> Changes | None:
    """Have it go on once."""
    response = context.response
    if context.metadata.get("went_on") or response is None or response.tool_calls:
        return None
    return Changes(metadata={"went_on": True}, go_on=True)


HOOKS: Final = (rename, count_notes, censor, once_more)
