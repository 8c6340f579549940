"""What is told of a session: each kind once for what it is about, and nothing where nothing has changed."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from holdfast.core.agent.definition import LLM
from holdfast.core.base.bounds import DETAILS_WORDS_CHARS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.session.event_derivation import session_events
from holdfast.core.session.session_state import (
    SessionState,
    branched,
    changed,
    cleared,
    closed,
    resumed,
    sent,
    stopped,
    suspended,
)
from holdfast.core.wire.contracts import StopRequest
from holdfast.core.wire.session_contracts import Branch, Branched, SessionChange
from holdfast.core.wire.session_events import (
    SESSION_KINDS,
    AnySessionEvent,
    MessageAccepted,
    SessionChanged,
    SessionClosed,
    SessionCreated,
    SessionForked,
    SessionResumed,
    SessionSuspended,
)
from tests.core.building import AGENT_ID, DEFINITION, START
from tests.core.sessions import begin, digest, execution_id, finish, running, said, session, told

RUN_ID = str(UUID(int=9))
LATER = START + timedelta(seconds=5)
ORIGIN = Branch(agent_id=str(UUID(int=77)), execution_id=execution_id(7), steps=2)


def events(before: SessionState | None, after: SessionState) -> list[AnySessionEvent]:
    return [*session_events(before, after, RUN_ID)]


def only(before: SessionState | None, after: SessionState) -> AnySessionEvent:
    [event] = events(before, after)
    return event


def test_a_new_session_is_created_and_a_fork_says_where_it_comes_from() -> None:
    new = session()
    created = SessionCreated(AGENT_ID, RUN_ID, DEFINITION.name, "", START)
    assert events(None, new) == [created]
    fork = branched(new, ORIGIN, Branched(snapshot=digest(7)), START)
    assert events(None, fork) == [created, SessionForked(AGENT_ID, RUN_ID, DEFINITION.name, "", START, origin=ORIGIN)]
    tenanted = replace(new, settings=replace(new.settings, tenant="acme"))
    assert only(None, tenanted).tenant == "acme"


def test_a_message_is_accepted_once_wherever_it_goes_and_is_told_by_its_beginning() -> None:
    before = session()
    state, _ = sent(before, said("m1", "two\nlines " + "x" * 5_000), LATER)
    event = only(before, state)
    assert isinstance(event, MessageAccepted)
    assert (event.message_id, event.chars, event.while_running, event.at) == ("m1", 5_010, "queue", LATER)
    assert event.excerpt.startswith("two lines xxx")
    assert len(event.excerpt) == DETAILS_WORDS_CHARS_MAX
    again, _ = sent(state, said("m1", "once more"), LATER)
    assert events(state, again) == []
    for policy in ("queue", "inject", "interrupt"):
        before = running()
        after, _ = sent(before, said("m2", policy=policy), LATER)
        event = only(before, after)
        assert isinstance(event, MessageAccepted)
        assert (event.message_id, event.while_running) == ("m2", policy)


def test_what_executions_do_with_messages_accepts_none_and_changes_nothing() -> None:
    waiting = told(session(), "first", "second")
    under_way, _ = begin(waiting)
    injected = told(under_way, said("third", policy="inject"))
    for ended in (finish(injected), finish(injected, taken=("third",)), finish(injected, kept=False)):
        assert events(waiting, under_way) == []
        assert events(injected, ended) == []
        again, _ = begin(ended)
        assert events(ended, again) == []
    left = finish(injected, kept=False)
    assert events(left, resumed(left, LATER)) == []
    told_to_stop, _ = stopped(injected, StopRequest(), LATER)
    assert events(injected, told_to_stop) == []


def test_a_change_names_what_is_another_now() -> None:
    before = session()
    asked = SessionChange(system_prompt="Be kind.", llm=LLM(model="other"), while_running="inject")
    after, _ = changed(before, asked, LATER)
    event = only(before, after)
    assert isinstance(event, SessionChanged)
    assert (event.changed, event.place) == (("system_prompt", "llm", "while_running"), None)
    assert events(after, changed(after, asked, LATER)[0]) == []
    renamed, _ = changed(
        before, SessionChange(definition=replace(DEFINITION, name="other"), subagents=(DEFINITION,)), LATER
    )
    event = only(before, renamed)
    assert isinstance(event, SessionChanged)
    assert (event.changed, event.agent) == (("definition", "subagents"), "other")


def test_going_back_and_forgetting_change_the_conversation_once() -> None:
    ended = finish(running())
    back = Branch(agent_id=AGENT_ID, execution_id=execution_id(1), steps=1)
    rewound = branched(ended, back, Branched(snapshot=digest(70)), LATER)
    event = only(ended, rewound)
    assert isinstance(event, SessionChanged)
    assert (event.changed, event.place) == (("conversation",), back)
    event = only(rewound, cleared(rewound, LATER))
    assert isinstance(event, SessionChanged)
    assert (event.changed, event.place) == (("conversation",), None)
    fresh = session()
    assert events(fresh, cleared(fresh, LATER)) == []
    under_way, _ = begin(told(ended, "second"))
    to_clear = cleared(under_way, LATER)
    event = only(under_way, to_clear)
    assert isinstance(event, SessionChanged)
    assert (event.changed, event.place) == (("conversation",), None)
    assert events(to_clear, finish(to_clear)) == []


def test_suspending_resuming_and_closing_are_told_once_each() -> None:
    before = running("queue", "waits")
    paused = suspended(before, LATER)
    event = only(before, paused)
    assert isinstance(event, SessionSuspended)
    assert event.running_id == execution_id(1)
    assert events(paused, suspended(paused, LATER)) == []
    going_on = only(paused, resumed(paused, LATER))
    assert isinstance(going_on, SessionResumed)
    assert going_on.waiting == 1
    over, _ = closed(paused, None, LATER)
    end = only(paused, over)
    assert isinstance(end, SessionClosed)
    assert (end.at_once, end.waiting) == (False, 1)
    at_once, _ = closed(before, StopRequest(), LATER)
    end = only(before, at_once)
    assert isinstance(end, SessionClosed)
    assert (end.at_once, end.waiting) == (True, 1)
    assert events(over, closed(over, StopRequest(), LATER)[0]) == []


def test_there_are_seven_kinds() -> None:
    assert [*SESSION_KINDS] == [
        "SessionCreated",
        "SessionForked",
        "MessageAccepted",
        "SessionChanged",
        "SessionSuspended",
        "SessionResumed",
        "SessionClosed",
    ]
