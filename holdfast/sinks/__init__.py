"""Where workers deliver the events of all runs: files, webhooks, OpenTelemetry, or a sink of your own."""

from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.sinks.jsonl import JsonLines
from holdfast.sinks.sink import Batch, Sink, SinkAway, SinkRefused

__all__ = ["Batch", "JsonLines", "NumberedEvent", "Sink", "SinkAway", "SinkRefused"]
