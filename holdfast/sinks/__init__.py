"""Where workers deliver the events of all runs to: files, webhooks, OpenTelemetry, or what you write yourself."""

from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.sinks.jsonl import JsonLines
from holdfast.sinks.sink import Away, Batch, Refused, Sink

__all__ = ["Away", "Batch", "JsonLines", "NumberedEvent", "Refused", "Sink"]
