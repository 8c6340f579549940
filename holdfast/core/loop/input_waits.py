"""Calls whose server asks a person for something before it goes on (docs/spec.md, 8.21).

    running ─▶ input ─▶ running ─▶ … ─▶ answered
                 └ nobody in time, too often ─▶ failed

What a server asks for at once is answered one by one; then the call is made again, with all answers. An answer counts
for the request that waits until that expires, and where it names a digest, for the request of that digest alone.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final, assert_never

from holdfast.core.agent.state import AgentState
from holdfast.core.base.call_digest import short_digest
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.amounts import moment
from holdfast.core.conversation.input_requests import (
    INPUT_ROUNDS_MAX,
    InputAnswer,
    InputRecord,
    InputRequest,
    InputResponse,
    PendingInput,
    request_digest,
)
from holdfast.core.conversation.steps import CallStage, ErrorRecord, OpenCall
from holdfast.core.loop import limit_checks
from holdfast.core.loop.commands import CallTool, RequestInput
from holdfast.core.loop.events import InputAnswered, InputExpired, InputNeeded
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import InputRequested, InputResolved

RECORDED_CHARS_MAX: Final = 500
"""How much of a request's message is stored with its call, and shown to the model."""

Moved = tuple[OpenCall, ErrorRecord | None]
"""The call as it is now, with an error if it does not go on."""


def moved(transition: Transition, each: OpenCall, event: InputNeeded | InputAnswered | InputExpired) -> Moved | None:
    """Return the call after `event`, which asks for what it asks for next; None where the event is not for it."""
    match event:
        case InputNeeded():
            return _begun(transition, each, event) if each.stage is CallStage.RUNNING else None
        case InputAnswered():
            return _answered(transition, each, event)
        case InputExpired():
            request = each.input_request
            return None if request is None else _expired(transition, each, request)
        case _:
            assert_never(event)


def again(each: OpenCall) -> OpenCall:
    """Return a call that waited, to be made from its start: the server's own state is lost with the driver."""
    return replace(each, stage=CallStage.RUNNING, pending_input=None, expires_at=None, digest=None)


def _begun(transition: Transition, each: OpenCall, event: InputNeeded) -> Moved:
    round_number = each.pending_input.round + 1 if each.pending_input else 1
    if round_number > INPUT_ROUNDS_MAX:
        text = f"the server {event.server!r} asked for input more than {INPUT_ROUNDS_MAX} times in one call"
        return each, ErrorRecord(type="TooManyInputs", message=text, source=each.call.name)
    pending = PendingInput(server=event.server, round=round_number, requests=event.requests, asked_at=transition.at)
    expires_at = transition.at + timedelta(seconds=event.seconds_max)
    each = replace(each, pending_input=pending, expires_at=expires_at, started_at=each.started_at or event.started_at)
    if pending.requests:
        transition.do(RequestInput(transition.step.number, each.index, each.call, expires_at))
    return _next(transition, each, pending), None


def _next(transition: Transition, each: OpenCall, pending: PendingInput) -> OpenCall:
    """Ask for the next answer, or go on with the call where all are there."""
    if not pending.requests and not pending.server:  # the agent's own question: the loop answers the call itself
        return replace(each, stage=CallStage.RUNNING, pending_input=pending, expires_at=None, digest=None)
    if not pending.requests:
        done = replace(pending, responses={})  # they are the server's alone
        running = replace(each, stage=CallStage.RUNNING, pending_input=done, expires_at=None, digest=None)
        if not limit_checks.out_of_time(transition):
            step, responses = transition.step.number, pending.responses
            transition.do(CallTool(step, each.index, each.call, round=pending.round, responses=responses))
        return running
    digest = request_digest(each.call.digest, pending.round, pending.requests[0])
    waiting = replace(each, stage=CallStage.INPUT, pending_input=pending, digest=digest)
    request, expires_at = pending.requests[0], each.expires_at or transition.at
    about = {"server": pending.server, "request": request, "round": pending.round}
    transition.emit(InputRequested, call=each.call, expires_at=expires_at, digest=digest, **about)
    return waiting


def _answered(transition: Transition, each: OpenCall, event: InputAnswered) -> Moved | None:
    request, pending, answer = each.input_request, each.pending_input, event.answer
    if request is None or pending is None:
        return None
    if each.expires_at is not None and event.at >= each.expires_at:
        return _expired(transition, each, request)  # the timer's own event can come behind it
    problem = _problem_with_digest(each, answer) or request.problem(answer)
    if problem is not None:
        transition.warn(f"an answer for {each.call.id} ({each.call.name}) was not accepted: {problem}")
        return None
    each = _resolved(transition, each, request, answer)
    content = None
    if answer.action == "accept" and request.form is not None:
        content = {name: value for name, value in (answer.content or {}).items() if value is not None}
    response = InputResponse(action=answer.action, content=content)
    responses = {**pending.responses, request.key: response}
    return _next(transition, each, replace(pending, requests=pending.requests[1:], responses=responses)), None


def _resolved(transition: Transition, each: OpenCall, request: InputRequest, answer: InputAnswer | None) -> OpenCall:
    """Return the call with the record of an answer, or of none in time."""
    server, digest = each.input_server, each.digest or ""
    facts = {"action": answer.action, "by": answer.by} if answer else {"action": "expired", "by": ""}
    transition.emit(InputResolved, call_id=each.call.id, server=server, request=request, digest=digest, **facts)
    message = clamped(request.message, RECORDED_CHARS_MAX)
    record = InputRecord.model_validate(
        {"server": server, "message": message, "at": transition.at, "digest": digest, **facts}
    )
    return replace(each, inputs=(*each.inputs, record))


def _expired(transition: Transition, each: OpenCall, request: InputRequest) -> Moved:
    each = _resolved(transition, each, request, None)
    who = f"the server {each.input_server!r}" if each.input_server else "you"
    asked = f"{who} asked a person {clamped(request.message, RECORDED_CHARS_MAX)!r}"
    text = f"{asked}, and nobody answered in time" + (": the call did not go on" if each.input_server else "")
    return each, ErrorRecord(type="InputExpired", message=text, source=each.call.name)


def problem_with_answer(
    call_id: str, answer: InputAnswer, state: AgentState, at: datetime, answered_already: Collection[str] = ()
) -> str | None:
    """Return why an answer that comes `at` a time would change nothing, if so, as an error for its sender.

    `answered_already` are the calls with answers that the loop has not acted on yet.
    """
    waiting = {each.call.id: each for each in state.input_calls if each.call.id not in answered_already}
    each = waiting.get(call_id)
    request = each.input_request if each else None
    if each is None or request is None:
        return f"the call {call_id!r} waits for no answer; {suggestion(call_id, waiting)}"
    if each.expires_at is not None and at >= each.expires_at:
        return f"the call {call_id!r} could be answered until {moment(each.expires_at)}"
    problem = _problem_with_digest(each, answer)
    return f"{problem}; look at the call again" if problem else request.problem(answer)


def _problem_with_digest(each: OpenCall, answer: InputAnswer) -> str | None:
    if answer.digest is None or each.digest is None or answer.digest == each.digest:
        return None
    return f"it is for another request than {each.call.id!r} ({each.call.name}) waits for: {short_digest(each.digest)}"
