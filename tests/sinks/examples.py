"""One event of each kind, as sinks are given them and docs/events.md shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Trigger
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.input_requests import InputRequest
from holdfast.core.conversation.judgements import Judgement
from holdfast.core.conversation.messages import Message, ToolCall
from holdfast.core.conversation.steps import AgentStep, ErrorRecord, Fallback, InferenceResponse, Outcome, ToolExecution
from holdfast.core.conversation.steps_back import StepBack
from holdfast.core.conversation.stop_reasons import StopReason, StopSignal
from holdfast.core.conversation.todos import Todo
from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.core.wire.execution_events import (
    AgentExecutionCompleted,
    AgentExecutionFailed,
    AgentExecutionStarted,
    AgentExecutionStopped,
    AgentHandedOff,
    AgentStepCompleted,
    AgentStepStarted,
    AgentWentBack,
    AnswerJudged,
    AnyObserved,
    ApprovalRequested,
    ApprovalResolved,
    ContinuationEvaluated,
    HookExecuted,
    InferenceRequestStarted,
    InferenceResponseReceived,
    InputRequested,
    InputResolved,
    McpToolsChanged,
    MessageInjected,
    ModelFellBack,
    StopSignalReceived,
    SubagentCompleted,
    SubagentSpawned,
    TodosChanged,
    TokenUsageReported,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
)
from holdfast.core.wire.session_contracts import Branch
from holdfast.core.wire.session_events import (
    AnySessionEvent,
    MessageAccepted,
    SessionChanged,
    SessionClosed,
    SessionCreated,
    SessionForked,
    SessionResumed,
    SessionSuspended,
)
from holdfast.sinks import Batch

AGENT, EXECUTION = "0b7e1f6a-5c3d-4a52-9a01-3f4a5b6c7d8e", "6f1c2d3e-4b5a-4978-8695-a4b3c2d1e0f9"
AT = datetime(2026, 11, 20, 12, 20, 17, 250_000, tzinfo=UTC)
CALL = ToolCall(id="call_1", name="refund", arguments={"order": 17, "amount": 40})
ASKS = InputRequest(
    key="reason",
    message="Why is it refunded?",
    form={"type": "object", "properties": {"reason": {"type": "string", "maxLength": 200}}, "required": ["reason"]},
)
ASKED = InferenceResponse(
    tool_calls=(CALL,), finish_reason="tool_calls", usage=Usage(input_tokens=210, output_tokens=18), model="gpt-x"
)
RAN = ToolExecution(
    id="9d2f7c1a-0000-4000-8000-000000000001",
    call=CALL,
    outcome=Outcome.SUCCEEDED,
    result="refunded",
    started_at=AT,
    completed_at=AT + timedelta(seconds=0.4),
)
BLOCKED = RAN.model_copy(
    update={
        "outcome": Outcome.BLOCKED,
        "result": None,
        "error": ErrorRecord(type="ToolExecutionBlocked", message="not on Fridays", source="hook guard"),
    }
)
STEP = AgentStep(
    id="9d2f7c1a-0000-4000-8000-000000000002",
    number=1,
    input_length=1,
    inference_response=ASKED,
    tool_executions=(RAN,),
)
STOP = StopSignal(reason=StopReason.USER_REQUESTED, message="enough", source="ada", at=AT)
_E = (AGENT, EXECUTION, None, AT)

EVENTS: tuple[AnyObserved, ...] = (
    AgentExecutionStarted(*_E, 0, agent="clerk", resumed=False),
    AgentStepStarted(*_E, 1),
    InferenceRequestStarted(*_E, 1, max_output_tokens=4096),
    InferenceResponseReceived(*_E, 1, response=ASKED),
    ApprovalRequested(*_E, 1, call=CALL, expires_at=AT + timedelta(hours=1), digest="3f7a91c2"),
    ApprovalResolved(
        *_E, 1, call_id="call_1", decision="approve", by="ada", reason="", digest="3f7a91c2", call=CALL, asked=None
    ),
    ToolCallStarted(*_E, 1, call=CALL),
    InputRequested(
        *_E, 1, call=CALL, server="shop", request=ASKS, round=1, expires_at=AT + timedelta(days=7), digest="5b20e7d4"
    ),
    InputResolved(*_E, 1, call_id="call_1", server="shop", request=ASKS, action="accept", by="ada", digest="5b20e7d4"),
    ToolCallCompleted(*_E, 1, tool_execution=RAN),
    ToolCallBlocked(*_E, 1, tool_execution=BLOCKED),
    SubagentSpawned(*_E, 1, call_id="call_2", index=1, agent="researcher", task="Find the order."),
    SubagentCompleted(
        *_E,
        1,
        call_id="call_2",
        agent="researcher",
        status=ExecutionStatus.COMPLETED,
        usage=Usage(input_tokens=90),
        cost=0.0002,
    ),
    AgentStepCompleted(
        *_E,
        1,
        step=STEP,
        started_at=AT - timedelta(seconds=2),
        completed_at=AT,
        duration_seconds=2.0,
        usage=ASKED.usage,
    ),
    TokenUsageReported(*_E, 1, usage=ASKED.usage, total=ASKED.usage, cost=0.0006, total_cost=0.0006),
    ContinuationEvaluated(*_E, 1, should_stop=False, overridden=False),
    MessageInjected(*_E, 1, message=Message(role="user", content="And order 18, please.")),
    HookExecuted(*_E, 1, hook="guard", trigger=Trigger.BEFORE_TOOL, error=None),
    StopSignalReceived(*_E, 1, signal=STOP),
    AgentExecutionStopped(*_E, 1, reason=StopReason.USER_REQUESTED, message="enough"),
    AgentExecutionCompleted(
        *_E,
        2,
        answer="Order 17 is refunded.",
        status=ExecutionStatus.COMPLETED,
        reason=StopReason.COMPLETED,
        message="",
    ),
    AgentExecutionFailed(*_E, 1, error=ErrorRecord(type="QuotaExceeded", message="no credit left", source="model")),
    McpToolsChanged(*_E, 0, server="shop", added=("shop_refund",), changed=("shop_pay",)),
    TodosChanged(*_E, 1, todos=(Todo(text="Find the order.", status="done"), Todo(text="Refund it."))),
    ModelFellBack(
        *_E,
        1,
        fallback=Fallback(
            route="gpt-x",
            to="claude-y",
            error=ErrorRecord(type="QuotaExceeded", message="no credit left", source="model"),
            at=AT,
            usage=Usage(input_tokens=400, output_tokens=20, estimated_tokens=20),
            cost=0.0014,
        ),
    ),
    AnswerJudged(
        *_E,
        2,
        judgement=Judgement(
            judge="critic",
            outcome="refused",
            reasons=("The amount is missing.",),
            started_at=AT - timedelta(seconds=1),
            completed_at=AT,
            usage=Usage(input_tokens=60, output_tokens=12),
            cost=0.0001,
        ),
    ),
    AgentWentBack(*_E, 2, step_back=StepBack(from_step=2, to_step=1, note="It is order 18.", at=AT)),
    AgentHandedOff(*_E, 1, from_agent="clerk", to_agent="billing", reason="a question about a bill"),
)
"""Every kind once; no execution has them all."""

RUN = "2a4b6c8d-0e1f-4a3b-8c5d-7e9f0a1b2c3d"
_S = (AGENT, RUN, "clerk", "acme", AT)

SESSION_EVENTS: tuple[AnySessionEvent, ...] = (
    SessionCreated(*_S),
    SessionForked(*_S, origin=Branch(agent_id=EXECUTION, execution_id=AGENT, steps=2)),
    MessageAccepted(*_S, message_id="mail-17", while_running="queue", chars=18, excerpt="Where is order 17?"),
    SessionChanged(*_S, changed=("system_prompt", "budget"), place=Branch(agent_id=AGENT, execution_id=EXECUTION)),
    SessionSuspended(*_S, running_id=EXECUTION),
    SessionResumed(*_S, waiting=1),
    SessionClosed(*_S, at_once=False, waiting=0),
)
"""Every kind of a session's once."""

NUMBERED = tuple(NumberedEvent(number, event) for number, event in enumerate(EVENTS, 1)) + tuple(
    NumberedEvent(number, event) for number, event in enumerate(SESSION_EVENTS, 1)
)


def batch_of(count: int, *, start: int = 0, again: bool = False) -> Batch:
    """Return a batch of so many of them."""
    return Batch("test", NUMBERED[start : start + count], again)
