"""Traces executions: the span context for calls and subagents, and the execution's own span at its end.

The ids follow from the execution's id and input, so that a replay, another worker and a new Temporal run of the
execution have the same ones, and none of the workflow's own random numbers is used for them. Headers are not commands:
a history without traces replays with them, and vice versa.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NoReturn, Protocol, cast

from opentelemetry import context, trace
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)
from pydantic_core import to_json
from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    HandleUpdateInput,
    Interceptor,
    StartActivityInput,
    StartChildWorkflowInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle, ChildWorkflowHandle

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import QUEUE_MAX, SPAN_TEXT_CHARS_MAX
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.session.session_state import MESSAGE_ID
from holdfast.core.wire.contracts import ExecutionInput
from holdfast.core.wire.session_contracts import SEND_UPDATE
from holdfast.core.wire.workflow_ids import kind_of

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

SCOPE: Final = InstrumentationScope("holdfast")

CALL: Final = re.compile(r"step-[0-9]+-tool-([0-9]+)(?:-input-[0-9]+)?")
"""The id of a tool call's activity (`core.agent.execution_state.call_name`)."""

CALL_STATE: Final = "holdfast"
"""The trace state's entry for the call's id, which is not in a tool's input."""

CALL_ID: Final = re.compile(r"[!-+\--<>-~]{1,128}")
"""The ids that a trace state can carry."""


class Traced(Protocol):
    """The part of the workflow `AgentExecution` that tracing reads."""

    @property
    def as_it_stands(self) -> AgentState:
        """The execution now."""
        ...

    @property
    def started_as(self) -> ExecutionInput:
        """Its input, with a changed definition applied."""
        ...


class SpanSink(Protocol):
    """The receiver of finished spans."""

    @property
    def content(self) -> bool:
        """Whether spans include answers."""
        ...

    def is_sampled(self, trace_id: int, name: str) -> bool:
        """Return whether a trace that begins here is sampled."""
        ...

    def export(self, span: dict[str, Any]) -> None:
        """Record a span, given as the arguments of ReadableSpan."""
        ...


class WorkflowsTraced(Interceptor):
    """The worker interceptor; it comes after the SDK's, which reads the header and writes those of our calls."""

    def __init__(self, sink: SpanSink) -> None:
        self._sink = sink

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002, ARG002  # the SDK's signature
        """Return the interceptor class for one run."""
        sink = self._sink

        class Around(_Inbound):
            def __init__(self, next: WorkflowInboundInterceptor) -> None:  # noqa: A002  # the SDK's name
                super().__init__(next, sink)

        return Around


class _Inbound(WorkflowInboundInterceptor):
    def __init__(self, next: WorkflowInboundInterceptor, sink: SpanSink) -> None:  # noqa: A002  # the SDK's name
        super().__init__(next)
        self._sink = sink
        self.parent = INVALID_SPAN_CONTEXT
        """The span context in which the execution was started; its next Temporal run gets the same."""
        self.message_spans: dict[str, SpanContext] = {}
        """For a session: the span contexts of messages without an execution yet."""

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound, self))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002, ANN401  # the SDK's signature
        if kind_of(workflow.info().workflow_type) != "run":
            context.attach(context.Context())  # a session's executions have traces of their own
            return await super().execute_workflow(input)
        self.parent = trace.get_current_span().get_span_context()
        own = self._own(self.parent)
        context.attach(_current(own))  # for this task and all that it starts, until the end of the run
        try:
            result = await super().execute_workflow(input)
        except ApplicationError:  # it failed; anything else is a continue-as-new, or an eviction
            self._record_span(own, self.parent)
            raise
        self._record_span(own, self.parent)
        return result

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002, ANN401  # the SDK's signature
        span = trace.get_current_span().get_span_context()
        message_id = getattr(input.args[0], "message_id", None) if input.update == SEND_UPDATE and input.args else None
        if isinstance(message_id, str) and span.is_valid and len(self.message_spans) < QUEUE_MAX:
            self.message_spans[message_id] = span
        return await super().handle_update_handler(input)

    def _own(self, parent: SpanContext) -> SpanContext:
        """Return the execution's span context, in its parent's trace, or in one derived from its own id."""
        execution_id = workflow.info().workflow_id
        span_id = _number(f"span {execution_id}", 8)
        if parent.is_valid:
            return SpanContext(parent.trace_id, span_id, is_remote=False, trace_flags=parent.trace_flags)
        trace_id = _number(f"trace {execution_id}", 16)
        flags = TraceFlags.SAMPLED if self._sink.is_sampled(trace_id, "invoke_agent") else TraceFlags.DEFAULT
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(flags))

    def _record_span(self, own: SpanContext, parent: SpanContext) -> None:
        """Record the execution's span at its end."""
        run = _traced()
        state, start = run.as_it_stands, run.started_as
        if state.execution is None or not own.trace_flags.sampled or workflow.unsafe.is_replaying_history_events():
            return
        failed = state.status is ExecutionStatus.FAILED
        self._sink.export(
            {
                "name": f"invoke_agent {start.definition.name}",
                "context": own,
                "parent": parent if parent.is_valid else None,
                "kind": SpanKind.INTERNAL,
                "attributes": {**_facts(state, start), **(_answer(state) if self._sink.content else {})},
                "status": Status(StatusCode.ERROR if failed else StatusCode.UNSET),
                "start_time": _nanoseconds(state.execution.started_at),
                "end_time": _nanoseconds(state.execution.completed_at or workflow.now()),
                "instrumentation_scope": SCOPE,
            }
        )


class _Outbound(WorkflowOutboundInterceptor):
    """The outbound calls of a run; the SDK's plugin comes after it and puts the current span into the header."""

    def __init__(self, next: WorkflowOutboundInterceptor, inbound: _Inbound) -> None:  # noqa: A002  # the SDK's name
        super().__init__(next)
        self._inbound = inbound

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:  # noqa: A002  # the SDK's name
        """Have the next Temporal run begin in the same trace as this one: it is the same execution."""
        context.attach(_current(self._inbound.parent))
        super().continue_as_new(input)

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:  # noqa: A002  # the SDK's name
        with _with_call(input.activity_id):
            return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> ActivityHandle[Any]:  # noqa: A002  # the SDK's name
        with _with_call(input.activity_id):
            return super().start_local_activity(input)

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> ChildWorkflowHandle[Any, Any]:  # noqa: A002  # the SDK's name
        """Begin an execution of a session in the trace of the message that it answers."""
        start = input.args[0] if input.args else None
        if kind_of(workflow.info().workflow_type) == "run" or not isinstance(start, ExecutionInput):
            return await super().start_child_workflow(input)
        messages = start.session.messages if start.session else ()
        spans = [self._inbound.message_spans.pop(str(each.metadata.get(MESSAGE_ID)), None) for each in messages]
        token = context.attach(_current(next((span for span in reversed(spans) if span), INVALID_SPAN_CONTEXT)))
        try:
            return await super().start_child_workflow(input)
        finally:
            context.detach(token)


@contextmanager
def _with_call(activity_id: str | None) -> Generator[None]:
    """Pass a tool call its id, which is not in its input."""
    call_id, here = _call_id(activity_id or ""), trace.get_current_span().get_span_context()
    if call_id is None or not here.is_valid:
        yield
        return
    state = here.trace_state.add(CALL_STATE, call_id)
    token = context.attach(_current(SpanContext(here.trace_id, here.span_id, here.is_remote, here.trace_flags, state)))
    try:
        yield
    finally:
        context.detach(token)


def _call_id(activity_id: str) -> str | None:
    """Return the provider's id of an activity's tool call; none for other activities."""
    match = CALL.fullmatch(activity_id)
    step = _traced().as_it_stands.current_step_or_last if match else None
    if match is None or step is None or int(match[1]) >= len(step.requested_tool_calls):
        return None
    call_id = step.requested_tool_calls[int(match[1])].id
    return call_id if CALL_ID.fullmatch(call_id) else None


def _traced() -> Traced:
    return cast("Traced", workflow.instance())


def _current(span: SpanContext) -> context.Context:
    """Return a context that holds this span alone, without baggage."""
    return trace.set_span_in_context(NonRecordingSpan(span), context.Context()) if span.is_valid else context.Context()


def _facts(state: AgentState, start: ExecutionInput) -> dict[str, Any]:
    """Return the attributes that every execution span has."""
    execution, definition = state.running, start.definition
    facts: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": definition.name,
        "gen_ai.agent.id": state.agent_id,
        "gen_ai.usage.input_tokens": state.usage.input_tokens,
        "gen_ai.usage.output_tokens": state.usage.output_tokens,
        "holdfast.execution.id": execution.execution_id,
        "holdfast.status": state.status.value,
        "holdfast.stop_reason": (state.stop_reason or StopReason.UNKNOWN).value,
        "holdfast.steps": state.step_count,
        "holdfast.cost_usd": state.cost,
    }
    if execution.unpriced:
        facts["holdfast.unpriced"] = list(execution.unpriced)
    if start.session is not None:
        facts["gen_ai.conversation.id"] = state.agent_id
    if definition.llm.model:
        facts["gen_ai.request.model"] = definition.llm.model
    if state.status is ExecutionStatus.FAILED:
        facts["error.type"] = execution.error.type if execution.error else "error"
    return facts


def _answer(state: AgentState) -> dict[str, Any]:
    """Return its last answer, in the form of the semantic conventions."""
    text = clamped(state.current_response, SPAN_TEXT_CHARS_MAX)
    message = {"role": "assistant", "parts": [{"type": "text", "content": text}], "finish_reason": "stop"}
    return {"gen_ai.output.messages": to_json([message]).decode()}


def _number(text: str, size: int) -> int:
    """Return an id of so many bytes that follows from `text`; never 0, which is no id."""
    return int.from_bytes(sha256(text.encode()).digest()[:size]) or 1


def _nanoseconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1) * 1_000
