"""What users test their agents with: scripted models and tools, a fake server, a ledger, builders and assertions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.testing.assertions import (
    assert_called,
    assert_completed,
    assert_every_call_answered,
    assert_failed,
    assert_same_run,
    assert_stopped,
    assert_within_budget,
    calls_of,
    told_run,
)
from holdfast.testing.builders import (
    a_call,
    a_message,
    a_response,
    a_state,
    a_step,
    an_error,
    assistant,
    numbered_ids,
    ticking_clock,
    user,
)
from holdfast.testing.comparison import differences
from holdfast.testing.holds import Hold
from holdfast.testing.ledger import Ledger
from holdfast.testing.script import Call, Reply, Script, call, calls, say
from holdfast.testing.scripted_model import ScriptedModel
from holdfast.testing.scripted_tools import ResultsExhausted, ScriptedTool, scripted_tool

if TYPE_CHECKING:
    from holdfast.testing.openai_server import FakeOpenAI

__all__ = [
    "Call",
    "FakeOpenAI",
    "Hold",
    "Ledger",
    "Reply",
    "ResultsExhausted",
    "Script",
    "ScriptedModel",
    "ScriptedTool",
    "a_call",
    "a_message",
    "a_response",
    "a_state",
    "a_step",
    "an_error",
    "assert_called",
    "assert_completed",
    "assert_every_call_answered",
    "assert_failed",
    "assert_same_run",
    "assert_stopped",
    "assert_within_budget",
    "assistant",
    "call",
    "calls",
    "calls_of",
    "differences",
    "numbered_ids",
    "say",
    "scripted_tool",
    "ticking_clock",
    "told_run",
    "user",
]


def __getattr__(name: str) -> object:
    """Import the fake server when it is asked for: it needs aiohttp, nothing else here does."""
    if name == "FakeOpenAI":
        from holdfast.testing.openai_server import FakeOpenAI  # noqa: PLC0415  # as said

        return FakeOpenAI
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
