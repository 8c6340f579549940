"""Answering what a call's server asks a person for: the part of `Runs` about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from pydantic import BaseModel, JsonValue, ValidationError

from holdfast.core.base.errors import Conflict, DecisionRefused, InvalidInput
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.input_requests import InputAction
from holdfast.core.wire.mcp_contracts import ANSWER_SIGNAL, CallAnswer


def check_answer(
    call_id: str, values: Mapping[str, JsonValue] | None, action: InputAction, by: str, digest: str | None
) -> CallAnswer:
    """Return the answer if it can travel. Raises InvalidInput."""
    answer = {"action": action, "content": values, "by": by, "digest": digest}
    try:
        return CallAnswer.model_validate({"call_id": call_id, "answer": answer})
    except ValidationError as error:
        raise InvalidInput(f"the answer cannot be sent: {problems_text(error)}") from None


class InputAnswers(ABC):
    """Answers for calls of any run, sent over a connection."""

    @abstractmethod
    async def _update(self, execution_id: str, update: str, payload: BaseModel, refused: type[Conflict]) -> bool:
        """Send the update; return False when the run has ended."""

    async def answer_question(
        self,
        execution_id: str,
        call_id: str,
        values: Mapping[str, JsonValue] | None = None,
        *,
        action: InputAction = "accept",
        by: str = "",
        digest: str | None = None,
    ) -> bool:
        """Answer what the server of a tool call asks a person for. Return False when the run has ended.

        Args:
            execution_id: the run.
            call_id: the call; `state.input_calls` has those that wait, each with its `input_request`.
            values: the fields of the form, by name; none for a link that the person has opened.
            action: `accept`; `decline` refuses, `cancel` leaves without an answer. The server is told which.
            by: who answers.
            digest: that of the request as the person saw it (`OpenCall.digest`); another one is left unanswered.

        When this returns True the answer is taken. Raises InvalidInput; DecisionRefused where the call waits for no
        answer, or the values do not fit the form (the call still waits); ExecutionNotFound; ServerUnavailable.
        """
        answer = check_answer(call_id, values, action, by, digest)
        return await self._update(execution_id, ANSWER_SIGNAL, answer, DecisionRefused)
