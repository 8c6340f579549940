"""A sink whose deliveries are counted as metrics. Decides nothing about events that the sink does not accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from temporalio import activity
from temporalio.common import MetricMeter

from holdfast.core.wire import metric_definitions
from holdfast.core.wire.metric_definitions import Metric
from holdfast.sinks.sink import Batch, Sink, SinkAway, SinkRefused

KINDS: Final[Mapping[type[Exception], str]] = {SinkAway: "away", SinkRefused: "refused"}
"""The metric label of each sink error; any other error is `failed`."""


class MeteredSink:
    """Delivers to `sink` and counts."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @property
    def name(self) -> str:
        """The sink's own name."""
        return self._sink.name

    async def open(self) -> None:
        """Open the sink."""
        self._count(metric_definitions.SINK_EVENTS, 0)
        for kind in (*KINDS.values(), "failed"):
            self._count(metric_definitions.SINK_FAILURES, 0, type=kind)
        await self._sink.open()

    async def deliver(self, batch: Batch) -> None:
        """Deliver and count. Raises what the sink raises."""
        try:
            await self._sink.deliver(batch)
        except Exception as error:
            kinds = (word for kind, word in KINDS.items() if isinstance(error, kind))
            self._count(metric_definitions.SINK_FAILURES, 1, type=next(kinds, "failed"))
            raise
        self._count(metric_definitions.SINK_EVENTS, len(batch.events))

    async def close(self) -> None:
        """Close the sink."""
        await self._sink.close()

    def _count(self, metric: Metric, count: int, **labels: str) -> None:
        meter = activity.metric_meter() if activity.in_activity() else MetricMeter.noop
        meter.create_counter(metric.name, metric.about).add(count, {"sink": self.name, **labels})
