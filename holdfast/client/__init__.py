"""What other programs use to start, watch and stop agents. Talks to workflows by name, never imports them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.client.watch_events import AttemptFailed, TextDelta, Watched
from holdfast.connection.settings import Settings
from holdfast.core.base.errors import MissingPart

if TYPE_CHECKING:
    from holdfast.client.agent_handle import AgentHandle
    from holdfast.client.approvals import WaitingCall, WaitingCalls
    from holdfast.client.holdfast import Holdfast
    from holdfast.client.listing import ExecutionSummary, SessionSummary
    from holdfast.client.runs import Client

__all__ = [
    "AgentHandle",
    "AttemptFailed",
    "Client",
    "ExecutionSummary",
    "Holdfast",
    "SessionSummary",
    "Settings",
    "TextDelta",
    "WaitingCall",
    "WaitingCalls",
    "Watched",
]

_PLACES = {
    "AgentHandle": "agent_handle",
    "Client": "runs",
    "ExecutionSummary": "listing",
    "Holdfast": "holdfast",
    "SessionSummary": "listing",
    "WaitingCall": "approvals",
    "WaitingCalls": "approvals",
}
"""Where the names are that need the Temporal SDK."""


def __getattr__(name: str) -> Any:  # noqa: ANN401  # what a module holds
    """Import such a name when it is asked for, so that everything else works without the Temporal SDK."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"holdfast.client.{_PLACES[name]}"), name)
    except ModuleNotFoundError as error:
        part = (error.name or "").partition(".")[0]
        if part not in ("temporalio", "obstore"):
            raise
        raise MissingPart(f"a client needs {part}, which is not installed: pip install 'holdfast[temporal]'") from None
