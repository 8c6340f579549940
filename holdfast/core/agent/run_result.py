"""`RunResult`: how a run ended, with its answer as an object of the requested type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, cast

from holdfast.core.agent.answer_types import Answers, AnswerT, typed
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.policies import TextFormat
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import AnswerInvalid
from holdfast.core.base.json_parsing import read_json
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopReason


@dataclass(frozen=True, slots=True)
class RunResult(Generic[AnswerT]):
    """The end of a run: `output` is the answer, `state` everything else."""

    state: AgentState
    answers: Answers[AnswerT] | None = None
    """The type of the answer; without one it is text, or what its JSON says."""

    @property
    def output(self) -> AnswerT:
        """The answer: an object of the type asked for, the value of its JSON, or text.

        Raises AnswerInvalid where the run was stopped before it had answered, and where the answer is none of the type.
        """
        if self.status is not ExecutionStatus.COMPLETED:
            why = f"the run was {self.status}{f' ({self.stop_reason})' if self.stop_reason else ''}"
            raise AnswerInvalid(f"{why} before it had answered; see `state` of the result for what there is")
        text = self.state.final_response
        if self.answers is not None:
            return typed(text, self.answers)
        if isinstance(self.state.context.response_format, TextFormat):
            return cast("AnswerT", text)
        try:
            return cast("AnswerT", read_json(text))
        except ValueError as error:  # the provider cut it short
            raise AnswerInvalid(f"the answer is not usable JSON: {error}; see `state` of the result for it") from None

    @property
    def status(self) -> ExecutionStatus:
        """`completed` or `stopped`."""
        return self.state.status

    @property
    def stop_reason(self) -> StopReason | None:
        """Why it was stopped, or `completed`."""
        return self.state.stop_reason

    @property
    def execution_id(self) -> str:
        """The run's id."""
        return self.state.running.execution_id

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation."""
        return self.state.messages

    @property
    def usage(self) -> Usage:
        """The tokens that the run has used."""
        return self.state.usage

    @property
    def cost(self) -> float:
        """What they cost in US dollars, as far as prices are known."""
        return self.state.cost
