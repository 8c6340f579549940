"""Stop reasons and stop signals, and which of them decide (docs/spec.md, section 4).

A request counts as granted while every signal there is may be overridden, at most `max_overrides` times (OverrideRule).
It lets one step run: the one under way, or the next one where the step was evaluated.

Should the loop stop? The first row that holds decides (`Continuation.should_stop`):

    1  there is a signal and no granted continuation request   stop
    2  a continuation request is granted                       go on
    3  the step asked for tools, or more is to be answered     go on
    4  otherwise                                               stop
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, AwareDatetime, Field, JsonValue
from pydantic_core import to_json

from holdfast.core.base.bounds import REASON_CHARS_MAX, SOURCE_CHARS_MAX
from holdfast.core.base.frozen import Frozen, replace
from holdfast.core.base.json_form import JsonForm
from holdfast.core.base.json_values import JsonMap, ShallowMap

STOP_CONTEXT_BYTES_MAX: Final = 2_000
"""The most that a hook, a tool or a client can add to a stop signal, as JSON."""

StopMode = Literal["now", "after_step"]
"""`now` cancels what is in flight; `after_step` lets the step finish first."""


class StopReason(StrEnum):
    """Why an execution stops: each reason with its rank (the lowest has most authority), if forced and if overridable.

    A forced one makes the execution `stopped` (`error`: `failed`) instead of `completed`. An overridable one is one
    that a hook's continuation request may override, unless the definition says otherwise.
    """

    rank: int
    forced: bool
    overridable: bool

    def __new__(cls, value: str, *traits: Any) -> Self:  # noqa: ANN401  # mypy takes `StopReason(value)` for a call of it
        """Make the member of that value; `traits` are the three above."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.rank, member.forced, member.overridable = traits
        return member

    ERROR = "error", 0, True, False
    STOP_REQUESTED = "stop_requested", 1, True, True
    STEPS_LIMIT = "steps_limit", 2, True, True
    TOKEN_LIMIT = "token_limit", 3, True, False
    COST_LIMIT = "cost_limit", 3, True, False
    TIME_LIMIT = "time_limit", 4, True, False
    RETRY_LIMIT = "retry_limit", 5, True, True
    FINISH_REASON = "finish_reason", 6, False, True
    USER_REQUESTED = "user_requested", 7, True, False
    COMPLETED = "completed", 8, False, True
    UNKNOWN = "unknown", 9, True, True

    # the long names of the specification, for the same members
    ERROR_FORBADE = ERROR
    STEPS_LIMIT_REACHED = STEPS_LIMIT
    TOKEN_LIMIT_REACHED = TOKEN_LIMIT
    COST_LIMIT_REACHED = COST_LIMIT
    TIME_LIMIT_REACHED = TIME_LIMIT
    RETRY_LIMIT_REACHED = RETRY_LIMIT
    FINISH_REASON_RECEIVED = FINISH_REASON

    @classmethod
    def named(cls, name: str) -> StopReason:
        """Return the reason of that value; UNKNOWN for a word that is none of ours."""
        return cls(name) if name in set(cls) else cls.UNKNOWN


OVERRIDABLE: Final = tuple(reason for reason in StopReason if reason.overridable)
"""What a continuation request may override unless the definition says otherwise: all but the hard reasons."""


@dataclass(frozen=True, slots=True)
class OverrideRule:
    """Which reasons a hook's continuation request may override, and how often in one execution."""

    reasons: tuple[StopReason, ...] = OVERRIDABLE
    times_max: int = 3


def _small(values: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    if (size := len(to_json(values))) > STOP_CONTEXT_BYTES_MAX:
        raise ValueError(f"it takes {size:,} bytes as JSON; at most {STOP_CONTEXT_BYTES_MAX:,} go with a stop")
    return values


StopContext = Annotated[ShallowMap, AfterValidator(_small)]
"""What a hook, a tool or a client adds to a stop: a JSON object of at most STOP_CONTEXT_BYTES_MAX."""


class StopSignal(JsonForm):
    """One request to stop: why, from whom, when, and the facts behind it.

    `context` has the facts: of a limit `limit`, `used`, `allowed`; of a hook `hook`; of a tool `tool`, `call_id`; of
    somebody outside `caller`; of an error `error` and the `tool` or `hook` that raised it; and what those have added.
    """

    reason: StopReason
    message: str = Field(default="", max_length=REASON_CHARS_MAX)
    source: str = Field(default="", max_length=SOURCE_CHARS_MAX)
    at: AwareDatetime
    context: JsonMap = Field(default_factory=dict[str, JsonValue])

    @classmethod
    def requested(
        cls, message: str, source: str, at: datetime, context: Mapping[str, JsonValue] | None = None
    ) -> StopSignal:
        """Return the signal of a stop requested from outside; `context` is what the requester adds."""
        facts = {**(context or {}), "caller": source}
        return cls(reason=StopReason.USER_REQUESTED, message=message, source=source, at=at, context=facts)


class Continuation(Frozen):
    """All stop signals of an execution, oldest first, and whether a hook asked to continue regardless.

    `overrides` counts the steps that run only because one did. `overriding` is true when the step under way is one
    of them, in spite of the first `overridden` signals: those stop the loop again when that step is evaluated.
    """

    stop_signals: tuple[StopSignal, ...] = ()
    continuation_requested: bool = False
    overrides: int = Field(default=0, ge=0)
    overriding: bool = False
    overridden: int = Field(default=0, ge=0)

    @property
    def highest(self) -> StopSignal | None:
        """The most authoritative signal; among equals the earliest."""
        return min(self.stop_signals, key=lambda signal: signal.reason.rank, default=None)

    def with_signal(self, signal: StopSignal) -> Continuation:
        """Return this continuation with one signal more."""
        return replace(self, stop_signals=(*self.stop_signals, signal))

    def granted(self, rule: OverrideRule) -> bool:
        """Return whether a continuation was requested and `rule` lets it hold against every signal there is."""
        if not self.continuation_requested or self.overrides >= rule.times_max:
            return False
        return self._overridable(rule)

    def should_stop(self, *, more_to_do: bool, rule: OverrideRule = OverrideRule()) -> bool:
        """Apply the table at the top of this file at the end of a step; `more_to_do` is its third row."""
        if self.granted(rule):
            return False
        return bool(self.stop_signals) or not more_to_do

    @property
    def standing(self) -> tuple[StopSignal, ...]:
        """The signals in spite of which the step under way must not go on, unless a request is granted."""
        return self.stop_signals[self.overridden :]

    def forbids(self, rule: OverrideRule) -> bool:
        """Return whether the loop must stop before the step under way is complete."""
        if not self.standing:
            return False
        return not (self.granted(rule) or (self.overriding and self.continuation_requested and self._overridable(rule)))

    def overriding_now(self) -> Continuation:
        """Return this continuation with the step under way counted, once however often a stop is overridden in it."""
        count = self.overrides if self.overriding else self.overrides + 1
        return replace(self, overrides=count, overriding=True, overridden=len(self.stop_signals))

    def after_step(self, *, overridden: bool = False) -> Continuation:
        """Return what the next step begins with: the signals, but no request.

        When it runs only because a request was granted (`overridden`), it counts, and present signals do not stop it.
        """
        if overridden:
            return replace(self, continuation_requested=False, overriding=False).overriding_now()
        if not (self.continuation_requested or self.overriding):
            return self
        return replace(self, continuation_requested=False, overriding=False, overridden=0)

    def _overridable(self, rule: OverrideRule) -> bool:
        return all(signal.reason in rule.reasons for signal in self.stop_signals)

    def describe(self) -> str:
        """Return one readable line."""
        if not self.stop_signals:
            return "continuation requested" if self.continuation_requested else "no stop signal"
        text = "; ".join(f"{s.reason}: {s.message}" if s.message else str(s.reason) for s in self.stop_signals)
        return f"{text} (continuation requested)" if self.continuation_requested else text
