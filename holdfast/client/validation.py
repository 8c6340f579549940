"""Validation of requests, before anything reaches Temporal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import JsonValue, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import checked_id
from holdfast.core.base.bounds import (
    ARGUMENTS_BYTES_MAX,
    DEFINITION_BYTES_MAX,
    LISTED_MAX,
    PAYLOAD_BYTES_MAX,
    QUESTION_BYTES_MAX,
    REASON_CHARS_MAX,
    TENANT_CHARS_MAX,
)
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import Frozen, canonical
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.conversation.messages import Message, user_message
from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.contracts import ApprovalDecision, ExecutionInput, StopRequest
from holdfast.runtime.answer_check import schema_problem

FrozenT = TypeVar("FrozenT", bound=Frozen)


def check_question(question: str, what: str = "question") -> str:
    """Return `question` if it can be asked: some text, valid Unicode, within the limit. `what` it is, errors say."""
    try:
        size = len(question.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"the {what} holds characters that are not valid Unicode text; remove them") from None
    if not question.strip():
        raise InvalidInput(f"the {what} is empty; say what the agent is to do")
    if size > QUESTION_BYTES_MAX:
        allowed = f"the {what} has {size:,} bytes, at most {QUESTION_BYTES_MAX:,} are allowed"
        raise InvalidInput(f"{allowed}; put long material where a tool can read it")
    return question


def check_message(text: str, attachments: Sequence[Attachment] = ()) -> Message:
    """Return `text` and the files as a message if it can be said to a run under way."""
    message = user_message(check_question(text, "message"), attachments)
    size = len(canonical(message))
    if size > PAYLOAD_BYTES_MAX:
        allowed = f"the message takes {size:,} bytes as JSON, at most {PAYLOAD_BYTES_MAX:,} are allowed"
        raise InvalidInput(f"{allowed}; shorten it")
    return message


def check_definition(definition: AgentDefinition) -> AgentDefinition:
    """Return `definition` if it can travel (valid Unicode, small enough) and its answers can be checked."""
    try:
        size = len(canonical(definition))
    except PydanticSerializationError:
        odd = ", ".join(name for name, value in definition if not _is_text(value)) or "its definition"
        reason = f"agent {definition.name!r}: {odd} holds characters that are not valid Unicode text"
        raise InvalidInput(f"{reason}; remove them") from None
    if size > DEFINITION_BYTES_MAX:
        allowed = f"agent {definition.name!r} has {size:,} bytes, at most {DEFINITION_BYTES_MAX:,} are allowed"
        raise InvalidInput(f"{allowed}; shorten its prompt")
    if (fault := schema_problem(definition.response_format)) is not None:
        reason = f"agent {definition.name!r}: no answer can be checked against response_format.json_schema: {fault}"
        raise InvalidInput(f"{reason}; correct the schema")
    return definition


def check_start(start: ExecutionInput) -> ExecutionInput:
    """Return `start` if it fits one payload as it is encoded (control characters take six bytes each)."""
    return check_size(start, "question and definition take" if start.state is None else "state and definition take")


def check_size(value: FrozenT, subject: str) -> FrozenT:
    """Return `value` if it fits one payload; what it `takes` too much, errors say."""
    size = len(canonical(value))
    if size > PAYLOAD_BYTES_MAX:
        allowed = f"{subject} {size:,} bytes as JSON, at most {PAYLOAD_BYTES_MAX:,} are allowed"
        raise InvalidInput(f"{allowed}; shorten them")
    return value


def check_reason(reason: str) -> str:
    """Return a stop's `reason` if it is short enough and valid Unicode."""
    if len(reason) > REASON_CHARS_MAX:
        raise InvalidInput(f"the reason has {len(reason):,} characters, at most {REASON_CHARS_MAX:,} are allowed")
    try:
        reason.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the reason holds characters that are not valid Unicode text; remove them") from None
    return reason


def check_stop(reason: str, mode: StopMode, source: str, context: Mapping[str, JsonValue] | None = None) -> StopRequest:
    """Return the stop if it can be asked for."""
    check_reason(reason)
    try:
        return StopRequest(reason=reason, mode=mode, source=source, context=context or {})
    except ValidationError as error:
        raise InvalidInput(f"the stop is not valid: {problems_text(error)}") from None


def check_budget(budget: object) -> ExecutionBudget:
    """Return the limits that are given, if they are a budget; none are an empty one."""
    if budget is None:
        return ExecutionBudget()
    if not isinstance(budget, ExecutionBudget):
        raise InvalidInput(f"the budget is a {type(budget).__name__}; give ExecutionBudget(max_steps=...) and so on")
    return budget


def check_decision(call_id: str, verdict: Verdict) -> ApprovalDecision:
    """Return the decision about a call if it can travel: valid Unicode, small enough."""
    try:
        decision = ApprovalDecision(call_id=call_id, verdict=verdict)
        size = len(canonical(decision))
    except ValidationError as error:
        raise InvalidInput(f"the decision cannot be sent: {problems_text(error)}") from None
    except PydanticSerializationError:
        raise InvalidInput("the decision holds characters that are not valid Unicode text; remove them") from None
    if size > ARGUMENTS_BYTES_MAX:
        raise InvalidInput(f"the decision has {size:,} bytes, at most {ARGUMENTS_BYTES_MAX:,} are allowed; shorten it")
    return decision


def check_tenant(tenant: str) -> str:
    """Return the name of a tenant if Temporal takes it as a fairness key."""
    if (size := len(tenant.encode("utf-8", "surrogatepass"))) > TENANT_CHARS_MAX:
        shown = repr(tenant[:TENANT_CHARS_MAX])
        raise InvalidInput(f"the tenant {shown} has {size} bytes, at most {TENANT_CHARS_MAX} are allowed")
    if not tenant.isprintable():
        raise InvalidInput(f"the tenant {tenant!r} has unprintable characters; choose another name")
    return tenant


def check_limit(limit: int) -> int:
    """Return how many lines a listing may have at the most."""
    if not 1 <= limit <= LISTED_MAX:
        raise InvalidInput(f"the limit is {limit}, it must be between 1 and {LISTED_MAX:,}")
    return limit


def check_id(value: str, what: str = "execution id") -> str:
    """Return `value` as a canonical UUID."""
    try:
        return checked_id(value)
    except ValueError as error:
        listing = "sessions" if what == "agent id" else "list"
        raise InvalidInput(f"the {what} {error}; `holdfast {listing}` shows the ids") from None


def _is_text(value: object) -> bool:
    try:
        to_json(value)
    except PydanticSerializationError:
        return False
    return True
