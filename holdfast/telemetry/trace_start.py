"""Where a trace starts: a client that starts a run or messages a session. Propagates the trace and no baggage."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import baggage, context, trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from temporalio.client import (
    Interceptor,
    OutboundInterceptor,
    QueryWorkflowInput,
    SignalWorkflowInput,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
    StartWorkflowUpdateWithStartInput,
    WorkflowHandle,
    WorkflowUpdateHandle,
)

from holdfast.core.wire.contracts import ExecutionInput
from holdfast.core.wire.session_contracts import SEND_UPDATE
from holdfast.core.wire.workflow_ids import kind_of, own_id
from holdfast.telemetry.spans import AGENT_NAME, CONVERSATION_ID, ERROR_TYPE, EXECUTION_ID

SCOPE: Final = "holdfast"


class TracedClient(Interceptor):
    """The client interceptor. It runs before the SDK's, which propagates the span that is current then."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002  # the SDK's name
        """Wrap the client's calls."""
        return _TracedCalls(next)


class _TracedCalls(OutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002  # the SDK's name
        start = input.args[0] if input.args else None
        if kind_of(input.workflow) != "run" or not isinstance(start, ExecutionInput):
            with _alone():
                return await super().start_workflow(input)
        agent = start.definition.name
        with _span(f"start {agent}", {AGENT_NAME: agent, EXECUTION_ID: input.id}):
            return await super().start_workflow(input)

    async def start_update_with_start_workflow(
        self,
        input: StartWorkflowUpdateWithStartInput,  # noqa: A002  # the SDK's name
    ) -> WorkflowUpdateHandle[Any]:
        with _update_span(input.update_workflow_input.update, input.start_workflow_input.id):
            return await super().start_update_with_start_workflow(input)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:  # noqa: A002  # the SDK's name
        with _update_span(input.update, input.id):
            return await super().start_workflow_update(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002  # the SDK's name
        with _alone():
            await super().signal_workflow(input)

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002, ANN401  # the SDK's signature
        with _alone():
            return await super().query_workflow(input)


@contextmanager
def _update_span(update: str, workflow_id: str) -> Generator[None]:
    with _span(SEND_UPDATE, {CONVERSATION_ID: own_id(workflow_id)}) if update == SEND_UPDATE else _alone():
        yield


@contextmanager
def _alone() -> Generator[None]:
    """Propagate the trace without baggage: the program's baggage must not enter Temporal's history."""
    token = context.attach(baggage.clear())
    try:
        yield
    finally:
        context.detach(token)


@contextmanager
def _span(name: str, attributes: dict[str, str]) -> Generator[None]:
    tracer = trace.get_tracer(SCOPE)
    with (
        _alone(),
        tracer.start_as_current_span(
            name,
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span,
    ):
        try:
            yield
        except Exception as error:
            span.set_attribute(ERROR_TYPE, type(error).__name__)
            span.set_status(Status(StatusCode.ERROR))
            raise
