"""Events as OpenTelemetry log records, sent to a real endpoint; content when it is wanted."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from holdfast.sinks import Sink, SinkAway
from holdfast.sinks.otlp import OpenTelemetryLogs
from holdfast.sinks.sink_urls import sinks_from
from tests.sinks.examples import CALL, NUMBERED, batch_of

SAID = (
    "Where is order 17?",
    "refunded",
    "Find the order",
    "order 18",
    "enough",
    "no credit left",
    "not on Fridays",
    "is refunded",
    "ada",
)
"""What people, models and tools say in the examples."""


async def sent(environment: Mapping[str, str], status: int = 200) -> list[LogRecord]:
    """Return what a collector gets when all examples are delivered."""
    sinks: tuple[Sink, ...] = ()
    got: list[LogRecord] = []

    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        body = gzip.decompress(body) if request.headers.get("Content-Encoding") == "gzip" else body
        told = ExportLogsServiceRequest.FromString(body)
        got.extend(
            record for resource in told.resource_logs for scope in resource.scope_logs for record in scope.log_records
        )
        return web.Response(status=status)

    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_post("/v1/logs", take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        sinks = sinks_from([f"otlp:http://127.0.0.1:{runner.addresses[0][1]}/v1/logs"], environment)
        await sinks[0].open()
        await sinks[0].deliver(batch_of(len(NUMBERED)))
    finally:
        for each in sinks:
            await each.close()
        await runner.cleanup()
    return got


def attributes(record: LogRecord) -> Mapping[str, Any]:
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in record.attributes}


async def test_records_have_the_genai_conventions_and_nothing_that_was_said() -> None:
    records = await sent({})
    assert [each.event_name for each in records] == [f"holdfast.{each.event.kind}" for each in NUMBERED]
    by_kind = {each.event_name.removeprefix("holdfast."): attributes(each) for each in records}
    assert [attributes(each)["holdfast.event.id"] for each in records] == [each.id for each in NUMBERED]
    assert by_kind["AgentExecutionStarted"]["gen_ai.agent.name"] == "clerk"
    answered = by_kind["InferenceResponseReceived"]
    assert (answered["gen_ai.response.model"], answered["gen_ai.usage.input_tokens"]) == ("gpt-x", 210)
    called = by_kind["ToolCallCompleted"]
    assert (called["gen_ai.operation.name"], called["gen_ai.tool.name"]) == ("execute_tool", CALL.name)
    assert (called["gen_ai.tool.call.id"], called["holdfast.outcome"]) == (CALL.id, "succeeded")
    assert by_kind["AgentExecutionFailed"]["error.type"] == "QuotaExceeded"
    assert by_kind["AgentExecutionStopped"]["holdfast.stop_reason"] == "user_requested"
    assert by_kind["AgentExecutionCompleted"]["holdfast.status"] == "completed"
    accepted = by_kind["MessageAccepted"]
    assert (accepted["holdfast.message.id"], accepted["holdfast.message.chars"]) == ("mail-17", 18)
    assert (accepted["gen_ai.agent.name"], accepted["holdfast.tenant"]) == ("clerk", "acme")
    assert by_kind["SessionForked"]["holdfast.origin.steps"] == 2
    assert by_kind["SessionClosed"]["holdfast.at_once"] is False
    assert not [word for word in SAID for each in records if word in str(each)]
    assert records[0].time_unix_nano == 1_763_641_217_250_000_000 + 365 * 86_400 * 10**9


async def test_content_is_told_where_it_is_wanted() -> None:
    records = await sent({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"})
    told = "".join(map(str, records))
    assert not [word for word in SAID if word not in told]


async def test_a_collector_that_refuses_is_away() -> None:
    with pytest.raises(SinkAway):
        await sent({}, status=400)
    with pytest.raises(SinkAway, match="not open"):
        await OpenTelemetryLogs().deliver(batch_of(1))
