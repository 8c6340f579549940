"""Which executions a sink has to hear of: those that run, and those that ended since it last looked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client as TemporalClient

from holdfast.client.reading import ASK_TIMEOUT
from holdfast.core.contracts import AGENT_EXECUTION
from holdfast.core.limits import SINK_LISTED_MAX
from holdfast.sinks.place import MARGIN, Place

SHALLOW: Final = timedelta(seconds=5)
"""How far back every look reaches; each DEEP_LOOKS-th one reaches back MARGIN, for what was listed late."""

DEEP_LOOKS: Final = 30

SPAN_MAX: Final = timedelta(days=3650)
"""The longest time one look at ended executions covers; shorter where more than SINK_LISTED_MAX ended in it."""

RETENTION_MIN: Final = timedelta(days=1)
"""So long ago a new consumer begins at least, whatever the server says of its retention."""

SPAN_MIN: Final = timedelta(seconds=1)


class Looking:
    """Lists the executions of one task queue for one consumer. Asks no worker."""

    def __init__(self, temporal: TemporalClient, task_queue: str, place: Place) -> None:
        self._temporal, self._place = temporal, place
        queue = task_queue.replace("\\", "\\\\").replace("'", "\\'")
        self._ours = f"WorkflowType = '{AGENT_EXECUTION}' AND TaskQueue = '{queue}'"
        self._span = SPAN_MAX
        self._looks = 0

    async def running(self, wanted: Callable[[str], bool]) -> list[str]:
        """Return executions under way that are `wanted`, at most SINK_LISTED_MAX. Raises RPCError."""
        return await self._listed("ExecutionStatus = 'Running'", wanted)

    async def ended(self, wanted: Callable[[str], bool]) -> tuple[list[str], datetime]:
        """Return `wanted` executions that ended since the last look, and until when that is all. Raises RPCError."""
        now = datetime.now(UTC)
        back = SHALLOW if self._looks % DEEP_LOOKS else MARGIN
        since = self._place.looked_until - back
        while True:
            until = min(self._place.looked_until + self._span, now)
            times = f"CloseTime >= '{since.isoformat()}' AND CloseTime <= '{until.isoformat()}'"
            found = await self._listed(f"ExecutionStatus NOT IN ('Running', 'ContinuedAsNew') AND {times}", wanted)
            if len(found) < SINK_LISTED_MAX or self._span <= SPAN_MIN:
                break
            self._span /= 2
        self._looks += 1
        if len(found) >= SINK_LISTED_MAX:  # within SPAN_MIN: those first, and then the same time once more
            return found, self._place.looked_until
        self._span = min(self._span * 2, SPAN_MAX)
        return found, until

    async def remembered_since(self) -> datetime:
        """Return since when the server may remember executions that have ended."""
        request = DescribeNamespaceRequest(namespace=self._temporal.namespace)
        described = await self._temporal.workflow_service.describe_namespace(request, timeout=ASK_TIMEOUT)
        kept: Duration = described.config.workflow_execution_retention_ttl
        return datetime.now(UTC) - max(kept.ToTimedelta(), RETENTION_MIN)

    async def _listed(self, query: str, wanted: Callable[[str], bool]) -> list[str]:
        found: dict[str, None] = {}
        async for each in self._temporal.list_workflows(f"{self._ours} AND {query}", rpc_timeout=ASK_TIMEOUT):
            if wanted(each.id):
                found[each.id] = None
                if len(found) >= SINK_LISTED_MAX:
                    break
        return [*found]
