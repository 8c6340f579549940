"""What the model sees of a conversation, as a function of the store and its policy (SPEC section 7). Asks no model."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast, overload

from holdfast.core.errors import CompilerFailed, InvalidInput
from holdfast.core.frozen import replace
from holdfast.core.log import Log
from holdfast.core.messages import NAME_PATTERN, Message, MessageStore, pairing_problem
from holdfast.core.policies import ContextPolicy
from holdfast.core.references import trimmed
from holdfast.core.texts import error_record

CompilerFunction = Callable[[Sequence[Message]], Sequence[Message]]


def compiled(store: MessageStore, policy: ContextPolicy, execution_id: str) -> tuple[Message, ...]:
    """Return the messages of `store` as the model sees them in that execution.

    Sections that `policy` names and the store lacks count as empty. A custom compiler is the driver's to apply
    (`Compiler.apply`).
    """
    return tuple(View.of(store, policy, execution_id).messages)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What `compiled` gives, kept up to date at the cost of what is new.

    `continues` says that everything the view before this one showed is still its beginning, so that only the rest
    needs to be sent; a first view continues nothing.
    """

    policy: ContextPolicy
    execution_id: str
    messages: Log[Message]
    continues: bool
    _sources: tuple[Log[Message], ...]
    _keeping: bool
    """Whether an answer that comes next belongs to calls that are shown."""

    @classmethod
    def of(cls, store: MessageStore, policy: ContextPolicy, execution_id: str) -> View:
        """Return the first view of `store`, in O(messages)."""
        sources = _sources(store, policy)
        seen: list[Message] = []
        keeping = True
        for source in sources:
            added, keeping = _seen(source, policy, execution_id, keeping=True)
            seen += added
        return cls(policy, execution_id, Log(seen), continues=False, _sources=sources, _keeping=keeping)

    def advanced(self, store: MessageStore) -> View:
        """Return the view of what the store has become.

        It costs what is new when the store only grew at the end of the last section shown, else O(messages).
        """
        sources = _sources(store, self.policy)
        if not _only_grew(self._sources, sources):
            anew = View.of(store, self.policy, self.execution_id)
            return dataclasses.replace(anew, continues=_begins_with(anew.messages, self.messages))
        added: list[Message] = []
        keeping = self._keeping
        if sources:
            new = sources[-1][len(self._sources[-1]) :]
            added, keeping = _seen(new, self.policy, self.execution_id, keeping=keeping)
        messages = self.messages.extend(added)
        return View(self.policy, self.execution_id, messages, continues=True, _sources=sources, _keeping=keeping)


def _sources(store: MessageStore, policy: ContextPolicy) -> tuple[Log[Message], ...]:
    """Return the sections to show, each once."""
    if policy.sections is None:
        return tuple(section.messages for section in store.sections)
    return tuple(store.section(name).messages for name in dict.fromkeys(policy.sections) if store.has(name))


def _only_grew(before: tuple[Log[Message], ...], now: tuple[Log[Message], ...]) -> bool:
    return (
        len(before) == len(now)
        and all(new.continues(old) for old, new in zip(before, now, strict=True))
        and all(len(new) == len(old) for old, new in zip(before[:-1], now[:-1], strict=True))
    )


def _begins_with(longer: Log[Message], beginning: Log[Message]) -> bool:
    return len(longer) >= len(beginning) and all(
        mine is theirs or mine == theirs for mine, theirs in zip(longer, beginning, strict=False)
    )


def _seen(
    messages: Iterable[Message], policy: ContextPolicy, execution_id: str, *, keeping: bool
) -> tuple[list[Message], bool]:
    """Return what is seen of `messages`, and whether the last of them is.

    An answer shares the fate of its call whatever its own tags say, so that the pairing holds.
    """
    seen: list[Message] = []
    for message in messages:
        if message.role != "tool":
            keeping = policy.view == "all" or not _is_foreign_trace(message, execution_id)
        if keeping:
            seen.append(_trimmed(message, policy.tool_output_chars_max))
    return seen, keeping


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

    def apply(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return what the function makes of `messages`, without metadata.

        Raises CompilerFailed, with the compiler's name, when the function raises, gives anything but a sequence of
        messages, or leaves a call without its answer or an answer without its call.
        """
        try:
            given: object = self.function(messages)
            found = _items(given)
        except Exception as error:
            record = error_record(error, self.name)
            raise CompilerFailed(f"the compiler {self.name!r} raised {record.type}: {record.message}") from error
        if found is None:
            kind = type(given).__name__
            raise CompilerFailed(f"the compiler {self.name!r} gave a value of type {kind!r}; return a list of messages")
        said = tuple(each for each in found if isinstance(each, Message))
        if len(said) < len(found):
            kind = next(type(each).__name__ for each in found if not isinstance(each, Message))
            raise CompilerFailed(f"the compiler {self.name!r} gave a {kind!r} among its messages; return only messages")
        if problem := pairing_problem(said):
            raise CompilerFailed(
                f"the compiler {self.name!r} gave what no provider takes: {problem}; keep calls and answers together"
            )
        return tuple(message.for_model() for message in said)


def _items(given: object) -> tuple[object, ...] | None:
    """Return what foreign code gave, if it is the sequence that it promised."""
    return tuple(cast("Sequence[object]", given)) if isinstance(given, Sequence) else None


@overload
def compiler(function: CompilerFunction, /) -> Compiler: ...
@overload
def compiler(*, name: str | None = None) -> Callable[[CompilerFunction], Compiler]: ...
def compiler(
    function: CompilerFunction | None = None, /, *, name: str | None = None
) -> Compiler | Callable[[CompilerFunction], Compiler]:
    """Make a compiler of a function from messages to messages, under its own name or `name`.

    Raises InvalidInput for an async function or a name that a definition cannot hold.
    """

    def decorate(target: CompilerFunction) -> Compiler:
        called = name or str(getattr(target, "__name__", ""))
        if NAME_PATTERN.fullmatch(called) is None:
            raise InvalidInput(f"{called!r} cannot name a compiler: use letters, digits, `_` and `-`, at most 64")
        if inspect.iscoroutinefunction(target):
            raise InvalidInput(f"the compiler {called!r} is async; make it a plain function, it must wait for nothing")
        return Compiler(called, target)

    return decorate if function is None else decorate(function)
