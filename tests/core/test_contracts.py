"""What crosses process borders: it survives JSON, refuses what does not fit, and its names stand for good."""

from __future__ import annotations

from uuid import UUID

import pytest
from pydantic import ValidationError
from pydantic_core import from_json

from holdfast.core.agent.budget import ExecutionBudget, TreeUse
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.base.bounds import REASON_CHARS_MAX
from holdfast.core.base.frozen import Frozen, canonical, replace
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.tool_traits import RESERVED_NAMES
from holdfast.core.wire import contracts
from holdfast.core.wire.contracts import ExecutionInput, InferenceInput, PageRequest, StopRequest
from holdfast.core.wire.result_contracts import ExecutionResult
from holdfast.core.wire.transcript_digest import TranscriptPrefix, advanced, root
from tests.core.building import AGENT_ID, DEFINITION, Run

OPENING = TranscriptPrefix(definition=DEFINITION, tools=("add",))
QUESTION = user_message("What is it?")


@pytest.mark.parametrize(
    "value",
    [
        ExecutionInput(agent_id=AGENT_ID, definition=DEFINITION, question="?", budget=ExecutionBudget(max_steps=3)),
        StopRequest(reason="enough", mode="after_step", source="me"),
        InferenceInput(
            opening=OPENING, base=root(OPENING), delta=(QUESTION,), target=advanced(root(OPENING), [QUESTION])
        ),
        ExecutionResult(
            execution_id=str(UUID(int=2)),
            status=ExecutionStatus.STOPPED,
            stop_reason=StopReason.STEPS_LIMIT,
            step_count=1,
            used=TreeUse(),
            final_response="",
            state=Run().begin().answer("x").state,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_contract_survives_json(value: Frozen) -> None:
    assert type(value).model_validate_json(canonical(value)) == value


def test_what_each_step_writes_leaves_out_what_is_as_by_default() -> None:
    mark = root(OPENING)
    plain = InferenceInput(base=mark, delta=(), target=mark)
    assert set(from_json(canonical(plain))) == {"base", "delta", "target"}
    said = replace(plain, room=0, input_weight=1.5, metadata={})
    assert set(from_json(canonical(said))) == {"base", "delta", "target", "room", "input_weight", "metadata"}
    assert InferenceInput.model_validate_json(canonical(said)) == said


def test_a_stop_needs_nothing_and_refuses_what_is_overlong_or_unknown() -> None:
    assert StopRequest() == StopRequest(reason="", mode="now", source="")
    for data in ({"reason": "x" * (REASON_CHARS_MAX + 1)}, {"mode": "later"}, {"source": "x" * 201}, {"why": "x"}):
        with pytest.raises(ValidationError):
            StopRequest.model_validate(data)


def test_a_page_begins_at_the_first_item_or_later() -> None:
    with pytest.raises(ValidationError):
        PageRequest(messages_from=-1)


def test_an_execution_needs_a_real_agent_id() -> None:
    with pytest.raises(ValidationError, match="agent_id"):
        ExecutionInput(agent_id="me", definition=DEFINITION, question="?", budget=ExecutionBudget())


def test_no_tool_can_take_the_name_of_an_activity_of_ours() -> None:
    ours = {value for name, value in vars(contracts).items() if name.endswith("_ACTIVITY")}
    assert {contracts.INFERENCE_ACTIVITY, contracts.RESOLVE_TOOLS_ACTIVITY} <= ours
    assert ours | {SPAWN_TOOL} <= RESERVED_NAMES
