"""What the model sees: sections, earlier executions' trace, cut outputs, compilers (docs/spec.md, section 7)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from holdfast.core.agent.context_view import Compiler, CompilerContext, ContextView, compiled, compiler
from holdfast.core.agent.policies import ContextPolicy
from holdfast.core.agent.state import facts_of
from holdfast.core.base.append_list import AppendList
from holdfast.core.base.errors import CompilerFailed, InvalidInput
from holdfast.core.conversation.messages import Message, MessageStore, Section, TextPart, ToolCall, pairing_problem
from tests.core.building import Run
from tests.core.building import call as asked
from tests.core.strategies import conversations

NOW, EARLIER = "now", "earlier"
ALL = ContextPolicy(view="all")
NAMES = ("summary", "buffer", "messages", "notes")


def user(text: str, execution: str = NOW) -> Message:
    return Message(role="user", content=text, metadata={"execution_id": execution})


def trace(call_id: str, execution: str, result: str = "3") -> tuple[Message, ...]:
    """Return a step that called one tool."""
    tags = {"execution_id": execution, "is_trace": True}
    asked = Message(role="assistant", tool_calls=(ToolCall(id=call_id, name="add"),), metadata=tags)
    return asked, Message(role="tool", content=result, tool_call_id=call_id, metadata=tags)


def final(text: str, execution: str) -> Message:
    return Message(role="assistant", content=text, metadata={"execution_id": execution})


def shown(store: MessageStore, policy: ContextPolicy) -> list[str]:
    return [message.text or message.role for message in compiled(store, policy, NOW)]


CONVERSATION = MessageStore().extended(
    user("One?", EARLIER), *trace("a", EARLIER), final("first", EARLIER), user("Two?"), *trace("b", NOW, "4")
)


def test_the_steps_of_earlier_executions_are_left_out_and_their_questions_and_answers_stay() -> None:
    assert shown(CONVERSATION, ContextPolicy()) == ["One?", "first", "Two?", "assistant", "4"]


def test_everything_is_shown_on_request() -> None:
    assert shown(CONVERSATION, ALL) == ["One?", "assistant", "3", "first", "Two?", "assistant", "4"]


def test_metadata_never_goes_to_the_model() -> None:
    assert all(message.metadata == {} for message in compiled(CONVERSATION, ALL, NOW))


def test_sections_are_shown_in_their_order_or_in_the_one_selected() -> None:
    store = MessageStore().with_section(Section(name="notes"))
    for name in NAMES:
        store = store.extended(user(name), section=name)
    assert shown(store, ContextPolicy()) == list(NAMES)
    assert shown(store, ContextPolicy(sections=("notes", "messages"))) == ["notes", "messages"]
    assert shown(store, ContextPolicy(sections=("notes", "absent"))) == ["notes"]
    assert shown(store, ContextPolicy(sections=())) == []


def test_long_tool_outputs_are_cut_and_the_cut_is_said() -> None:
    store = MessageStore().extended(user("u" * 200), *trace("a", NOW, "x" * 150), *trace("b", NOW, "y" * 100))
    said, _, cut, _, whole = compiled(store, ContextPolicy(tool_output_chars_max=100), NOW)
    assert len(cut.text) == 100
    assert cut.text.endswith("[cut: the first 100 of 150 characters]")
    assert cut.tool_call_id == "a"
    assert (said.text, whole.text) == ("u" * 200, "y" * 100)


def test_an_output_in_parts_is_cut_as_one_text() -> None:
    asked, answer = trace("a", NOW)
    parts = Message(
        role="tool", tool_call_id=answer.tool_call_id, content=(TextPart(text="x" * 80), TextPart(text="y" * 80))
    )
    (_, cut) = compiled(MessageStore().extended(asked, parts), ContextPolicy(tool_output_chars_max=100), NOW)
    assert cut.content == "x" * 61 + "\n[cut: the first 100 of 160 characters]"


def test_an_answer_shares_the_fate_of_its_call_whatever_its_tags_say() -> None:
    asked, answer = trace("a", EARLIER)
    untagged = Message(role="tool", content="3", tool_call_id="a")
    assert shown(MessageStore().extended(asked, untagged), ContextPolicy()) == []
    kept = Message(role="assistant", tool_calls=asked.tool_calls)
    assert shown(MessageStore().extended(kept, answer), ContextPolicy()) == ["assistant", "3"]


policies = st.builds(
    ContextPolicy,
    view=st.sampled_from(["current_trace", "all"]),
    sections=st.none() | st.lists(st.sampled_from(NAMES), unique=True, max_size=4).map(tuple),
    tool_output_chars_max=st.none() | st.just(100),
)
owners: st.SearchStrategy[dict[str, JsonValue]] = st.sampled_from([{}, *({"execution_id": x} for x in (NOW, EARLIER))])
traces: st.SearchStrategy[dict[str, JsonValue]] = st.sampled_from([{}, {"is_trace": True}, {"is_trace": False}])


@st.composite
def runs(draw: st.DrawFn) -> tuple[Message, ...]:
    """Draw a conversation whose messages carry tags of their own, and whose outputs may be long."""
    said = draw(conversations)
    long = draw(st.booleans())
    return tuple(
        message.model_copy(
            update={"content": "x" * 150 if long and message.role == "tool" else message.content}
        ).tagged(**draw(owners), **draw(traces))
        for message in said
    )


Change = Callable[[MessageStore], MessageStore]


def said_in(name: str, messages: tuple[Message, ...]) -> Change:
    return lambda store: store.extended(*messages, section=name) if store.has(name) else store


def put(name: str, messages: tuple[Message, ...]) -> Change:
    return lambda store: store.with_section(Section(name=name, messages=AppendList(messages)))


def moved_all(source: str, target: str) -> Change:
    def move(store: MessageStore) -> MessageStore:
        if source == target or not (store.has(source) and store.has(target)):
            return store
        return store.moved(len(store.section(source).messages), source, target)

    return move


names = st.sampled_from(NAMES)
changes = (
    st.builds(said_in, st.just("messages"), runs())
    | st.builds(said_in, names, runs())
    | st.builds(put, names, runs())
    | st.builds(moved_all, names, names)
)


@given(policies, st.lists(changes, max_size=5))
def test_a_view_kept_up_to_date_shows_what_compiling_anew_shows(policy: ContextPolicy, steps: list[Change]) -> None:
    store = MessageStore()
    view = ContextView.of(store, policy, NOW)
    for change in steps:
        before = tuple(view.messages)
        store = change(store)
        view = view.advanced(store)
        now = tuple(view.messages)
        assert now == compiled(store, policy, NOW)
        assert view.continues is (now[: len(before)] == before)
        assert pairing_problem(now) is None


@given(st.lists(runs(), max_size=3))
def test_messages_said_one_by_one_are_seen_as_if_said_at_once(said: list[tuple[Message, ...]]) -> None:
    store = MessageStore()
    view = ContextView.of(store, ContextPolicy(), NOW)
    for message in (message for run in said for message in run):
        store = store.extended(message)
        view = view.advanced(store)
        assert view.continues
    assert tuple(view.messages) == compiled(store, ContextPolicy(), NOW)


def test_a_view_of_a_store_that_only_grew_shares_what_was_shown_before() -> None:
    first = ContextView.of(CONVERSATION, ContextPolicy(), NOW)
    second = first.advanced(CONVERSATION.extended(final("second", NOW)))
    assert second.messages.continues(first.messages)
    assert second.continues
    assert not first.continues, "a first view continues nothing"
    assert [message.text for message in second.messages[len(first.messages) :]] == ["second"]


def test_a_view_says_when_the_beginning_has_changed() -> None:
    first = ContextView.of(CONVERSATION, ContextPolicy(), NOW)
    summary = Section(name="summary", messages=AppendList([user("what was said")]))
    second = first.advanced(CONVERSATION.with_section(summary))
    assert not second.continues
    assert second.messages[0].text == "what was said"
    assert second.advanced(CONVERSATION.with_section(summary)).continues


def latest(context: CompilerContext) -> Sequence[Message]:
    return context.messages[-1:]


def test_a_compiler_has_the_last_word() -> None:
    made = compiler(latest)
    assert (made.name, made.function) == ("latest", latest)
    assert made.apply(CompilerContext((user("a"), user("b")))) == (Message(role="user", content="b"),)
    assert compiler(name="the-last")(latest) == Compiler("the-last", latest)


def raising(context: CompilerContext) -> Sequence[Message]:
    raise RuntimeError(f"cannot read {len(context.messages)}")


def giving(value: object) -> Compiler:
    def give(_: CompilerContext) -> Sequence[Message]:
        return cast("Sequence[Message]", value)

    return Compiler("odd", give)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (Compiler("bad", raising), "the compiler 'bad' raised RuntimeError: cannot read 2"),
        (giving(None), "the compiler 'odd' gave a value of type 'NoneType'; return a list of messages"),
        (giving(iter(())), "type 'tuple_iterator'"),
        (giving("text"), "gave a 'str' among its messages"),
        (giving([user("a"), {"role": "user"}]), "gave a 'dict' among its messages"),
        (compiler(latest), "the compiler 'latest' gave what no provider takes: message 0: it answers the call 'a'"),
    ],
)
def test_a_compiler_that_fails_is_named_with_what_it_did(made: Compiler, why: str) -> None:
    with pytest.raises(CompilerFailed, match=re.escape(why)):
        made.apply(CompilerContext(tuple(trace("a", NOW))))


def test_a_compiler_needs_a_name_that_a_definition_can_hold() -> None:
    with pytest.raises(InvalidInput, match="'my compiler' cannot name a compiler"):
        compiler(name="my compiler")(latest)
    with pytest.raises(InvalidInput, match="'<lambda>' cannot name"):
        compiler(lambda context: context.messages)


def test_an_async_function_cannot_compile() -> None:
    async def waiting(context: CompilerContext) -> Sequence[Message]:
        return context.messages

    with pytest.raises(InvalidInput, match="'waiting' is async"):
        compiler(cast("Callable[[CompilerContext], Sequence[Message]]", waiting))


def test_a_compiler_is_told_the_errors_of_the_step_before() -> None:
    run = Run().begin().answer("", asked("a"), asked("b")).fails("a").returns("b")
    facts = facts_of(run.state, "tester")
    assert (facts.agent, facts.agent_id, facts.execution_count) == ("tester", run.state.agent_id, 1)
    assert (facts.step_number, facts.error_count) == (2, 1)
