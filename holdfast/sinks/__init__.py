"""Where workers deliver the events of all runs to: files, webhooks, OpenTelemetry, or what you write yourself."""

from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.sinks.batches import Away, Batch, Refused, Sink
from holdfast.sinks.jsonl import JsonLines

__all__ = ["Away", "Batch", "JsonLines", "NumberedEvent", "Refused", "Sink"]
