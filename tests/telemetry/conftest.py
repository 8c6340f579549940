"""The traces of this process, as an exporter in memory has them."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast.telemetry import traces
from tests.telemetry.spans import Told


@pytest.fixture(scope="session")
def exporter() -> InMemorySpanExporter:
    """OpenTelemetry's global provider can be set once in a process: all tests share what it tells."""
    exporter = InMemorySpanExporter()
    traces.begin(SimpleSpanProcessor(exporter))
    return exporter


@pytest.fixture
def told(exporter: InMemorySpanExporter) -> Generator[Told]:
    """What is told during one test."""
    exporter.clear()
    yield Told(exporter)
    exporter.clear()
