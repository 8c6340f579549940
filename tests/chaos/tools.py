"""Tools with an outside ledger, for workers that get killed."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path

from holdfast import ToolContext, tool
from holdfast.testing.ledger import Ledger


@tool
async def note(text: str, seconds: float = 0.2, *, context: ToolContext) -> str:
    """Write a line to the ledger, take a while, write another."""
    ledger = Ledger(Path(os.environ["HOLDFAST_LEDGER"]))
    ledger.append("tool", "note", "started", key=context.idempotency_key, detail={"text": text})
    await asyncio.sleep(seconds)
    ledger.append("tool", "note", "finished", key=context.idempotency_key, detail={"text": text})
    return f"noted {text}"


@tool(at_most_once=True)
async def pay(amount: int, seconds: float = 0.2, *, context: ToolContext) -> str:
    """Change the world once: the ledger's line is the effect."""
    Ledger(Path(os.environ["HOLDFAST_LEDGER"])).append("tool", "pay", "started", key=context.idempotency_key)
    await asyncio.sleep(seconds)
    return f"paid {amount}"


@tool(attempts_max=3)
async def crash(seconds: float = 0, *, context: ToolContext) -> str:
    """Take the whole worker along after a while, as a tool that runs out of memory does."""
    Ledger(Path(os.environ["HOLDFAST_LEDGER"])).append("tool", "crash", "started", key=context.idempotency_key)
    await asyncio.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@tool
def clock() -> float:
    """Return what this machine takes the time for."""
    return time.time()


@tool
async def sign(text: str, *, context: ToolContext) -> str:
    """Write a line to the ledger once a person has allowed it."""
    Ledger(Path(os.environ["HOLDFAST_LEDGER"])).append(
        "tool", "sign", "finished", key=context.idempotency_key, detail={"text": text}
    )
    return f"signed {text}"


@tool(timeout_seconds=300)
def hog(seconds: int, *, context: ToolContext) -> str:
    """Keep the interpreter's lock for so long, as a parser written in C does."""
    ledger = Ledger(Path(os.environ["HOLDFAST_LEDGER"]))
    ledger.append("tool", "hog", "started", key=context.idempotency_key)
    ctypes.PyDLL(None).sleep(seconds)
    ledger.append("tool", "hog", "finished", key=context.idempotency_key)
    return f"held {seconds}"


@tool(timeout_seconds=3600)
async def hang(*, context: ToolContext) -> str:
    """Never end."""
    Ledger(Path(os.environ["HOLDFAST_LEDGER"])).append("tool", "hang", "started", key=context.idempotency_key)
    await asyncio.Event().wait()
    raise AssertionError("that event is never set")
