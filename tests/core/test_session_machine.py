"""Random lives of a session: whatever comes, and however executions end, no acknowledged message is lost or doubled.

`HOLDFAST_FUZZ_RUNS` sets how many lives are tried, `HOLDFAST_FUZZ_SEED` repeats those of a seed that was printed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.bounds import QUEUE_MAX
from holdfast.core.base.frozen import canonical
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.core.session.event_derivation import session_events
from holdfast.core.session.session_state import (
    NotifyExecution,
    SessionCommand,
    SessionState,
    StartExecution,
    TurnEnd,
    branched,
    changed,
    cleared,
    closed,
    ended,
    may_begin,
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
from holdfast.core.wire.session_contracts import Branch, Branched, SessionChange, SessionMessage, WhileRunning
from holdfast.core.wire.session_events import MessageAccepted
from tests.core.building import AGENT_ID, START
from tests.core.sessions import OUTCOMES, digest, execution_id, message_id, said, session, waiting

RUNS = int(os.environ.get("HOLDFAST_FUZZ_RUNS", "60"))
PLACE = Branch(agent_id=AGENT_ID, execution_id=execution_id(0))
SEED = int(os.environ.get("HOLDFAST_FUZZ_SEED", str(random.SystemRandom().randrange(10**9))))

policies: st.SearchStrategy[WhileRunning | None] = st.sampled_from([None, "queue", "inject", "interrupt", "reject"])
rarely = st.integers(0, 4).map(lambda number: number == 4)


def ids(messages: Sequence[SessionMessage]) -> list[str]:
    return [each.message_id for each in messages]


class SimulatedExecution:
    """Takes what it is told when it comes to it; its conversation is what it began with and what it took."""

    def __init__(self, command: StartExecution, before: Sequence[str]) -> None:
        self.id = command.execution_id
        self.conversation = [*before, *map(message_id, command.start.messages)]
        self.said = [message_id(each) for each in command.start.messages]
        self.told: list[str] = []
        self.stops: list[StopMode] = []

    def take(self, number: int) -> None:
        self.said += self.told[:number]
        self.conversation += self.told[:number]
        self.told = self.told[number:]


class SessionMachine(RuleBasedStateMachine):
    """Senders, operators and executions around one session, and what each of them was told."""

    def __init__(self) -> None:
        super().__init__()
        self.state: SessionState = session()
        self.acknowledged: list[str] = []
        self.accepted: list[str] = []
        """Those that events have told of."""
        self.observed = self.state
        self.in_line: list[str] = []
        """Those that went to the end of the queue, as they came."""
        self.began: list[str] = []
        """Those of them whose turn has come."""
        self.forgotten: set[str] = set()
        """What a clear or a rewind took out of the conversation."""
        self.kept: dict[str, list[str]] = {}
        """What each snapshot holds."""
        self.execution: SimulatedExecution | None = None

    @initialize(policy=policies.filter(bool))
    def first(self, policy: WhileRunning) -> None:
        self.state = session(policy)

    @rule(sent=st.lists(policies, min_size=1, max_size=3))
    def several_send(self, sent: list[WhileRunning | None]) -> None:
        for policy in sent:
            self._send(policy)
        self.the_next_turn_begins()

    @rule(policy=policies)
    def somebody_sends(self, policy: WhileRunning | None) -> None:
        self._send(policy)

    def _send(self, policy: WhileRunning | None) -> None:
        message = said(str(len(self.acknowledged)), policy=policy)
        if problem_with_message(self.state, message) is not None:
            turn = self.state.turn
            unkept = (*self.state.queue, *self.state.unanswered, *((*turn.said, *turn.injected) if turn else ()))
            rejected = turn is not None and (policy or self.state.settings.while_running) == "reject"
            assert self.state.closing or rejected or len(unkept) == QUEUE_MAX
            return
        before = waiting(self.state)
        self._follow(sent(self.state, message, START))
        self.acknowledged.append(message.message_id)
        if waiting(self.state) == [*before, message.message_id]:
            self.in_line.append(message.message_id)

    @precondition(lambda self: self.acknowledged)
    @rule(data=st.data(), policy=policies)
    def somebody_sends_again(self, data: st.DataObject, policy: WhileRunning | None) -> None:
        message = said(data.draw(st.sampled_from(self.acknowledged)), "once more", policy)
        assert problem_with_message(self.state, message) is None
        assert sent(self.state, message, START) == (self.state, ())

    @rule()
    def the_next_turn_begins(self) -> None:
        before = self.state
        self._follow(next_turn(before, execution_id(before.executions + 1), START))
        may = before.turn is None and not before.suspended and bool(before.queue) and not before.at_once
        assert may_begin(before) == may == (before is not self.state)

    @precondition(lambda self: self.execution and self.execution.told)
    @rule(number=st.integers(1, 3))
    def the_execution_takes_messages(self, number: int) -> None:
        assert self.execution is not None
        self.execution.take(number)

    @precondition(lambda self: self.execution)
    @rule(status=st.sampled_from(list(OUTCOMES)))
    def the_execution_ends(self, status: ExecutionStatus) -> None:
        self._end(status)
        self.the_next_turn_begins()

    @precondition(lambda self: self.execution)
    @rule(how=st.sampled_from(["terminated", "not kept"]))
    def the_execution_leaves_nothing(self, how: str) -> None:
        """Nobody knows what a terminated one took; of one whose record could not be written the result tells."""
        assert self.execution is not None
        taken = tuple(self.execution.said) if how == "not kept" else ()
        self._end(ExecutionStatus.FAILED, taken=taken, leaves=False)

    @precondition(lambda self: self.execution)
    @rule(mode=st.sampled_from(["now", "after_step"]))
    def somebody_stops(self, mode: StopMode) -> None:
        self._follow(stopped(self.state, StopRequest(mode=mode), START))
        assert self.execution is not None
        assert {"now", mode} & {*self.execution.stops}

    @rule(prompt=st.sampled_from(["Be brief.", "Be kind."]), policy=policies)
    def somebody_changes_the_agent(self, prompt: str, policy: WhileRunning | None) -> None:
        self._follow(changed(self.state, SessionChange(system_prompt=prompt, while_running=policy), START))
        assert self.state.definition.system_prompt == prompt

    @rule(chance=rarely)
    def somebody_suspends(self, *, chance: bool) -> None:
        if chance:
            self.state = suspended(self.state, START)

    @rule()
    def somebody_resumes(self) -> None:
        self.state = resumed(self.state, START)

    @rule(chance=rarely)
    def somebody_clears(self, *, chance: bool) -> None:
        if chance:
            if self.state.turn is None:
                self.forgotten |= {*self._conversation, *ids(self.state.unanswered)}
            self.state = cleared(self.state, START)

    @rule(chance=rarely, certainly=rarely, at_once=st.booleans())
    def somebody_closes(self, *, chance: bool, certainly: bool, at_once: bool) -> None:
        if chance and certainly:
            self._follow(closed(self.state, StopRequest() if at_once else None, START))

    @precondition(lambda self: self.kept and not self.execution)
    @rule(data=st.data(), chance=rarely)
    def somebody_rewinds(self, data: st.DataObject, *, chance: bool) -> None:
        if problem_with_rewinding(self.state) is not None:
            assert self.state.closing
            return
        if not chance:
            return
        place = data.draw(st.sampled_from(sorted(self.kept)))
        self.forgotten |= set(self._conversation)
        self.state = branched(self.state, PLACE, Branched(snapshot=place), START)
        self.forgotten -= set(self._conversation)

    @rule()
    def the_session_goes_on_in_a_new_run(self) -> None:
        again = SessionState.model_validate_json(canonical(self.state))
        assert again == self.state
        self.state = again

    @invariant()
    def what_was_acknowledged_is_in_one_place_and_nowhere_else(self) -> None:
        turn = self.state.turn
        places = [*self._conversation, *waiting(self.state), *ids(self.state.unanswered)]
        if turn is not None:
            places += ids(turn.said) + ids(turn.injected)
        assert sorted([*places, *self.forgotten]) == sorted(self.acknowledged)

    @invariant()
    def each_message_was_accepted_by_one_event(self) -> None:
        events = session_events(self.observed, self.state, execution_id(0))
        self.accepted += [each.message_id for each in events if isinstance(each, MessageAccepted)]
        self.observed = self.state
        assert sorted(self.accepted) == sorted(self.acknowledged)

    @invariant()
    def what_waits_in_line_has_its_turn_in_order(self) -> None:
        in_line = [each for each in self.in_line if each not in self.began]
        again = {*self.began, *self.acknowledged} - set(in_line)
        assert [each for each in waiting(self.state) if each not in again] == in_line
        assert self.began == self.in_line[: len(self.began)]

    @invariant()
    def everybody_is_told_where_their_message_is(self) -> None:
        running_id = self.execution.id if self.execution else None
        for each in self.acknowledged:
            found = receipt(self.state, each)
            assert found is not None
            assert found.running_id == running_id
            if each in waiting(self.state):
                assert (found.state, found.execution_id) == ("waiting", None)
                assert found.ahead == waiting(self.state).index(each)
            elif self.execution and each in [*self.execution.said, *self.execution.told]:
                assert (found.state, found.execution_id) == ("running", running_id)
            else:
                assert found.state == "answered"
                assert found.execution_id not in (None, running_id)

    @invariant()
    def an_execution_runs_when_the_session_says_so(self) -> None:
        running_id = self.execution.id if self.execution else None
        assert self.state.view().running_id == running_id
        assert (self.state.status == "running") == (self.execution is not None)

    @invariant()
    def an_execution_is_stopped_once_and_sooner_at_most(self) -> None:
        if self.execution is not None:
            assert self.execution.stops in ([], ["now"], ["after_step"], ["after_step", "now"])

    def teardown(self) -> None:
        """Faults end and nothing is held back: all that was acknowledged comes into the conversation."""
        if self.execution:
            self._end(ExecutionStatus.COMPLETED)
        self.state = resumed(self.state, START)
        while may_begin(self.state):
            self.the_next_turn_begins()
            self._end(ExecutionStatus.COMPLETED)
            self.what_was_acknowledged_is_in_one_place_and_nowhere_else()
        kept = waiting(self.state)
        assert self.state.at_once or not kept
        assert sorted([*self._conversation, *self.forgotten, *kept]) == sorted(self.acknowledged)
        assert {*self.in_line} - {*self.began} <= {*kept}
        assert self.state.is_over == self.state.closing

    @property
    def _conversation(self) -> list[str]:
        return self.kept[self.state.snapshot] if self.state.snapshot else []

    def _end(self, status: ExecutionStatus, taken: tuple[str, ...] | None = None, *, leaves: bool = True) -> None:
        execution, self.execution = self.execution, None
        assert execution is not None
        clearing, before, snapshot = self.state.clearing, self._conversation, digest(len(self.kept) + 1)
        if leaves:
            self.kept[snapshot] = execution.conversation
        end = TurnEnd(
            execution_id=execution.id,
            status=status,
            stop_reason=OUTCOMES[status],
            snapshot=snapshot if leaves else None,
            taken=tuple(execution.said) if taken is None else taken,
            at=START,
        )
        self.state = ended(self.state, end)
        if clearing:
            assert self.state.snapshot is None
            self.forgotten |= {*before, *execution.said, *execution.told} - set(waiting(self.state))

    def _follow(self, transition: tuple[SessionState, tuple[SessionCommand, ...]]) -> None:
        before = self._conversation
        self.state, commands = transition
        for command in commands:
            match command:
                case StartExecution():
                    assert self.execution is None
                    assert command.start.snapshot == self.state.snapshot
                    self.execution = SimulatedExecution(command, before)
                    newest = self.execution.said[-1]
                    if newest in self.in_line and newest not in self.began:
                        self.began.append(newest)
                case NotifyExecution(payload=told):
                    assert self.execution is not None
                    self._tell(self.execution, told)

    @staticmethod
    def _tell(execution: SimulatedExecution, told: Message | StopRequest | DefinitionChange) -> None:
        match told:
            case Message():
                execution.told.append(message_id(told))
            case StopRequest():
                execution.stops.append(told.mode)
            case DefinitionChange():
                pass


@pytest.mark.hypothesis
@pytest.mark.timeout(3_600)
def test_whatever_happens_no_acknowledged_message_is_lost_or_doubled() -> None:
    print(f"{RUNS} lives with HOLDFAST_FUZZ_SEED={SEED}")  # noqa: T201  # a random test tells its seed
    run_state_machine_as_test(
        seed(SEED)(SessionMachine),
        settings=settings(
            max_examples=RUNS,
            deadline=None,
            stateful_step_count=80,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
