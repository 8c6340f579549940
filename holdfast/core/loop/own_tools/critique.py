"""The critique of a final answer: another agent judges it before it counts (docs/spec.md, 3.17).

a final answer ─▶ (SpawnSubagent) ─▶ accepted ─▶ the step goes on as without a critique
├▶ refused ──▶ asked for again, or stopped after so many rounds
└▶ no verdict ▶ the run fails, or a warning, as the definition says
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from holdfast.core.agent.assistants import critic, verdict_of
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.subagents import SPAWN_TOOL, problem_with_number
from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.judgements import ANSWER_REFUSED, ANSWER_UNJUDGED, Judgement
from holdfast.core.conversation.messages import Message, ToolCall
from holdfast.core.conversation.steps import AgentStepType, CallStage, ErrorRecord, OpenCall
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.events import SubagentReturned, ToolFailed, ToolReturned
from holdfast.core.loop.own_tools import agent_calls
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import AnswerJudged

REQUEST_CHARS_MAX: Final = 20_000
"""How much of the request whoever judges is shown, in characters: its end."""

ANSWER_CHARS_MAX: Final = 40_000
"""How much of the answer: a longer one cannot be accepted, as its rest would not have been judged."""

JUDGEMENT: Final = "judge the final answer"
"""The task of the call that stands for a judgement under way."""


def begin(transition: Transition) -> bool:
    """Have the answer of the step under way judged, if it is a final one; return whether that has begun."""
    step, response = transition.step, transition.step.response
    if transition.rules.definition.critique is None or step.judgement is not None:
        return False
    if response is None or step.requested_tool_calls or step.errors:
        return False
    if transition.execution.answer_due and not transition.should_stop(more_to_do=True):
        return False  # the loop goes on: another answer is the last
    highest = transition.execution.continuation.highest
    if transition.must_stop and (highest is None or highest.reason.forced):  # else the run ends `completed`
        return False
    judge = critic(transition.rules.definition, transition.rules.assistants)
    name = judge.name if judge else ""
    transition.change_step(judgement=Judgement(judge=name, started_at=transition.at))
    problem = problem_with_number(0, transition.execution.subagents_started)
    if judge is None or transition.rules.depth < 1:
        _unjudged(transition, "agents must not nest any deeper than this one" if judge else "its judge is not known")
    elif problem is not None:
        _unjudged(transition, problem.message)
    elif len(response.text) > ANSWER_CHARS_MAX:
        size = f"it has {len(response.text):,} characters, and at most {ANSWER_CHARS_MAX:,} are judged"
        _end(transition, "refused", reasons=(f"{size}: give a shorter one",))
    else:
        call = ToolCall(id=f"critique-{step.number}", name=SPAWN_TOOL, arguments={"agent": name, "task": JUDGEMENT})
        each = OpenCall(index=0, call=call, stage=CallStage.RUNNING, started_at=transition.at)
        transition.change(open_calls=(each,), subagents_started=transition.execution.subagents_started + 1)
        agent_calls.spawn(transition, each, judge, _task(transition, response.text), assistant=True)
        return True
    return False


def begin_again(transition: Transition) -> bool:
    """Have the answer judged from the beginning where a judgement was under way; return whether it was."""
    step = transition.step
    if step.judgement is None or step.judgement.completed_at is not None:
        return False
    transition.change_step(judgement=None)
    transition.change(open_calls=())
    begin(transition)
    return True


def take_in(transition: Transition, event: ToolReturned | ToolFailed | SubagentReturned) -> bool:
    """Take in the end of whoever judges; return whether `event` is that."""
    judgement = transition.step.judgement
    if not isinstance(event, SubagentReturned) or judgement is None or judgement.completed_at is not None:
        return False
    _count(transition, judgement, event)
    transition.change(open_calls=())
    if event.status is not ExecutionStatus.COMPLETED:
        _unjudged(transition, f"{judgement.judge!r} {event.status}: {event.why or 'it gave no verdict'}")
        return True
    verdict, problem = verdict_of(event.answer)
    if verdict is None:
        _unjudged(transition, f"the verdict of {judgement.judge!r} cannot be read: {problem}")
    elif verdict.accepted:
        _end(transition, "accepted", reasons=verdict.reasons)
    else:
        _end(transition, "refused", reasons=verdict.reasons or ("no reason was given",))
    return True


def cancelled(transition: Transition, event: SubagentReturned) -> bool:
    """Count what whoever judged used before the cancel; return whether `event` is that."""
    judgement = transition.step.judgement
    if judgement is None or judgement.completed_at is not None:
        return False
    _count(transition, judgement, event)
    transition.change(open_calls=())
    return True


def withdraw(transition: Transition) -> None:
    """Keep an answer without a verdict from counting: the run ends, or asks for another, before there is one."""
    judgement, critique = transition.step.judgement, transition.rules.definition.critique
    if judgement is None and critique is not None and transition.step.step_type is AgentStepType.FINAL_RESPONSE:
        judge = critic(transition.rules.definition, transition.rules.assistants)
        judgement = Judgement(judge=judge.name if judge else "", started_at=transition.at)
    if judgement is None or judgement.completed_at is not None:
        return
    ends = transition.should_stop(more_to_do=True)
    why = "the run ended before its judgement" if ends else "another answer was due before its judgement"
    _close(transition, replace(judgement, why=why))
    if critique is None or critique.unjudged == "fail":
        _add_error(transition, ErrorRecord(type=ANSWER_UNJUDGED, message=why, source=judgement.judge))


def settle(transition: Transition) -> None:
    """Keep a run from ending `completed` whose last answer was refused: nobody is asked for another one."""
    steps, highest = transition.execution.step_executions, transition.execution.continuation.highest
    judgement = steps[-1].step.judgement if steps else None
    if judgement is None or judgement.outcome != "refused" or (highest is not None and highest.reason.forced):
        return
    allowed = _rounds(transition)
    facts: dict[str, JsonValue] = {"limit": "critique.rounds", "used": _refusals(transition), "allowed": allowed}
    text = f"{judgement.judge!r} did not accept the answer with which the run ended: {judgement.reasons[0]}"
    transition.signal_once(StopReason.RETRY_LIMIT, text, judgement.judge, **facts)


def _rounds(transition: Transition) -> int:
    critique = transition.rules.definition.critique
    return critique.rounds if critique else 1


def _refusals(transition: Transition) -> int:
    """Return how many answers of this execution were refused so far."""
    step, done = transition.execution.current_step, transition.execution.step_executions
    judgements = [each.judgement for each in (*(one.step for one in done), *((step,) if step else ()))]
    return sum(each is not None and each.outcome == "refused" for each in judgements)


def _count(transition: Transition, judgement: Judgement, event: SubagentReturned) -> None:
    agent_calls.count(transition, judgement.judge, event)
    used = event.used
    transition.change_step(judgement=replace(judgement, usage=used.usage, cost=used.cost, unpriced=used.unpriced))


def _end(transition: Transition, outcome: str, *, reasons: tuple[str, ...]) -> None:
    judgement = transition.step.judgement
    if judgement is None:
        return
    ended = replace(judgement, outcome=outcome, reasons=reasons)
    _close(transition, ended)
    if outcome == "refused":
        _refused(transition, ended)


def _close(transition: Transition, judgement: Judgement) -> None:
    ended = replace(judgement, completed_at=transition.at)
    transition.change_step(judgement=ended)
    transition.emit(AnswerJudged, judgement=ended)


def _refused(transition: Transition, judgement: Judgement) -> None:
    """Ask for the answer again with the reasons, or stop after as many rounds as the definition allows."""
    allowed, rounds = _rounds(transition), _refusals(transition)
    listed = "\n".join(f"- {reason}" for reason in judgement.reasons)
    text = f"{judgement.judge!r} did not accept the answer:\n{listed}"
    _add_error(transition, ErrorRecord(type=ANSWER_REFUSED, message=text, source=judgement.judge))
    if rounds >= allowed:
        text = f"{judgement.judge!r} did not accept the answer in round {rounds} of {allowed}: {judgement.reasons[0]}"
        facts: dict[str, JsonValue] = {"limit": "critique.rounds", "used": rounds, "allowed": allowed}
        transition.signal_once(StopReason.RETRY_LIMIT, text, judgement.judge, **facts)
        return
    text = f"Your answer was not accepted:\n{listed}\nMend it, and give the whole answer again."
    message = Message(role="user", content=text, metadata={"is_trace": True})
    waiting = (*transition.execution.waiting_messages, message)
    transition.change(waiting_messages=waiting, answer_due=True)


def _unjudged(transition: Transition, why: str) -> None:
    """Fail the run for an answer without a verdict, or let it count with a warning, as the definition says."""
    judgement, critique = transition.step.judgement, transition.rules.definition.critique
    if judgement is None:
        return
    _close(transition, replace(judgement, why=clamped(why, ERROR_CHARS_MAX)))
    text = f"the answer could not be judged: {why}"
    if critique is not None and critique.unjudged == "accept":
        transition.warn(f"{text}; it counts all the same (critique.unjudged: accept)")
    else:
        error = ErrorRecord(type=ANSWER_UNJUDGED, message=text, source=judgement.judge)
        transition.fail(_add_error(transition, error))


def _add_error(transition: Transition, error: ErrorRecord) -> ErrorRecord:
    error = replace(error, message=clamped(error.message, ERROR_CHARS_MAX))
    transition.change_step(errors=(*transition.step.errors, error))
    return error


def _task(transition: Transition, answer: str) -> str:
    """Return what whoever judges is asked: the messages of people in this execution, and the answer."""
    execution_id = transition.execution.execution_id
    requests = [
        each.text
        for each in transition.store.messages
        if each.role == "user"
        and each.metadata.get("execution_id") == execution_id
        and each.metadata.get("is_trace") is not True
    ]
    request = "\n\n".join(requests)[-REQUEST_CHARS_MAX:] or "(it is no longer in the conversation)"
    return f"The request:\n{_between('request', request)}\n\nThe answer:\n{_between('answer', answer)}"


def _between(tag: str, text: str) -> str:
    """Return the text between tags that it does not close itself, to speak as whoever asks for the judgement."""
    while f"</{tag}" in text:
        tag += "_"
    return f"<{tag}>\n{text}\n</{tag}>"
