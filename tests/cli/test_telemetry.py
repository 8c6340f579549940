"""Traces and metrics of the real program: to a real collector, and read from the worker's endpoint."""

from __future__ import annotations

import signal
import socket
import time
import urllib.request

import pytest

from tests.cli.program import Project, linux_only
from tests.telemetry.collecting import attributes, collecting
from tests.telemetry.scraping import free_port

pytestmark = pytest.mark.temporal

FLUSHED_SECONDS_MAX = 90


@pytest.mark.slow
@linux_only
def test_a_run_is_one_trace_over_both_processes_and_a_silent_collector_holds_nothing_up(own: Project) -> None:
    with collecting() as collector, collecting(silent=True) as silent:
        port = free_port()
        told = own.where(
            HOLDFAST_TELEMETRY="otlp",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_BSP_SCHEDULE_DELAY="100",
            HOLDFAST_METRICS=str(port),
        )
        with told.dev() as dev:
            run = told.run("run", "lead", "go", "--json")
            assert run.code == 0, run
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=90) as answer:  # our own
                metrics = answer.read().decode()
            begun = time.monotonic()
            unheard = told.where(OTEL_EXPORTER_OTLP_ENDPOINT=silent.url).run("run", "assistant", "go", "--json")
            assert unheard.code == 0, unheard
            assert silent.asked.wait(10)
            assert time.monotonic() - begun < FLUSHED_SECONDS_MAX
            assert collector.has("invoke_agent lead")
            dev.process.send_signal(signal.SIGTERM)
            assert dev.ended(60).code == 0
    lead_traces = {span.trace_id for _, span in collector.spans if span.name == "invoke_agent lead"}
    spans = [(service, span) for service, span in collector.spans if span.trace_id in lead_traces]
    names = sorted(span.name for _, span in spans)
    chats = ["chat clerk", "chat lead", "chat lead"]
    assert names == [*chats, "invoke_agent clerk", "invoke_agent lead", "start lead"]
    assert {service for service, _ in spans} == {"holdfast"}
    assert len(lead_traces) == 1
    by_id = {span.span_id: span for _, span in spans}
    parents = {span.name: by_id[span.parent_span_id].name for span in by_id.values() if span.parent_span_id}
    assert (parents["invoke_agent clerk"], parents["invoke_agent lead"]) == ("invoke_agent lead", "start lead")
    lead = next(span for span in by_id.values() if span.name == "invoke_agent lead")
    assert attributes(lead)["holdfast.execution.id"] == run.document["execution_id"]
    assert 'holdfast_executions_ended_total{agent="lead",' in metrics
    assert "temporal_workflow_task_schedule_to_start_latency_seconds_bucket" in metrics


@pytest.mark.slow
def test_what_cannot_be_told_is_said_with_its_remedy(own: Project) -> None:
    word = own.where(HOLDFAST_TELEMETRY="yes").run("list", "--json")
    assert (word.code, word.document["error"]["type"]) == (2, "InvalidInput")
    grpc = own.where(HOLDFAST_TELEMETRY="otlp", OTEL_EXPORTER_OTLP_PROTOCOL="grpc").run("list", "--json")
    assert (grpc.code, grpc.document["error"]["type"]) == (8, "MissingPart")
    assert "http/protobuf" in grpc.document["error"]["message"]
    wrong = own.where(HOLDFAST_TELEMETRY="otlp", OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT="many").run("list", "--json")
    assert (wrong.code, wrong.document["error"]["type"]) == (2, "InvalidInput")
    assert "the OTEL_* variables cannot be used" in wrong.document["error"]["message"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        worker = own.run("worker", "--import", "my_tools", "--metrics", str(port))
    remedy = "stop it or choose another one with --metrics or HOLDFAST_METRICS"
    told = f"error: the metrics address 127.0.0.1:{port} is taken by another program; {remedy}\n"
    assert (worker.code, worker.err.splitlines(keepends=True)[-1]) == (7, told)
    assert own.run("worker", "--metrics", "example.com:1").code == 2
