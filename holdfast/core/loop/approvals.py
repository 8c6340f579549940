"""Approvals: which tool calls wait for a person, and how a decision changes one (docs/spec.md, section 8).

A decision decides one call, once. It counts for a waiting call until that expires, and where it names a digest, for the
call of that digest alone; any other changes nothing. Only decisions approve a call: messages and tool results never do.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import assert_never

from pydantic_core import to_json

from holdfast.core.agent.handoffs import HANDOFF_TOOL, problem_with_handoff
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.subagents import SPAWN_TOOL, problem_with_spawn
from holdfast.core.base.bounds import EDITS_STEP_BYTES_MAX, SOURCE_CHARS_MAX
from holdfast.core.base.call_digest import short_digest
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.amounts import moment
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import CallStage, ErrorRecord, OpenCall
from holdfast.core.conversation.verdicts import Approval, Verdict
from holdfast.core.loop.commands import RequestApproval
from holdfast.core.loop.events import ApprovalDecided, ApprovalExpired
from holdfast.core.loop.execution_rules import Rules
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import ApprovalRequested, ApprovalResolved

IN_TIME = "nobody decided about it in time"
"""The error text of a call that nobody decided about in time."""


def rule_for(transition: Transition, each: OpenCall) -> ApprovalRule | None:
    """Return the rule by which the call waits, if there is one; its arguments are as hooks left them."""
    return transition.rules.approval_for(each.call, transition.execution.cost_known)


def waits(transition: Transition, each: OpenCall, rule: ApprovalRule) -> OpenCall:
    """Return the call in the stage `approval`, and emit ApprovalRequested."""
    expires_at = None if rule.expires is None else transition.at + rule.expires
    digests = {"digest": each.call.digest, "tool_digest": _version(transition, each)}
    transition.emit(ApprovalRequested, call=each.call, expires_at=expires_at, **digests)
    return replace(each, stage=CallStage.APPROVAL, started_at=transition.at, expires_at=expires_at, **digests)


def waits_on(transition: Transition, each: OpenCall) -> OpenCall:
    """Return a call that waits already, bound to the tool as this execution has it."""
    return replace(each, tool_digest=_version(transition, each))


def _version(transition: Transition, each: OpenCall) -> str | None:
    traits = transition.rules.tools.get(each.call.name)
    return None if traits is None else traits.mcp_digest


def ask(transition: Transition, each: OpenCall) -> None:
    """Ask for a person's decision about this call."""
    transition.do(
        RequestApproval(
            transition.step.number, each.index, each.call, each.expires_at, len(transition.step.requested_tool_calls)
        )
    )


def decided(
    transition: Transition, each: OpenCall, event: ApprovalDecided | ApprovalExpired
) -> tuple[OpenCall, ErrorRecord | None] | None:
    """Return the decided call, with an error if it must not run.

    None where the decision is not for this call; a warning says so.
    """
    match event:
        case ApprovalExpired():
            return _expired(transition, each)
        case ApprovalDecided():
            if each.expires_at is not None and event.at >= each.expires_at:
                return _expired(transition, each)  # the timer's own event can come behind it
            call_count = len(transition.step.requested_tool_calls)
            problem = _problem_with_digest(each, event.verdict) or event.problem
            problem = problem or problem_with_edit(transition.rules, each.call, event.verdict, call_count)
            if problem is not None:
                about = f"a decision about {each.call.id} ({each.call.name})"
                transition.warn(f"{about} was not accepted: {problem}")  # once, however often it happens
                return None
            return _resolved(transition, each, event.verdict)
        case _:
            assert_never(event)


def _expired(transition: Transition, each: OpenCall) -> tuple[OpenCall, ErrorRecord]:
    approval = Approval(decision="expired", at=transition.at, digest=each.call.digest)
    return _with_approval(transition, each, approval), _denied(IN_TIME, "approval")


def _resolved(transition: Transition, each: OpenCall, verdict: Verdict) -> tuple[OpenCall, ErrorRecord | None]:
    error: ErrorRecord | None = None
    arguments = each.call.arguments if verdict.arguments is not None else None
    if verdict.decision == "deny":
        why = f"denied by {verdict.by or 'a person'}" + (f": {verdict.reason}" if verdict.reason else "")
        error = _denied(why, verdict.by or "approval")
    elif verdict.arguments is not None:
        each = each.with_arguments(verdict.arguments)
    approval = Approval(
        decision=verdict.decision,
        by=verdict.by,
        reason=verdict.reason,
        at=transition.at,
        digest=each.call.digest,
        asked=arguments,
    )
    return _with_approval(transition, each, approval), error


def _with_approval(transition: Transition, each: OpenCall, approval: Approval) -> OpenCall:
    facts = {"by": approval.by, "reason": approval.reason, "digest": approval.digest, "asked": approval.asked}
    transition.emit(ApprovalResolved, call_id=each.call.id, call=each.call, decision=approval.decision, **facts)
    return replace(each, digest=None, tool_digest=None, approval=approval)


def problem_with_decision(
    call_id: str, verdict: Verdict, state: AgentState, at: datetime, decided_already: Collection[str] = ()
) -> str | None:
    """Return why a decision that comes `at` a time would decide nothing, if so, as an error for its sender.

    `decided_already` are the calls with decisions that the loop has not acted on yet.
    """
    waiting = {each.call.id: each for each in state.waiting_calls if each.call.id not in decided_already}
    each = waiting.get(call_id)
    if each is None:
        return f"the call {call_id!r} does not wait for approval; {suggestion(call_id, waiting)}"
    if each.expires_at is not None and at >= each.expires_at:
        return f"the call {call_id!r} could be decided until {moment(each.expires_at)}"
    problem = _problem_with_digest(each, verdict)
    return None if problem is None else f"{problem}; look at the call again"


def _problem_with_digest(each: OpenCall, verdict: Verdict) -> str | None:
    digest, version = each.call.digest, each.tool_digest
    if verdict.tool_digest is not None and verdict.tool_digest != version:
        return (
            f"it names another version of the tool {each.call.name} than this run has: {short_digest(version or '-')}"
        )
    if verdict.digest is None or verdict.digest == digest:
        return None
    return f"it names another digest than {each.call.id!r} ({each.call.name}) has: {short_digest(digest)}"


def problem_with_edit(rules: Rules, call: ToolCall, verdict: Verdict, call_count: int) -> str | None:
    """Return why `call` cannot run with the edited arguments, if so, as far as the core can tell.

    All calls of a step start together, `call_count` of them, and share what their inputs may take. The arguments
    of a subagent and of a handoff are judged here; those of a tool by the driver, which has its schema.
    """
    if verdict.arguments is None:
        return None
    size, share = len(to_json(verdict.arguments)), EDITS_STEP_BYTES_MAX // max(1, call_count)
    if size > share:
        return f"the edited arguments are {size:,} bytes of JSON; a call in this step may have at most {share:,}"
    edited = replace(call, arguments=verdict.arguments)
    if call.name == SPAWN_TOOL and rules.subagents:
        problem = problem_with_spawn(edited, rules.subagents, rules.depth)
    elif call.name == HANDOFF_TOOL and rules.handoffs:
        problem = problem_with_handoff(edited, rules.handoffs, 0)
    else:
        return None
    return None if problem is None else problem.message.removeprefix("the model asked for ")


def _denied(why: str, source: str) -> ErrorRecord:
    return ErrorRecord(
        type="ToolExecutionBlocked", message=f"the call was not run: {why}", source=source[:SOURCE_CHARS_MAX]
    )
