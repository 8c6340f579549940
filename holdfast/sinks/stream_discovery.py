"""Discovery of a sink's streams: those that run, and those that ended since the last look."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client as TemporalClient

from holdfast.connection.executions import executions
from holdfast.connection.workflow_reader import ASK_TIMEOUT
from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.session_contracts import AGENT_SESSION
from holdfast.core.wire.workflow_ids import base_type, type_filter
from holdfast.sinks.event_stream import EventStream
from holdfast.sinks.position import MARGIN, ConsumerPosition

SINK_LISTED_MAX: Final = 1_000
"""How many ended executions a sink looks through at once; where there are more it looks at a shorter time."""

SHALLOW: Final = timedelta(seconds=5)
"""How far back every look reaches; each DEEP_LOOKS-th one reaches back MARGIN, for what was listed late."""

DEEP_LOOKS: Final = 30
"""So many looks, some half a minute, come to one that is thorough."""

SPAN_MAX: Final = timedelta(days=3650)
"""The longest time one look at what has ended covers; shorter where more than SINK_LISTED_MAX ended in it."""

RETENTION_MIN: Final = timedelta(days=1)
"""So long ago a new consumer begins at least, whatever the server says of its retention."""

SPAN_MIN: Final = timedelta(seconds=1)


ENDED: Final = (
    f"({type_filter(AGENT_EXECUTION)} AND ExecutionStatus NOT IN ('Running', 'ContinuedAsNew')"
    f" OR {type_filter(AGENT_SESSION)} AND ExecutionStatus != 'Running')"
)
"""An execution ends once, whatever Temporal runs it has; of a session each Temporal run does."""

Include = Callable[[EventStream, datetime], bool]
"""Says whether a stream is to be listed, by when the Temporal run that is listed for it ended, or began if it runs."""


Clock = Callable[[], datetime]
"""Tells the server's time, by which executions end: a worker's own clock can be minutes from it."""


class Discovery:
    """Lists the streams of one task queue for one consumer, those that began first before the others."""

    def __init__(self, temporal: TemporalClient, task_queue: str, place: ConsumerPosition, clock: Clock) -> None:
        self._temporal, self._place, self._clock = temporal, place, clock
        queue = task_queue.replace("\\", "\\\\").replace("'", "\\'")
        self._ours = f"TaskQueue = '{queue}'"
        self._span = SPAN_MAX
        self._looks = 0
        self.behind = False
        """Whether more goes on than could be followed after the last look: then the next one is as thorough."""

    async def running(self, include: Include) -> list[EventStream]:
        """Return the running streams to `include`, at most SINK_LISTED_MAX. Raises RPCError.

        The server lists the latest to begin first: most looks go no further than to the SINK_LISTED_MAX latest, each
        DEEP_LOOKS-th one through all.
        """
        ours = f"({type_filter(AGENT_EXECUTION)} OR {type_filter(AGENT_SESSION)})"
        thorough = self.behind or self._looks % DEEP_LOOKS == 0
        return await self._listed(
            f"{ours} AND ExecutionStatus = 'Running'", include, None if thorough else SINK_LISTED_MAX
        )

    async def ended(self, include: Include) -> tuple[list[EventStream], datetime]:
        """Return the streams to `include` that ended since the last look, and the moment up to which those are all.

        Raises RPCError.
        """
        now = self._clock()
        back = SHALLOW if self._looks % DEEP_LOOKS else MARGIN
        since = self._place.looked_until - back
        while True:
            until = min(self._place.looked_until + self._span, now)
            times = f"CloseTime >= '{since.isoformat()}' AND CloseTime <= '{until.isoformat()}'"
            streams = await self._listed(f"{ENDED} AND {times}", include)
            if len(streams) < SINK_LISTED_MAX or self._span <= SPAN_MIN:
                break
            self._span /= 2
        self._looks += 1
        if len(streams) >= SINK_LISTED_MAX:  # within SPAN_MIN: those first, and then the same time once more
            return streams, self._place.looked_until
        self._span = min(self._span * 2, SPAN_MAX)
        return streams, until

    async def remembered_since(self) -> datetime:
        """Return since when the server may remember executions that have ended."""
        request = DescribeNamespaceRequest(namespace=self._temporal.namespace)
        described = await self._temporal.workflow_service.describe_namespace(request, timeout=ASK_TIMEOUT)
        retention: Duration = described.config.workflow_execution_retention_ttl
        return self._clock() - max(retention.ToTimedelta(), RETENTION_MIN)

    async def _listed(self, query: str, include: Include, limit: int | None = None) -> list[EventStream]:
        streams: dict[EventStream, datetime] = {}
        query = f"{self._ours} AND {query}"
        async for each in executions(self._temporal, query, limit=limit, rpc_timeout=ASK_TIMEOUT):
            of_session = base_type(each.workflow_type) == AGENT_SESSION
            stream = EventStream(each.id, each.run_id if of_session else None)
            if include(stream, each.close_time or each.start_time):
                streams.setdefault(stream, each.start_time)
                if len(streams) >= SINK_LISTED_MAX:
                    break
        return sorted(streams, key=streams.__getitem__)
