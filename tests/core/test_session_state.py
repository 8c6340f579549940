"""The rules of a session one by one; `test_session_machine` mixes them."""

from __future__ import annotations

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.bounds import QUESTION_BYTES_MAX, QUEUE_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import canonical, replace
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.session.session_state import (
    INTERRUPTED,
    MESSAGE_IDS_KEPT,
    QUEUE_BYTES_MAX,
    SessionCommand,
    SessionInput,
    SessionState,
    TurnEnd,
    branched,
    changed,
    cleared,
    closed,
    continued,
    end_as_recorded,
    ended,
    new_session,
    next_turn,
    problem_with_message,
    problem_with_rewinding,
    receipt,
    resumed,
    sent,
    stopped,
    suspended,
)
from holdfast.core.wire.contracts import DefinitionChange, StopRequest
from holdfast.core.wire.records import ExecutionRecord
from holdfast.core.wire.session_contracts import (
    SESSION_CLOSED,
    SESSION_REFUSED,
    Branch,
    Branched,
    SessionChange,
    WhileRunning,
)
from tests.core.building import AGENT_ID, DEFINITION, START, moment
from tests.core.sessions import (
    RefusedError,
    begin,
    digest,
    execution_id,
    finish,
    only_told,
    running,
    said,
    session,
    spoken_to,
    tell,
    told,
    waiting,
)

TERMINATED = ExecutionStatus.FAILED


def refusal(state: SessionState, message_id: str = "new", text: str = "hello") -> tuple[str, str]:
    problem = problem_with_message(state, said(message_id, text))
    assert problem is not None
    return problem


def known_to(state: SessionState, message_id: str) -> tuple[str, str | None]:
    """Return where a message stands and with which execution."""
    found = receipt(state, message_id)
    assert found is not None
    return found.state, found.execution_id


def record(number: int) -> ExecutionRecord:
    return ExecutionRecord(
        agent_id=AGENT_ID,
        agent="tester",
        execution_id=execution_id(number),
        number=number,
        status=ExecutionStatus.STOPPED,
        stop_reason=StopReason.USER_REQUESTED,
        started_at=START,
        completed_at=moment(1),
        step_count=1,
        steps_used=1,
        snapshot=digest(number),
    )


def test_a_session_needs_a_definition_to_begin_with() -> None:
    with pytest.raises(InvalidInput, match=AGENT_ID):
        new_session(SessionInput(), AGENT_ID, START)


def test_a_new_session_is_idle_and_begins_nothing() -> None:
    state = session()
    assert next_turn(state, execution_id(1), START) == (state, ())
    assert (state.status, state.view().executions, state.is_over) == ("idle", 0, False)


def test_a_message_begins_an_execution_with_what_the_agent_is_and_remembers() -> None:
    state, first = begin(told(session(), said("a", "hi there")))
    assert (first.execution_id, first.definition, first.start.snapshot) == (execution_id(1), DEFINITION, None)
    assert [(each.role, each.content) for each in first.start.messages] == [("user", "hi there")]
    assert (state.status, state.view().running_id) == ("running", execution_id(1))
    _, second = begin(told(finish(state), "b"))
    assert (second.start.snapshot, second.start.previous_id) == (digest(1), execution_id(1))


def test_one_execution_runs_at_a_time() -> None:
    state = running("queue", "b")
    assert next_turn(state, execution_id(2), START) == (state, ())


def test_queued_messages_have_their_executions_in_the_order_they_came() -> None:
    state, order = running("queue", "b", "c", "d"), list[list[str]]()
    while state.turn:
        order.append([each.message_id for each in state.turn.said])
        state = finish(state)
        if state.queue:
            state, _ = begin(state)
    assert order == [["first"], ["b"], ["c"], ["d"]]
    assert state.executions == 4


def test_what_executions_used_adds_up_over_the_session() -> None:
    state = finish(begin(finish(running("queue", "b")))[0])
    assert (state.usage.input_tokens, state.cost) == (20, 1.0)
    assert (state.last_id, state.last_status) == (execution_id(2), ExecutionStatus.COMPLETED)


def test_an_injected_message_goes_to_the_execution_under_way() -> None:
    state, commands = tell(running("inject"), said("b", "and this"))
    message = only_told(commands)
    assert isinstance(message, Message)
    assert (message.role, message.content, message.metadata) == ("user", "and this", {"message_id": "b"})
    assert (waiting(state), known_to(state, "b")) == ([], ("running", execution_id(1)))
    assert known_to(finish(state, taken=("b",)), "b") == ("answered", execution_id(1))


def test_what_an_execution_did_not_take_waits_again_before_what_came_later() -> None:
    state = told(running(), said("b", policy="inject"), "c", said("d", policy="inject"), said("e", policy="inject"))
    state = finish(state, taken=("b",))
    assert waiting(state) == ["d", "e", "c"]
    assert [known_to(state, each)[0] for each in "bdec"] == ["answered", "waiting", "waiting", "waiting"]
    state, command = begin(state)
    assert (spoken_to(command), known_to(state, "d")) == (["d"], ("running", execution_id(2)))


def test_a_message_that_interrupts_stops_what_runs_and_is_next() -> None:
    state, commands = tell(running("queue", "b"), said("now!", policy="interrupt"))
    stop = only_told(commands)
    assert isinstance(stop, StopRequest)
    assert (stop.reason, stop.mode) == (INTERRUPTED, "now")
    assert waiting(state) == ["now!", "b"]
    state, command = begin(finish(state, ExecutionStatus.STOPPED))
    assert spoken_to(command) == ["now!"]


def test_messages_that_interrupt_keep_their_order_and_come_before_what_was_not_taken() -> None:
    state = told(running("interrupt", said("left", policy="inject"), said("b", policy="queue")), "now", "and now")
    state = finish(state, ExecutionStatus.STOPPED)
    assert waiting(state) == ["now", "and now", "left", "b"]
    state = told(begin(state)[0], "at once")
    assert waiting(state) == ["and now", "at once", "left", "b"]


def test_with_the_policy_reject_a_message_is_refused_only_while_something_runs() -> None:
    kind, text = refusal(running("reject"))
    assert kind == SESSION_REFUSED
    assert execution_id(1) in text
    assert waiting(told(finish(running("reject")), "b")) == ["b"]


def test_a_messages_own_policy_comes_before_the_sessions() -> None:
    assert waiting(told(running("reject"), said("b", policy="queue"))) == ["b"]
    with pytest.raises(RefusedError, match="reject"):
        told(running("queue"), said("b", policy="reject"))


@pytest.mark.parametrize("policy", ["queue", "inject", "interrupt"])
def test_a_message_sent_twice_is_one_wherever_the_first_is(policy: str) -> None:
    again = said("b", "said again", "interrupt")
    state = told(running(), said("b", "said", policy))  # type: ignore[arg-type]
    for _ in range(3):
        assert problem_with_message(state, again) is None
        assert tell(state, again) == (state, ())
        state = finish(state) if state.turn else begin(state)[0]


def test_a_message_that_is_known_is_none_the_less_one_after_the_close() -> None:
    state, _ = closed(finish(running()), None, START)
    assert tell(state, "first") == (state, ())
    assert refusal(state)[0] == SESSION_CLOSED


def test_so_many_of_the_latest_messages_are_remembered_and_no_more() -> None:
    state = session()
    for number in range(MESSAGE_IDS_KEPT + 1):
        state = finish(begin(told(state, str(number)))[0])
    assert len(state.known) == MESSAGE_IDS_KEPT
    assert receipt(state, "0") is None
    assert known_to(state, "1") == ("answered", execution_id(2))


def test_a_receipt_tells_how_many_are_ahead_and_what_they_wait_for() -> None:
    state = running("queue", "b", "c")
    found = receipt(state, "c")
    assert found is not None
    assert (found.state, found.ahead, found.execution_id, found.running_id) == ("waiting", 1, None, execution_id(1))
    assert receipt(state, "never came") is None


@pytest.mark.parametrize("text", ["", " \n\t", "\u3000"])
def test_an_empty_message_is_refused(text: str) -> None:
    assert refusal(session(), text=text)[0] == SESSION_REFUSED


def test_a_message_of_the_largest_size_is_taken_and_one_byte_more_is_refused_with_the_size() -> None:
    largest = "é" * (QUESTION_BYTES_MAX // 2)
    assert problem_with_message(session(), said("a", largest)) is None
    kind, text = refusal(session(), text=largest + "x")
    assert kind == SESSION_REFUSED
    assert f"{QUESTION_BYTES_MAX + 1:,}" in text


def test_the_largest_message_is_taken_however_long_it_is_as_json() -> None:
    assert problem_with_message(session(), said("a", "\x00" * QUESTION_BYTES_MAX)) is None


@pytest.mark.parametrize("policy", ["queue", "inject", "interrupt"])
def test_so_many_messages_come_while_one_is_answered_and_the_next_is_refused(policy: WhileRunning) -> None:
    state = running(policy, *map(str, range(QUEUE_MAX - 1)))
    kind, text = refusal(state)
    assert kind == SESSION_REFUSED
    assert f"at most {QUEUE_MAX}" in text
    assert problem_with_message(finish(state), said("new")) is None


def test_so_many_bytes_wait_and_the_next_message_is_refused() -> None:
    state = session()
    for number in range(QUEUE_BYTES_MAX // QUESTION_BYTES_MAX - 1):
        state = told(state, said(str(number), "x" * QUESTION_BYTES_MAX))
    assert f"{QUEUE_BYTES_MAX:,}" in refusal(state, text="x" * QUESTION_BYTES_MAX)[1]
    assert sum(len(canonical(each)) for each in state.queue) <= QUEUE_BYTES_MAX


def test_nothing_begins_while_a_session_is_suspended_and_messages_are_taken() -> None:
    state = told(suspended(session(), START), "a")
    assert next_turn(state, execution_id(1), START) == (state, ())
    assert (state.status, known_to(state, "a")) == ("suspended", ("waiting", None))
    assert spoken_to(begin(resumed(state, START))[1]) == ["a"]


def test_what_runs_when_a_session_is_suspended_goes_on_to_its_end() -> None:
    state = suspended(running("queue", "b"), START)
    assert state.status == "running"
    state = finish(state)
    assert (state.status, next_turn(state, execution_id(2), START)[1]) == ("suspended", ())


def test_a_closed_session_is_over_when_everything_acknowledged_has_had_its_turn() -> None:
    state, _ = closed(suspended(running("queue", "b"), START), None, START)
    assert not state.is_over
    state = finish(state)
    assert not state.is_over
    state = finish(begin(state)[0])
    assert (state.is_over, state.status) == (True, "closed")


def test_a_session_closed_at_once_stops_what_runs_and_keeps_what_waits() -> None:
    state, commands = closed(running("queue", "b"), StopRequest(reason="enough"), START)
    assert only_told(commands) == StopRequest(reason="enough")
    state = finish(state, ExecutionStatus.STOPPED)
    assert (state.is_over, state.status, state.view().waiting) == (True, "closed", ("b",))
    assert next_turn(state, execution_id(2), START) == (state, ())


def test_a_session_that_closes_can_still_be_closed_at_once_and_not_the_other_way_round() -> None:
    state, commands = closed(running("queue", "b"), None, START)
    assert commands == ()
    state, commands = closed(state, StopRequest(), START)
    assert only_told(commands) == StopRequest()
    assert finish(closed(state, None, START)[0], ExecutionStatus.STOPPED).is_over


def test_a_stop_is_told_once_and_once_more_where_now_is_sooner() -> None:
    state, commands = stopped(running(), StopRequest(reason="enough", mode="after_step", source="me"), START)
    assert only_told(commands) == StopRequest(reason="enough", mode="after_step", source="me")
    assert stopped(state, StopRequest(mode="after_step"), START) == (state, ())
    state, commands = stopped(state, StopRequest(), START)
    assert only_told(commands) == StopRequest(mode="now")
    for again in (StopRequest(), StopRequest(mode="after_step")):
        assert stopped(state, again, START) == (state, ())
    assert tell(state, said("b", policy="interrupt"))[1] == (), "it ends already"


def test_a_thousand_stops_are_told_once() -> None:
    state, commands = running(), list[SessionCommand]()
    for _ in range(1_000):
        state, more = stopped(state, StopRequest(reason="enough"), START)
        commands += more
    assert only_told(tuple(commands)) == StopRequest(reason="enough")


def test_a_stop_of_nothing_changes_nothing() -> None:
    state = finish(running())
    assert stopped(state, StopRequest(), START) == (state, ())


def test_a_stop_ends_one_execution_and_the_next_begins() -> None:
    state, _ = stopped(running("queue", "b"), StopRequest(), START)
    state, command = begin(finish(state, ExecutionStatus.STOPPED))
    assert spoken_to(command) == ["b"]
    assert only_told(stopped(state, StopRequest(), START)[1]) == StopRequest(mode="now")


def test_a_clear_forgets_the_conversation_and_no_message_that_waits() -> None:
    state = cleared(suspended(told(finish(running()), "b"), START), moment(1))
    assert (state.snapshot, state.messages_before, waiting(state)) == (None, 0, ["b"])
    assert (state.updated_at, state.executions, known_to(state, "first")[0]) == (moment(1), 1, "answered")


def test_a_clear_while_something_runs_forgets_at_its_end_once() -> None:
    state = cleared(running("queue", "b"), START)
    assert state.clearing
    state, command = begin(finish(state))
    assert command.start.snapshot is None
    assert command.start.previous_id is None
    state = finish(state)
    assert (state.snapshot, state.clearing) == (digest(2), False)


def test_a_change_of_a_part_leaves_the_rest_and_is_told_to_what_runs() -> None:
    state, commands = changed(running(), SessionChange(system_prompt="Shout."), START)
    assert state.definition == replace(DEFINITION, system_prompt="Shout.")
    assert only_told(commands) == DefinitionChange(definition=state.definition)


def test_a_change_of_the_budget_is_told_as_such() -> None:
    budget = ExecutionBudget(max_steps=3)
    state, commands = changed(running(), SessionChange(budget=budget), START)
    assert only_told(commands) == DefinitionChange(definition=state.definition, budget=budget)


def test_a_change_of_everything_takes_parts_on_top_and_other_subagents() -> None:
    other, helper = AgentDefinition(name="other"), AgentDefinition(name="helper")
    change = SessionChange(definition=other, subagents=(helper,), system_prompt="Whisper.")
    state, commands = changed(finish(running()), change, START)
    assert (state.definition, state.subagents) == (replace(other, system_prompt="Whisper."), (helper,))
    assert commands == ()
    assert begin(told(state, "b"))[1].subagents == (helper,)


def test_a_change_that_changes_nothing_is_not_told_and_the_policy_is_the_sessions_alone() -> None:
    state, commands = changed(running(), SessionChange(definition=DEFINITION, while_running="inject"), START)
    assert commands == ()
    assert state.settings.while_running == "inject"


def test_a_session_goes_back_only_when_nothing_runs_and_it_is_open() -> None:
    assert problem_with_rewinding(session()) is None
    kind, text = problem_with_rewinding(running()) or ("", "")
    assert (kind, execution_id(1) in text) == (SESSION_REFUSED, True)
    kind, _ = problem_with_rewinding(closed(session(), None, START)[0]) or ("", "")
    assert kind == SESSION_CLOSED


def test_an_execution_that_was_terminated_after_it_was_kept_counts_as_its_record_says() -> None:
    state, _ = sent(running(), said("extra", policy="inject"), START)
    assert state.turn is not None
    state = ended(state, end_as_recorded(state.turn, record(1), moment(2)))
    assert (state.snapshot, state.last_status, state.unanswered) == (digest(1), ExecutionStatus.STOPPED, ())
    assert waiting(state) == ["extra"], "nobody knows whether it was said"


def test_closing_has_what_executions_left_behind_wait_for_a_turn_of_its_own() -> None:
    state = finish(running(), TERMINATED, kept=False)
    assert (len(state.unanswered), waiting(state)) == (1, [])
    state, _ = closed(state, None, START)
    assert (state.unanswered, len(waiting(state)), state.is_over) == ((), 1, False)


def test_a_session_that_went_back_goes_on_from_there_and_says_where_it_stands() -> None:
    state = finish(begin(told(finish(running()), "b"))[0])
    assert state.place == Branch(agent_id=AGENT_ID, execution_id=execution_id(2))
    place = Branch(agent_id=AGENT_ID, execution_id=execution_id(1), steps=1)
    state = branched(state, place, Branched(snapshot=digest(1), messages_before=0), START)
    assert (state.view().place, state.last_id) == (place, execution_id(2))
    start = begin(told(state, "c"))[1].start
    assert (start.snapshot, start.messages_before, start.previous_id) == (digest(1), 0, execution_id(1))
    assert cleared(state, START).place is None


def test_a_session_that_was_terminated_goes_on_with_what_its_agents_latest_record_holds() -> None:
    latest = record(4)
    state = continued(session(), latest, moment(2))
    assert (state.snapshot, state.executions, state.last_id) == (digest(4), 4, execution_id(4))
    assert (state.last_status, state.last_stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    assert begin(told(state, "b"))[1].start.previous_id == execution_id(4)


def test_what_was_said_to_an_execution_that_left_nothing_is_said_again_with_the_next_message() -> None:
    state = finish(running(), TERMINATED, kept=False)
    assert (waiting(state), known_to(state, "first")) == ([], ("answered", execution_id(1)))
    assert next_turn(state, execution_id(2), START) == (state, ())
    state, command = begin(told(state, "b"))
    assert (spoken_to(command), known_to(state, "first")) == (["first", "b"], ("running", execution_id(2)))
    assert finish(state).unanswered == ()


def test_what_an_execution_took_and_could_not_keep_is_said_again_too() -> None:
    state = told(running("inject"), "b", "c")
    state = finish(state, ExecutionStatus.COMPLETED, taken=("first", "b"), kept=False)
    assert ([each.message_id for each in state.unanswered], waiting(state)) == (["first", "b"], ["c"])
    assert spoken_to(begin(state)[1]) == ["first", "b", "c"]


def test_an_execution_that_left_nothing_leaves_the_conversation_before_it_as_it_was() -> None:
    state = told(finish(begin(told(finish(running()), "b"))[0], TERMINATED, kept=False), "c")
    assert begin(state)[1].start.snapshot == digest(1)


def test_a_clear_forgets_what_was_said_to_executions_that_left_nothing() -> None:
    lost = finish(running(), TERMINATED, kept=False)
    assert cleared(lost, START).unanswered == ()
    assert finish(cleared(running(), START), TERMINATED, kept=False).unanswered == ()


def test_a_session_whose_executions_leave_nothing_is_bounded_and_resuming_it_makes_room() -> None:
    state, number = session(), 0
    while problem_with_message(state, said(str(number))) is None:
        state = finish(begin(told(state, str(number)))[0], TERMINATED, kept=False)
        number += 1
    assert number == len(state.unanswered) == QUEUE_MAX
    assert "resume" in refusal(state)[1]
    state = resumed(state, START)
    assert waiting(state) == [str(each) for each in range(QUEUE_MAX)]
    assert known_to(state, "7") == ("waiting", None)
    state, command = begin(state)
    assert spoken_to(command) == ["0"]
    assert problem_with_message(finish(state), said("new")) is None


def test_an_end_of_another_execution_than_the_one_under_way_changes_nothing() -> None:
    state = running()
    end = TurnEnd(
        execution_id=execution_id(9), status=ExecutionStatus.COMPLETED, stop_reason=None, snapshot=digest(9), at=START
    )
    assert ended(state, end) is state
    assert ended(session(), end) == session()


def test_a_session_shows_what_waits_what_ran_and_what_it_came_to() -> None:
    view = told(begin(told(finish(running()), "b"))[0], "c").view()
    assert (view.agent_id, view.status, view.executions) == (AGENT_ID, "running", 2)
    assert (view.running_id, view.last_id, view.waiting) == (execution_id(2), execution_id(1), ("c",))
    assert (view.snapshot, view.usage.output_tokens, view.cost) == (digest(1), 1, 0.5)
