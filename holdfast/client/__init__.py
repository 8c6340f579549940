"""What other programs use to start, watch and stop agents. Talks to workflows by name, never imports them."""

from typing import TYPE_CHECKING

from holdfast.client.definition_files import load_definition
from holdfast.client.validation import check_question
from holdfast.client.watch_events import (
    AttemptFailed,
    RateLimitAwaited,
    TextDelta,
    ToolProgressed,
    Watched,
    WorkerAwaited,
)
from holdfast.connection.settings import Settings
from holdfast.lazy_names import lazy_names

if TYPE_CHECKING:
    from holdfast.client.agent_handle import AgentHandle
    from holdfast.client.execution_summaries import ExecutionSummary, SessionSummary
    from holdfast.client.holdfast import Holdfast
    from holdfast.client.waiting_calls import WaitingCall, WaitingCalls

__all__ = [
    "AgentHandle",
    "AttemptFailed",
    "ExecutionSummary",
    "Holdfast",
    "RateLimitAwaited",
    "SessionSummary",
    "Settings",
    "TextDelta",
    "ToolProgressed",
    "WaitingCall",
    "WaitingCalls",
    "Watched",
    "WorkerAwaited",
    "check_question",
    "load_definition",
]

_PLACES = {
    "AgentHandle": "agent_handle",
    "ExecutionSummary": "execution_summaries",
    "Holdfast": "holdfast",
    "SessionSummary": "execution_summaries",
    "WaitingCall": "waiting_calls",
    "WaitingCalls": "waiting_calls",
}
"""Where the names are that need the Temporal SDK; everything else works without it."""


__getattr__ = lazy_names(__name__, _PLACES, {"temporalio": "temporal", "obstore": "temporal"}, "a client")
