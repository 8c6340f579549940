"""Why a run has not begun yet: MCP servers whose tools cannot be listed. Asks the server, no worker."""

from __future__ import annotations

from holdfast.client.watch_events import AttemptFailed
from holdfast.connection.event_page_reader import Reader, next_attempt_at
from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.safe_text import clamped
from holdfast.core.wire.contracts import RESOLVE_MCP_ACTIVITY, EventsPage


async def listing_failure(reader: Reader[EventsPage], execution_id: str, run_id: str = "") -> AttemptFailed | None:
    """Return the latest failure to list the servers' tools for a run; none while no attempt has failed."""
    for call in await reader.calls(run_id):
        if call.activity_type.name == RESOLVE_MCP_ACTIVITY and (message := await reader.failure(call)):
            text = clamped(message, ERROR_CHARS_MAX)
            return AttemptFailed(execution_id, 0, call.attempt - 1, text, next_attempt_at(call))
    return None
