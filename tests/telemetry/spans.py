"""Reading spans that were told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@dataclass(frozen=True, slots=True)
class Told:
    """The spans so far."""

    exporter: InMemorySpanExporter

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    @property
    def names(self) -> Counter[str]:
        return Counter(span.name for span in self.spans)

    @property
    def traces(self) -> set[int]:
        return {span.context.trace_id for span in self.spans if span.context}

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of that name."""
        (found,) = self.all(name)
        return found

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def parent(self, span: ReadableSpan) -> str | None:
        """Return the name of a span's parent; none for the first of a trace. Every other one must have been told."""
        if span.parent is None:
            return None
        (found,) = [each for each in self.spans if each.context and each.context.span_id == span.parent.span_id]
        return found.name

    def tree(self) -> set[tuple[str | None, str]]:
        """Return each span's name beside its parent's."""
        return {(self.parent(span), span.name) for span in self.spans}


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def everything(told: Told) -> str:
    """Return all that was told, as text."""
    return "\n".join(span.to_json() for span in told.spans)
