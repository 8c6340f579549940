"""`DetailsQuery`: has a workflow's current details made when the Web UI asks for them, and at no other time.

`workflow.set_current_details` wants the text itself, so it would be made each time a run begins to wait: a fifth of the
processor time of a busy worker's workflow threads, for a text that hardly anybody reads. It is no part of a history.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from temporalio import workflow
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.worker import (
    HandleQueryInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)


@runtime_checkable
class DetailedWorkflow(Protocol):
    """A workflow with current details."""

    def current_details(self) -> str:
        """Return them as Markdown, as the workflow stands now."""
        ...


class DetailsQuery(Interceptor):
    """The worker's interceptor."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002  # the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """Return the interceptor for each workflow's handlers."""
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    async def handle_query(self, input: HandleQueryInput) -> Any:  # noqa: A002, ANN401  # as the SDK has it
        """Answer a query; that for the metadata, which the SDK answers, with the current details besides."""
        answer = await super().handle_query(input)
        if isinstance(answer, WorkflowMetadata):
            asked = workflow.instance()
            if isinstance(asked, DetailedWorkflow):
                answer.current_details = asked.current_details()
        return answer
