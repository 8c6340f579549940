"""What a run under way is sent by people: messages, and answers to what a call's server asks for. A part of `Runs`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from pydantic import BaseModel, JsonValue, ValidationError

from holdfast.client.validation import check_message
from holdfast.core.base.errors import Conflict, DecisionRefused, InvalidInput, MessageRefused
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.input_requests import InputAction
from holdfast.core.wire.contracts import MESSAGE_SIGNAL
from holdfast.core.wire.mcp_contracts import ANSWER_SIGNAL, CallAnswer
from holdfast.runtime.files.message_files import GivenFile, stored_files
from holdfast.storage.records import Records


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
    """Messages and answers for any run, sent over a connection."""

    _records: Records

    @abstractmethod
    async def _update(self, execution_id: str, update: str, payload: BaseModel, refused: type[Conflict]) -> bool:
        """Send the update; return False when the run has ended."""

    async def message(self, execution_id: str, text: str, *, attachments: Iterable[GivenFile] = ()) -> bool:
        """Send a message to a run under way: the model sees it with its next call. Return False if the run has ended.

        `attachments` are files that come with it, as for `start`. True means that the message is stored. Raises
        InvalidInput; MessageRefused if too many messages wait for the next step; ExecutionNotFound; StorageFailed;
        ServerUnavailable, also if no worker takes it in time.
        """
        check_message(text)
        message = check_message(text, await stored_files(attachments, self._records))
        return await self._update(execution_id, MESSAGE_SIGNAL, message, MessageRefused)

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
