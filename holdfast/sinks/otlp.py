"""`OpenTelemetryLogs`: a sink that is an OpenTelemetry collector; each event is a log record with its name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, assert_never

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from holdfast.core.base.usage import Usage
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.wire.event_envelope import VERSION, NumberedEvent, to_dict
from holdfast.core.wire.execution_events import (
    AgentExecutionCompleted,
    AgentExecutionFailed,
    AgentExecutionStarted,
    AgentExecutionStopped,
    AgentHandedOff,
    AgentStepCompleted,
    AnswerJudged,
    AnyObserved,
    ApprovalRequested,
    ApprovalResolved,
    HookExecuted,
    InferenceRequestStarted,
    InferenceResponseReceived,
    InputRequested,
    InputResolved,
    ModelFellBack,
    StopSignalReceived,
    SubagentCompleted,
    SubagentSpawned,
    TokenUsageReported,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
)
from holdfast.core.wire.session_events import (
    AnySessionEvent,
    MessageAccepted,
    SessionChanged,
    SessionClosed,
    SessionCreated,
    SessionEvent,
    SessionForked,
    SessionResumed,
    SessionSuspended,
)
from holdfast.core.wire.sink_contracts import checked_consumer
from holdfast.sinks.sink import Batch, SinkAway

FAILED: Final = (AgentExecutionFailed,)
WARNED: Final = (ToolCallBlocked, StopSignalReceived)

Attributes = dict[str, Any]


class OpenTelemetryLogs:
    """Sends events by OTLP over HTTP, where `OTEL_EXPORTER_OTLP_ENDPOINT` and its kin say, with their headers.

    Attributes are those of the GenAI semantic conventions where there are any, else `holdfast.*`. Without `content`
    nothing of what people, models and tools say is told, and no reason, error text or name of who decided: numbers, ids
    and names of agents, models and tools alone. A batch whose answer gets lost is sent again: `holdfast.event.id`
    tells.
    """

    def __init__(self, *, name: str = "otlp", endpoint: str | None = None, content: bool = False) -> None:
        self.name: Final = checked_consumer(name)
        self._endpoint, self._content = endpoint, content
        self._exporter: OTLPLogExporter | None = None
        self._resource = Resource.create()
        self._scope = InstrumentationScope("holdfast.events")

    async def open(self) -> None:
        """Make ready; nothing is sent."""
        self._exporter = OTLPLogExporter(endpoint=self._endpoint)

    async def deliver(self, batch: Batch) -> None:
        """Return when the collector has taken the batch; SinkAway when it has not."""
        if self._exporter is None:
            raise SinkAway("the exporter is not open")
        records = [
            ReadableLogRecord(log_record(each, content=self._content), self._resource, self._scope)
            for each in batch.events
        ]
        if await asyncio.to_thread(self._exporter.export, records) is not LogRecordExportResult.SUCCESS:
            raise SinkAway("the collector did not accept them; the exporter's own warning says why")

    async def close(self) -> None:
        """Close connections."""
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            await asyncio.to_thread(exporter.shutdown)


def log_record(numbered: NumberedEvent, *, content: bool) -> LogRecord:
    """Return the record of an event; its body is the whole event where `content` may be told."""
    event = numbered.event
    severe = SeverityNumber.ERROR if isinstance(event, FAILED) else SeverityNumber.INFO
    severe = SeverityNumber.WARN if isinstance(event, WARNED) else severe
    moment = int(event.at.timestamp() * 1_000_000) * 1_000
    return LogRecord(
        timestamp=moment,
        observed_timestamp=moment,
        context=Context(),
        severity_number=severe,
        severity_text=severe.name,
        event_name=f"holdfast.{event.kind}",
        body=to_dict(numbered) if content else None,
        attributes=_attributes(numbered),
    )


def _attributes(numbered: NumberedEvent) -> Attributes:
    event = numbered.event
    attributes: Attributes = {
        "holdfast.event.id": numbered.id,
        "holdfast.event.sequence": numbered.sequence,
        "holdfast.event.version": VERSION,
        "gen_ai.agent.id": event.agent_id,
        "gen_ai.conversation.id": event.agent_id,
        **(_of_session(event) if isinstance(event, SessionEvent) else _of_execution(event)),
    }
    return {name: value for name, value in attributes.items() if value not in (None, "", ())}


def _of_execution(event: AnyObserved) -> Mapping[str, Any]:
    ids = {"holdfast.execution.id": event.execution_id, "holdfast.parent.id": event.parent_agent_id}
    return {**ids, "holdfast.step": event.step_number, **_own(event)}


def _of_session(event: AnySessionEvent) -> Mapping[str, Any]:
    return {
        "gen_ai.agent.name": event.agent,
        "holdfast.tenant": event.tenant,
        "holdfast.temporal_run.id": event.temporal_run_id,
        **_own_of_session(event),
    }


def _own_of_session(event: AnySessionEvent) -> Mapping[str, Any]:
    match event:
        case MessageAccepted():
            policy = {"holdfast.while_running": event.while_running}
            return {"holdfast.message.id": event.message_id, "holdfast.message.chars": event.chars, **policy}
        case SessionForked():
            origin = event.origin
            ids = {"holdfast.origin.agent.id": origin.agent_id, "holdfast.origin.execution.id": origin.execution_id}
            return {**ids, "holdfast.origin.steps": origin.steps}
        case SessionChanged():
            return {"holdfast.changed": event.changed}
        case SessionSuspended():
            return {"holdfast.execution.id": event.running_id}
        case SessionResumed():
            return {"holdfast.waiting": event.waiting}
        case SessionClosed():
            return {"holdfast.waiting": event.waiting, "holdfast.at_once": event.at_once}
        case SessionCreated():
            return {}
        case _:
            assert_never(event)


def _own(event: AnyObserved) -> Mapping[str, Any]:  # one case per kind of event
    match event:
        case AgentExecutionStarted():
            return {"gen_ai.agent.name": event.agent, "holdfast.resumed": event.resumed}
        case SubagentSpawned():
            return {"holdfast.subagent.name": event.agent, "gen_ai.tool.call.id": event.call_id}
        case SubagentCompleted():
            attributes: dict[str, Any] = {"holdfast.subagent.name": event.agent, "gen_ai.tool.call.id": event.call_id}
            attributes |= {"holdfast.status": event.status.value, "holdfast.cost": event.cost}
            return {**attributes, **_usage(event.usage), **_unpriced(event.unpriced)}
        case InferenceRequestStarted():
            return {"gen_ai.operation.name": "chat", "gen_ai.request.max_tokens": event.max_output_tokens}
        case InferenceResponseReceived():
            return _response(event.response)
        case AgentStepCompleted():
            response = event.step.inference_response
            answer: Mapping[str, Any] = {} if response is None else _response(response)
            return {**answer, **_usage(event.usage), "holdfast.seconds": event.duration_seconds}
        case TokenUsageReported():
            costs = {"holdfast.cost": event.cost, "holdfast.total_cost": event.total_cost}
            return {**_usage(event.usage), **costs, **_unpriced(event.total_unpriced)}
        case _:
            return {**_of_tools(event), **_of_ends(event)}


def _of_tools(event: AnyObserved) -> Mapping[str, Any]:
    match event:
        case ToolCallStarted() | ApprovalRequested() | InputRequested():
            return {**_tool(event.call.name, event.call.id)}
        case ToolCallCompleted() | ToolCallBlocked():
            ended = event.tool_execution
            error = None if ended.error is None else ended.error.type
            seconds = (ended.completed_at - ended.started_at).total_seconds()
            attributes = {"holdfast.outcome": ended.outcome.value, "error.type": error, "holdfast.seconds": seconds}
            return {**_tool(ended.call.name, ended.call.id), **attributes}
        case ApprovalResolved():
            return {"gen_ai.tool.call.id": event.call_id, "holdfast.decision": str(event.decision)}
        case InputResolved():
            return {"gen_ai.tool.call.id": event.call_id, "holdfast.input_action": event.action}
        case HookExecuted():
            error = None if event.error is None else event.error.type
            hook = {"holdfast.hook": event.hook, "holdfast.trigger": event.trigger.value, "error.type": error}
            return hook if event.answer is None else {**hook, "holdfast.changed_answer": True}
        case _:
            return {}


def _of_ends(event: AnyObserved) -> Mapping[str, Any]:
    match event:
        case AgentExecutionStopped():
            return {"holdfast.stop_reason": event.reason.value}
        case AgentExecutionCompleted():
            return {"holdfast.status": event.status.value, "holdfast.stop_reason": event.reason.value}
        case AgentExecutionFailed():
            return {"holdfast.status": "failed", "error.type": event.error.type}
        case StopSignalReceived():
            return {"holdfast.stop_reason": event.signal.reason.value}
        case AnswerJudged():
            judged = event.judgement
            return {"holdfast.judge": judged.judge, "holdfast.judgement": judged.outcome, **_usage(judged.usage)}
        case ModelFellBack():
            failed = event.fallback
            return {"gen_ai.request.model": failed.to, "error.type": failed.error.type}
        case AgentHandedOff():
            return {"gen_ai.agent.name": event.to_agent, "holdfast.handed_over_by": event.from_agent}
        case _:
            return {}


def _tool(name: str, call_id: str) -> Mapping[str, Any]:
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": call_id}


def _response(response: InferenceResponse) -> Mapping[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.model": response.model,
        "gen_ai.response.id": response.response_id,
        "gen_ai.response.finish_reasons": (response.finish_reason,) * bool(response.finish_reason),
        **_usage(response.usage),
    }


def _unpriced(models: tuple[str, ...]) -> Mapping[str, Any]:
    """Return which models' tokens are in no cost, where there are any."""
    return {"holdfast.unpriced": list(models)} if models else {}


def _usage(usage: Usage) -> Mapping[str, Any]:
    return {"gen_ai.usage.input_tokens": usage.input_tokens, "gen_ai.usage.output_tokens": usage.output_tokens}
