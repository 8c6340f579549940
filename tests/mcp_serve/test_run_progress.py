"""A run's events as lines for a caller, and the calls that wait for a person."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from holdfast.client import RateLimitAwaited, ToolProgressed, WorkerAwaited
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.conversation.input_requests import InputRequest
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.execution_events import (
    AgentExecutionCompleted,
    ApprovalRequested,
    ApprovalResolved,
    InferenceRequestStarted,
    InputRequested,
    InputResolved,
    ToolCallStarted,
)
from holdfast.mcp_serve.run_progress import RunProgress

RUN, CHILD = str(uuid4()), str(uuid4())
PAY = ToolCall(id="call_1", name="pay", arguments={"amount": 5})
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def envelope(run_id: str, step: int) -> tuple[str, str, None, datetime, int]:
    return "", run_id, None, NOW, step


def test_steps_tools_and_their_progress_are_told() -> None:
    progress = RunProgress(RUN)
    lines = [
        progress.line(InferenceRequestStarted(*envelope(RUN, 2), max_output_tokens=None)),
        progress.line(ToolCallStarted(*envelope(RUN, 2), call=PAY)),
        progress.line(ToolProgressed(RUN, 2, PAY.id, "pay", 1, "page 2\nof 5", 0.4)),
        progress.line(WorkerAwaited(RUN, 2, PAY.id, "pay", "till", over=True)),
        progress.line(RateLimitAwaited(RUN, 3, "the rate limit")),
    ]
    assert lines[:2] == ["step 2: asks the model", "step 2: calls pay"]
    assert lines[2:] == [
        "step 2: pay: 40% page 2 of 5",
        "step 2: pay begins: a worker has taken it",
        "step 3: the model call waits for the rate limit",
    ]
    assert progress.step == 3


def test_a_call_of_a_subagent_waits_until_it_is_decided_or_its_run_has_ended() -> None:
    progress = RunProgress(RUN)
    asked = ApprovalRequested(*envelope(CHILD, 7), call=PAY, expires_at=None, digest="d")
    assert (
        progress.line(asked) == f"subagent, step 7: pay waits for a person's approval: holdfast approve {CHILD} call_1"
    )
    assert [each.tool for each in progress.waiting.values()] == ["pay"]
    decided = ApprovalResolved(*envelope(CHILD, 7), "call_1", "deny", "ada", "no", "d", PAY, None)
    assert progress.line(decided) == "subagent, step 7: pay is denied"
    assert progress.waiting == {}
    progress.line(asked)
    ended = AgentExecutionCompleted(
        *envelope(CHILD, 7), answer="", status=ExecutionStatus.STOPPED, reason=StopReason.USER_REQUESTED, message=""
    )
    assert progress.line(ended) is None
    assert progress.waiting == {}
    assert progress.step == 0, "the subagent's steps are not the run's"


def test_a_call_waits_for_the_answer_to_its_servers_question() -> None:
    progress = RunProgress(RUN)
    request = InputRequest(key="who", message="Who pays?\n" + "?" * 200, form={"type": "object", "properties": {}})
    asked = InputRequested(
        *envelope(RUN, 1), call=PAY, server="till", request=request, round=1, expires_at=NOW, digest="d"
    )
    told = progress.line(asked)
    assert told is not None
    assert told.startswith(f"step 1: pay waits for a person's answer: holdfast answer {RUN} call_1 (Who pays? ???")
    [waiting] = progress.waiting.values()
    assert waiting.request == request
    resolved = InputResolved(*envelope(RUN, 1), PAY.id, "till", request, "decline", "ada", "d")
    assert progress.line(resolved) == "step 1: pay is refused an answer"
    assert progress.waiting == {}
