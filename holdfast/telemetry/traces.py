"""The process's traces: one OpenTelemetry provider with its exporter, the SDK's plugin, and a bounded flush at exit.

The provider is the SDK's workflow-safe one, and it is global because the SDK's plugin requires that. An execution's own
span is created complete when the execution ends. Its id is derived from the execution's, so no replay, other worker or
further Temporal run creates a second one.
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
from opentelemetry.util.types import Attributes
from temporalio.client import Interceptor as ClientInterceptor
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, ReplaySafeTracerProvider, create_tracer_provider
from typing_extensions import override

from holdfast.runtime.process_exit import before_leaving
from holdfast.telemetry.settings import Telemetry
from holdfast.telemetry.spans import Spans
from holdfast.telemetry.trace_start import TracedClient

SERVICE: Final = "holdfast"
"""The service name if OTEL_SERVICE_NAME is not set."""

UNNAMED: Final = "unknown_service"
"""OpenTelemetry's own default, which SERVICE replaces."""

UNHEARD: Final = frozenset({"mcp-python-sdk"})
"""Libraries whose own spans are left out: they would tell the texts of errors, which can quote anything.

The MCP SDK sends a server the place in the trace that it finds, in `_meta` (SEP-414): so that is our tool call's.
"""

FLUSH_SECONDS: Final = 2.0
"""How long an exiting process waits for its collector; spans not exported by then are lost."""


@dataclass(frozen=True, slots=True)
class Tracing:
    """This process's tracing; `content` is whether spans carry prompts, answers and arguments."""

    sampler: Sampler
    resource: Resource
    processor: SynchronousMultiSpanProcessor
    content: bool = False

    @property
    def plugins(self) -> list[OpenTelemetryPlugin]:
        """The plugins by which a client and its workers propagate the trace; they create no spans of their own."""
        return [OpenTelemetryPlugin()]

    @property
    def interceptors(self) -> Sequence[ClientInterceptor]:
        """The interceptors that start a trace when a client starts a run or sends a message to a session."""
        return [TracedClient()]

    @property
    def spans(self) -> Spans:
        """The spans of activities."""
        return Spans(content=self.content)

    def is_sampled(self, trace_id: int, name: str) -> bool:
        """Return whether OTEL_TRACES_SAMPLER samples a trace that starts here with this id."""
        return self.sampler.should_sample(None, trace_id, name).decision is Decision.RECORD_AND_SAMPLE

    def export(self, span: dict[str, Any]) -> None:
        """Export a complete span, given as the arguments of ReadableSpan."""
        self.processor.on_end(ReadableSpan(resource=self.resource, **span))

    def flush(self) -> None:
        """Export the remaining spans; return within FLUSH_SECONDS, whatever the collector does."""
        flushing = threading.Thread(
            target=self.processor.force_flush, args=(int(FLUSH_SECONDS * 1_000),), name="traces", daemon=True
        )
        flushing.start()
        flushing.join(FLUSH_SECONDS)


class _Provider(ReplaySafeTracerProvider):
    """The provider of all but UNHEARD, whose code then sees the span that it is called in, ours."""

    @override
    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes = None,
    ) -> trace.Tracer:
        if instrumenting_module_name in UNHEARD:
            return trace.NoOpTracer()
        library = (instrumenting_module_name, instrumenting_library_version)
        return super().get_tracer(*library, schema_url, attributes)


_running: Final = list[Tracing]()
"""The process's tracing, once started: OpenTelemetry's global provider can be set only once."""


def tracing(telemetry: Telemetry) -> Tracing | None:
    """Return this process's tracing, which exports to the collector of the OTEL_* variables; None if traces are off.

    Raises ValueError for some invalid variables; for others OpenTelemetry raises when this module is imported.
    """
    if not telemetry.traces:
        return None
    if not _running:
        # a program without logging must not print errors when the collector is down; a worker's log shows them
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        started = begin(BatchSpanProcessor(OTLPSpanExporter()))
        before_leaving(started.flush)
        atexit.register(started.flush)
    return replace(_running[0], content=telemetry.content)


def begin(processor: SpanProcessor) -> Tracing:
    """Start this process's tracing, with spans going to `processor`, and return it."""
    resource = Resource.create()
    if str(resource.attributes.get("service.name", UNNAMED)).startswith(UNNAMED):
        resource = resource.merge(Resource({"service.name": SERVICE}))
    processors = SynchronousMultiSpanProcessor()  # type: ignore[no-untyped-call]  # OpenTelemetry's
    processors.add_span_processor(processor)
    sampler = TracerProvider(shutdown_on_exit=False).sampler  # as OTEL_TRACES_SAMPLER has it
    ids = create_tracer_provider(shutdown_on_exit=False).id_generator()
    provider = TracerProvider(
        sampler=sampler,
        resource=resource,
        shutdown_on_exit=False,
        active_span_processor=processors,
        id_generator=ids,
    )
    trace.set_tracer_provider(_Provider(provider, ids))
    _running.append(Tracing(sampler, resource, processors))
    return _running[0]
