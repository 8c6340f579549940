"""What users test their agents with: scripted models and tools, a fake server, a ledger, builders and assertions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_names import lazy_names
from holdfast.testing.assertions import (
    assert_called,
    assert_completed,
    assert_every_call_answered,
    assert_failed,
    assert_same_run,
    assert_stopped,
    assert_within_budget,
    calls_of,
    run_summary,
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
from holdfast.testing.ledger import Entry, Ledger, idempotency_key
from holdfast.testing.script import Call, Reply, Script, ServerCall, call, calls, say
from holdfast.testing.scripted_model import ScriptedModel
from holdfast.testing.scripted_tools import ResultsExhausted, ScriptedTool, scripted_tool

if TYPE_CHECKING:
    from holdfast.testing.anthropic_server import FakeAnthropic
    from holdfast.testing.openai_server import FakeOpenAI, serve
    from holdfast.testing.responses_server import FakeResponses

__all__ = [
    "Call",
    "Entry",
    "FakeAnthropic",
    "FakeOpenAI",
    "FakeResponses",
    "Hold",
    "Ledger",
    "Reply",
    "ResultsExhausted",
    "Script",
    "ScriptedModel",
    "ScriptedTool",
    "ServerCall",
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
    "idempotency_key",
    "numbered_ids",
    "run_summary",
    "say",
    "scripted_tool",
    "serve",
    "ticking_clock",
    "user",
]


__getattr__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("FakeOpenAI", "serve"), "openai_server"),
        "FakeAnthropic": "anthropic_server",
        "FakeResponses": "responses_server",
    },
    {"aiohttp": "testing"},
    "FakeOpenAI",
)
