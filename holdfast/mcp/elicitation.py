"""What MCP servers ask a person for: from the protocol's terms into ours, within bounds, and the answers back.

A server of the modern era answers a call with its questions, and the run waits. An older one asks in the middle of the
call: it is told at once that nobody answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
)
from pydantic import ValidationError
from pydantic_core import to_json

from holdfast.core.base.safe_text import clamped, encodable, printable
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.input_requests import (
    INPUT_REQUESTS_BYTES_MAX,
    INPUT_REQUESTS_MAX,
    MESSAGE_CHARS_MAX,
    InputRequest,
    InputResponse,
)
from holdfast.core.wire.mcp_contracts import REQUEST_STATE_BYTES_MAX
from holdfast.mcp.errors import McpCallFailed

NOTED_CHARS_MAX: Final = 300
"""How much is shown of a question that nobody was asked."""

NOTED_MAX: Final = 10
"""The most such questions that a call keeps: an older server can ask without end."""


@dataclass(frozen=True, slots=True)
class ServerQuestions:
    """What a server asks a person for before it goes on with a call, and the state that it wants back, byte by byte."""

    requests: tuple[InputRequest, ...]
    request_state: str | None = field(default=None, repr=False)
    task: str | None = None
    """The id of the task that asks, where the server has made one of the call."""

    @property
    def text(self) -> str:
        """The questions, for somebody who tries a call."""
        asked = "; ".join(each.message for each in self.requests) or "nothing"
        return f"[the server asks a person before it goes on: {asked}]"


def questions_of(result: InputRequiredResult, named: str, redacted: Callable[[str], str]) -> ServerQuestions:
    """Return what the server `named` asks for, its messages `redacted`.

    Raises McpCallFailed for what no person could be shown, or too much.
    """
    state, asked = result.request_state, result.input_requests or {}
    if state is not None and (size := len(state.encode("utf-8", "surrogatepass"))) > REQUEST_STATE_BYTES_MAX:
        about = f"its state has {size:,} bytes, at most {REQUEST_STATE_BYTES_MAX:,} are kept"
        raise McpCallFailed(f"{named} asks a person for something, but {about}: the call did not go on")
    if len(asked) > INPUT_REQUESTS_MAX:
        raise McpCallFailed(f"{named} asks for {len(asked)} things at once, at most {INPUT_REQUESTS_MAX} are shown")
    requests = tuple(_request(key, each, named, redacted) for key, each in asked.items())
    if (size := sum(len(to_json(each)) for each in requests)) > INPUT_REQUESTS_BYTES_MAX:
        about = f"with questions of {size:,} bytes, at most {INPUT_REQUESTS_BYTES_MAX:,} are shown"
        raise McpCallFailed(f"{named} asks a person for something {about}")
    return ServerQuestions(requests, state)


def _request(key: str, request: object, named: str, redacted: Callable[[str], str]) -> InputRequest:
    if not isinstance(request, ElicitRequest):
        kind = printable(str(getattr(request, "method", "something")))[:NOTED_CHARS_MAX]
        raise McpCallFailed(f"{named} asks for {kind}, which this client does not offer")
    params = request.params
    message = clamped(redacted(encodable(params.message)), MESSAGE_CHARS_MAX)
    fields: dict[str, Any] = {"key": key, "message": message}
    if isinstance(params, ElicitRequestFormParams):
        fields["form"] = params.requested_schema
    else:
        fields["url"] = params.url
    try:
        return InputRequest.model_validate(fields)
    except ValidationError as error:
        raise McpCallFailed(f"{named} asks {message!r} in a way that cannot be shown: {problems_text(error)}") from None


def protocol_responses(responses: Mapping[str, InputResponse]) -> InputResponses | None:
    """Return the answers as the protocol has them; none without any."""
    results = {
        key: ElicitResult(action=each.action, content=cast("Any", None if each.content is None else dict(each.content)))
        for key, each in responses.items()
    }
    return cast("InputResponses", results) or None


class UnansweredQuestions:
    """What an older server asked during the calls under way: each question is cancelled, and noted for the model."""

    def __init__(self) -> None:
        self._calls: list[list[str]] = []

    def begin(self) -> list[str]:
        """Return the list of a call's questions, which grows until `end`."""
        questions: list[str] = []
        self._calls.append(questions)
        return questions

    def end(self, questions: list[str]) -> None:
        """Add no more questions to that list."""
        self._calls = [each for each in self._calls if each is not questions]

    async def cancel(self, context: Any, params: ElicitRequestParams) -> ElicitResult:  # noqa: ANN401, ARG002  # the SDK's
        """Answer that the person made no choice. An older server does not say which call asks: all note it."""
        message = " ".join(clamped(printable(encodable(params.message)), NOTED_CHARS_MAX).split())
        for questions in self._calls:
            if len(questions) < NOTED_MAX:
                questions.append(message)
        return ElicitResult(action="cancel")


def unanswered_text(questions: list[str]) -> str:
    """Return a note for the model about questions of an older server."""
    asked = "; ".join(repr(each) for each in questions)
    return f"[the server asked a person {asked}; nobody was asked, because a call of its protocol cannot wait]"
