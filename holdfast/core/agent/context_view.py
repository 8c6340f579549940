"""What the model sees: a function of the store and its policy (docs/spec.md, section 7). Asks no model."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, cast, overload

from pydantic import JsonValue

from holdfast.core.agent.policies import ContextPolicy
from holdfast.core.base.append_list import AppendList
from holdfast.core.base.errors import CompilerFailed, InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.base.json_form import SparseForm
from holdfast.core.base.truncation import trimmed
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.messages import (
    DEFAULT_SECTION,
    NAME_PATTERN,
    Message,
    MessageStore,
    Section,
    pairing_problem,
)

SECTION: Final = "holdfast.section"
"""The metadata key that carries a message's section to the compiler."""


class RunFacts(SparseForm):
    """Whose messages a compiler compiles, and when; with an agent that has one it travels with each model call.

    `step_number` is the step that the model is called for, from 1. `execution_count` counts the agent's executions,
    this one included, `error_count` the errors of the last completed step.
    """

    agent: str = ""
    agent_id: str = ""
    parent_agent_id: str | None = None
    execution_count: int = 1
    step_number: int = 0
    error_count: int = 0


NO_FACTS: Final = RunFacts()


@dataclass(frozen=True, slots=True)
class CompilerContext:
    """What a compiler sees. Messages carry their metadata here: execution, step, and your own tags.

    Attributes:
        messages: what the model would be shown without the compiler.
        sections: the sections that the policy shows, whole and in order, without empty ones.
        metadata: the agent's, merged with the run's.
        system_prompt: the agent's system prompt.
        execution_id: the execution under way.
        run: whose execution it is, and which step.
    """

    messages: tuple[Message, ...]
    sections: tuple[Section, ...] = ()
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    system_prompt: str = ""
    execution_id: str = ""
    run: RunFacts = NO_FACTS

    @classmethod
    def of(
        cls,
        view_messages: Iterable[Message],
        policy: ContextPolicy,
        execution_id: str,
        *,
        metadata: Mapping[str, JsonValue],
        system_prompt: str,
        run: RunFacts = NO_FACTS,
    ) -> CompilerContext:
        """Return the context for a view's messages, which are tagged with their sections."""
        messages: list[Message] = []
        sections: list[Section] = []
        for name, group in groupby(view_messages, key=_section_of):
            whole = [_without_section(message) for message in group]
            messages += _visible_messages(whole, policy, execution_id, visible=True, tagged=True)[0]
            sections.append(Section(name=name, messages=AppendList(whole)))
        return cls(tuple(messages), tuple(sections), metadata, system_prompt, execution_id, run)


CompilerFunction = Callable[[CompilerContext], Sequence[Message]]


def compiled(store: MessageStore, policy: ContextPolicy, execution_id: str) -> tuple[Message, ...]:
    """Return the messages of `store` as the model sees them in that execution.

    Sections that `policy` names and the store lacks count as empty. For a custom compiler these are the messages of its
    `CompilerContext`; the driver applies it (`Compiler.apply`).
    """
    return tuple(ContextView.of(store, policy, execution_id).messages)


def store_before_step(store: MessageStore, step_id: str) -> MessageStore:
    """Return the store with nothing but the default section's messages from before that step.

    It is empty when the step's own messages are gone.
    """
    step_ids = [message.metadata.get("step_id") for message in store.messages]
    for section in store.sections:
        if section.name != DEFAULT_SECTION:
            store = store.with_section(replace(section, messages=AppendList[Message]()))
    return store.shortened(step_ids.index(step_id) if step_id in step_ids else 0)


@dataclass(frozen=True, slots=True, eq=False)
class ContextView:
    """The result of `compiled`, updated at the cost of what is new.

    `continues` is true when this view starts with everything that the previous one showed, so that only the rest needs
    to be sent; false for a first view.
    """

    policy: ContextPolicy
    execution_id: str
    messages: AppendList[Message]
    continues: bool
    _sources: tuple[AppendList[Message], ...]
    _visible: bool
    """Whether tool results that come next belong to calls that are shown."""

    @classmethod
    def of(cls, store: MessageStore, policy: ContextPolicy, execution_id: str) -> ContextView:
        """Return the first view of `store`, in O(messages)."""
        sources = _sources(store, policy)
        shown: list[Message] = []
        visible = True
        for name, source in zip(_names(store, policy), sources, strict=True):
            added, visible = _shown(name, source, policy, execution_id, visible=True)
            shown += added
        return cls(policy, execution_id, AppendList(shown), continues=False, _sources=sources, _visible=visible)

    def advanced(self, store: MessageStore) -> ContextView:
        """Return the view of the store as it is now.

        Takes O(new messages) when the store only grew at the end of the last section shown, else O(messages).
        """
        sources = _sources(store, self.policy)
        if not _only_grew(self._sources, sources):
            view = ContextView.of(store, self.policy, self.execution_id)
            return dataclasses.replace(view, continues=_begins_with(view.messages, self.messages))
        added: list[Message] = []
        visible = self._visible
        if sources:
            new = sources[-1][len(self._sources[-1]) :]
            name = _names(store, self.policy)[-1]
            added, visible = _shown(name, new, self.policy, self.execution_id, visible=visible)
        messages = self.messages.extend(added)
        return ContextView(self.policy, self.execution_id, messages, continues=True, _sources=sources, _visible=visible)


def _sources(store: MessageStore, policy: ContextPolicy) -> tuple[AppendList[Message], ...]:
    """Return the sections to show, each once."""
    return tuple(store.section(name).messages for name in _names(store, policy))


def _names(store: MessageStore, policy: ContextPolicy) -> tuple[str, ...]:
    if policy.sections is None:
        return tuple(section.name for section in store.sections)
    return tuple(name for name in dict.fromkeys(policy.sections) if store.has(name))


def _shown(
    section: str, messages: Iterable[Message], policy: ContextPolicy, execution_id: str, *, visible: bool
) -> tuple[list[Message], bool]:
    """Return a section's `messages` as a view holds them; for a compiler all, tagged with the section's name."""
    if policy.compiler is None:
        return _visible_messages(messages, policy, execution_id, visible=visible)
    return [message.tagged(**{SECTION: section}) for message in messages], True


def _section_of(message: Message) -> str:
    return str(message.metadata[SECTION])


def _without_section(message: Message) -> Message:
    return replace(message, metadata={name: value for name, value in message.metadata.items() if name != SECTION})


def _only_grew(before: tuple[AppendList[Message], ...], now: tuple[AppendList[Message], ...]) -> bool:
    return (
        len(before) == len(now)
        and all(new.continues(old) for old, new in zip(before, now, strict=True))
        and all(len(new) == len(old) for old, new in zip(before[:-1], now[:-1], strict=True))
    )


def _begins_with(longer: AppendList[Message], beginning: AppendList[Message]) -> bool:
    return len(longer) >= len(beginning) and all(
        mine is theirs or mine == theirs for mine, theirs in zip(longer, beginning, strict=False)
    )


def _visible_messages(
    messages: Iterable[Message], policy: ContextPolicy, execution_id: str, *, visible: bool, tagged: bool = False
) -> tuple[list[Message], bool]:
    """Return the visible `messages`, and whether the last one is visible; `tagged` keeps their metadata.

    A tool result is visible exactly when its call is, whatever its own tags say, so that the pairing holds.
    """
    shown: list[Message] = []
    for message in messages:
        if message.role != "tool":
            visible = policy.view == "all" or not _is_foreign_trace(message, execution_id)
        if visible:
            trimmed_one = _trimmed(message, policy.tool_output_chars_max)
            shown.append(replace(trimmed_one, metadata=message.metadata) if tagged else trimmed_one)
    return shown, visible


def _is_foreign_trace(message: Message, execution_id: str) -> bool:
    if message.metadata.get("is_trace") is not True:
        return False
    return message.metadata.get("execution_id") not in (None, execution_id)


def _trimmed(message: Message, chars_max: int | None) -> Message:
    if chars_max is None or message.role != "tool" or len(message.text) <= chars_max:
        return message.for_model()
    return replace(message, content=trimmed(message.text, chars_max), metadata={})


@dataclass(frozen=True, slots=True)
class Compiler:
    """A function of the user's that has the last word on what the model sees. It must be pure and quick."""

    name: str
    function: CompilerFunction

    def apply(self, context: CompilerContext) -> tuple[Message, ...]:
        """Return what the function makes of `context`, without metadata.

        Raises CompilerFailed, with the compiler's name, when the function raises, gives anything but a sequence of
        messages, or leaves a call without its answer or an answer without its call.
        """
        try:
            value: object = self.function(context)
            items = _items(value)
        except Exception as error:
            record = error_record(error, self.name)
            raise CompilerFailed(f"the compiler {self.name!r} raised {record.type}: {record.message}") from error
        if items is None:
            kind = type(value).__name__
            raise CompilerFailed(f"the compiler {self.name!r} gave a value of type {kind!r}; return a list of messages")
        messages = tuple(each for each in items if isinstance(each, Message))
        if len(messages) < len(items):
            kind = next(type(each).__name__ for each in items if not isinstance(each, Message))
            raise CompilerFailed(f"the compiler {self.name!r} gave a {kind!r} among its messages; return only messages")
        if problem := pairing_problem(messages):
            raise CompilerFailed(
                f"the compiler {self.name!r} gave what no provider takes: {problem}; keep calls and answers together"
            )
        return tuple(message.for_model() for message in messages)


def _items(value: object) -> tuple[object, ...] | None:
    """Return the items of what user code returned; none when it is not a sequence."""
    return tuple(cast("Sequence[object]", value)) if isinstance(value, Sequence) else None


def messages_for_model(
    store: MessageStore,
    policy: ContextPolicy,
    compiler: Compiler | None,
    execution_id: str,
    *,
    metadata: Mapping[str, JsonValue],
    system_prompt: str,
    run: RunFacts = NO_FACTS,
) -> tuple[Message, ...]:
    """Return the messages of `store` that the model is sent, through `compiler` if there is one."""
    view = compiled(store, policy, execution_id)
    if compiler is None:
        return view
    context = CompilerContext.of(view, policy, execution_id, metadata=metadata, system_prompt=system_prompt, run=run)
    return compiler.apply(context)


@overload
def compiler(function: CompilerFunction, /) -> Compiler: ...
@overload
def compiler(*, name: str | None = None) -> Callable[[CompilerFunction], Compiler]: ...
def compiler(
    function: CompilerFunction | None = None, /, *, name: str | None = None
) -> Compiler | Callable[[CompilerFunction], Compiler]:
    """Make a compiler of a function from a CompilerContext to messages, under its own name or `name`.

    Raises InvalidInput for an async function or a name that a definition cannot hold.
    """

    def decorate(target: CompilerFunction) -> Compiler:
        label = name or str(getattr(target, "__name__", ""))
        if NAME_PATTERN.fullmatch(label) is None:
            raise InvalidInput(f"{label!r} cannot name a compiler: use letters, digits, `_` and `-`, at most 64")
        if inspect.iscoroutinefunction(target):
            raise InvalidInput(f"the compiler {label!r} is async; make it a plain function, it must wait for nothing")
        return Compiler(label, target)

    return decorate if function is None else decorate(function)
