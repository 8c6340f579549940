"""The process's traces: one OpenTelemetry provider with its exporter, the SDK's plugin, and a bounded end.

The provider is the SDK's own for workflows, and global as its plugin wants it. An execution's own span is made whole at
its end, with an id that follows from the execution's: so no replay, no other worker and no new run of it makes another.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, SynchronousMultiSpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from temporalio.client import Interceptor as ClientInterceptor
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, create_tracer_provider

from holdfast.runtime.process_exit import before_leaving
from holdfast.telemetry.settings import Telemetry
from holdfast.telemetry.spans import Spans
from holdfast.telemetry.trace_start import TracedClient

SERVICE: Final = "holdfast"
"""What the service is called where OTEL_SERVICE_NAME says nothing."""

UNNAMED: Final = "unknown_service"
"""What OpenTelemetry calls it then."""

FLUSH_SECONDS: Final = 2.0
"""How long a process that ends waits for its collector; what is not told by then is lost."""


@dataclass(frozen=True, slots=True)
class Tracing:
    """What tells traces in this process; `content` says whether prompts, answers and arguments go with them."""

    sampler: Sampler
    resource: Resource
    processor: SynchronousMultiSpanProcessor
    content: bool = False

    @property
    def plugins(self) -> list[OpenTelemetryPlugin]:
        """What a client, and the workers of it, pass the trace on with; it makes no spans of its own."""
        return [OpenTelemetryPlugin()]

    @property
    def interceptors(self) -> Sequence[ClientInterceptor]:
        """What begins a trace where a client starts a run or says something to a session."""
        return [TracedClient()]

    @property
    def spans(self) -> Spans:
        """The spans of activities."""
        return Spans(content=self.content)

    def is_sampled(self, trace_id: int, name: str) -> bool:
        """Return whether a trace that begins here is told: what OTEL_TRACES_SAMPLER says of its id."""
        return self.sampler.should_sample(None, trace_id, name).decision is Decision.RECORD_AND_SAMPLE

    def tell(self, span: dict[str, Any]) -> None:
        """Tell a span that is made whole, from the arguments of ReadableSpan."""
        self.processor.on_end(ReadableSpan(resource=self.resource, **span))

    def flush(self) -> None:
        """Tell what is not told yet, within FLUSH_SECONDS, whatever the collector does."""
        flushing = threading.Thread(
            target=self.processor.force_flush, args=(int(FLUSH_SECONDS * 1_000),), name="traces", daemon=True
        )
        flushing.start()
        flushing.join(FLUSH_SECONDS)


_running: Final = list[Tracing]()
"""The process's, once it has begun: OpenTelemetry's global provider can be set once."""


def tracing(telemetry: Telemetry) -> Tracing | None:
    """Return what tells this process's traces, told to the collector of the OTEL_* variables; none where off.

    Raises ValueError for some variables that OpenTelemetry cannot use; importing this module does for others.
    """
    if not telemetry.traces:
        return None
    if not _running:
        # a program without logging is not to hear of a collector that is away; a worker's log does
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        started = begin(BatchSpanProcessor(OTLPSpanExporter()))
        before_leaving(started.flush)
        atexit.register(started.flush)
    return replace(_running[0], content=telemetry.content)


def begin(processor: SpanProcessor) -> Tracing:
    """Begin to tell this process's traces to `processor`, and return what does."""
    resource = Resource.create()
    if str(resource.attributes.get("service.name", UNNAMED)).startswith(UNNAMED):
        resource = resource.merge(Resource({"service.name": SERVICE}))
    processors = SynchronousMultiSpanProcessor()  # type: ignore[no-untyped-call]  # OpenTelemetry's
    processors.add_span_processor(processor)
    sampler = TracerProvider(shutdown_on_exit=False).sampler  # as OTEL_TRACES_SAMPLER has it
    trace.set_tracer_provider(
        create_tracer_provider(
            sampler=sampler, resource=resource, shutdown_on_exit=False, active_span_processor=processors
        )
    )
    _running.append(Tracing(sampler, resource, processors))
    return _running[0]
