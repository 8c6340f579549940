"""`ModelWaits`: the latest wait of a model call for its endpoint, as its activity signals it. Decides nothing."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json
from temporalio import workflow

from holdfast.core.agent.execution_state import call_name
from holdfast.core.agent.state import AgentState
from holdfast.core.wire.contracts import MODEL_WAIT_SIGNAL, ModelWait
from workflows.execution.activity_calls import summary_name


class ModelWaits:
    """The latest `model_wait` signal."""

    def __init__(self) -> None:
        self._latest: ModelWait | None = None
        workflow.set_signal_handler(MODEL_WAIT_SIGNAL, self._note)  # pyright: ignore[reportUnknownMemberType]  # the SDK's own hint

    def _note(self, *args: Any) -> None:  # noqa: ANN401  # anybody can send signals, with any arguments
        try:
            self._latest = ModelWait.model_validate_json(to_json(args[0]))
        except (ValueError, IndexError):
            return  # not one of ours

    def of(self, state: AgentState) -> ModelWait | None:
        """Return the wait of the model call that is under way in `state`; none where it does not wait."""
        execution, wait = state.execution, self._latest
        if execution is None or wait is None or execution.status.is_terminal or execution.cancelling:
            return None
        step = execution.current_step
        number = step.number if step else len(execution.step_executions) + 1
        if execution.summary_under_way:
            return wait if wait.call == summary_name(number) else None
        awaits_answer = step is not None and step.inference_response is None
        return wait if awaits_answer and wait.call == call_name(number) else None
