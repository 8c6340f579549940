"""What must come of a scenario, as its file says it under `expect:`, and how a run is judged by it. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.frozen import Frozen
from holdfast.core.conversation.messages import Role
from holdfast.core.conversation.steps import Outcome
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.testing.openai_server import RequestRecord

TOLD_CHARS_MAX = 300

Ending = tuple[ExecutionStatus, StopReason]
WireRole = Literal["system", "user", "assistant", "tool"]


def _exactly(value: object) -> object:
    return {"is": value} if isinstance(value, str) else value


class Text(Frozen):
    """What a text must be; several verbs must all hold. In a file, a plain string means `is`."""

    exactly: str | None = Field(default=None, alias="is")
    starts_with: str | None = None
    contains: str | None = None
    matches: str | None = None
    """A regular expression that fits somewhere in the text."""
    length: NonNegativeInt | None = None
    length_max: NonNegativeInt | None = None
    """In characters."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError(f"say at least one of {', '.join(TEXT_VERBS)}")
        return self

    def fits(self, text: str) -> bool:
        """Return whether every verb holds for `text`."""
        return (
            (self.exactly is None or text == self.exactly)
            and (self.starts_with is None or text.startswith(self.starts_with))
            and (self.contains is None or self.contains in text)
            and (self.matches is None or re.search(self.matches, text) is not None)
            and (self.length is None or len(text) == self.length)
            and (self.length_max is None or len(text) <= self.length_max)
        )


TEXT_VERBS = tuple(field.alias or name for name, field in Text.model_fields.items())


class Answer(Text):
    """The text that answers a tool call, or `repeat` equal ones."""

    repeat: PositiveInt = 1


class Shown(Frozen):
    """What the endpoint was really sent in its `request`-th request (from 1)."""

    request: PositiveInt
    messages: NonNegativeInt | tuple[WireRole, ...] | None = None
    """How many there are, or who said each, the system prompt included."""
    last: Annotated[Text, BeforeValidator(_exactly)] | None = None
    """The text of the last message."""
    anywhere: Annotated[Text, BeforeValidator(_exactly)] | None = None
    """The texts of all messages, one below the other."""
    output_tokens_max: PositiveInt | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set - {"request"}:
            raise ValueError("say what the request shows: messages, last, anywhere, output_tokens_max")
        return self


class Expected(Frozen):
    """The end and at least one thing more: no scenario passes by ending alone. What is left out may be anything."""

    ends: Ending
    """Status and stop reason."""
    final: Annotated[Text, BeforeValidator(_exactly)] | None = None
    """The final response; "" when there must be none."""
    steps: NonNegativeInt | None = None
    """How many steps were archived."""
    messages: NonNegativeInt | tuple[Role, ...] | None = None
    """How many the conversation holds in the end, or who said each."""
    answers: tuple[Annotated[Answer, BeforeValidator(_exactly)], ...] | None = None
    """The texts that answer the tool calls, all of them, in order."""
    outcomes: tuple[Outcome, ...] | None = None
    """How the tool calls ended, all of them, in order."""
    errors: tuple[Annotated[Text, BeforeValidator(_exactly)], ...] | None = None
    """`Type: message` of every error that is readable on the state, in order."""
    signals: tuple[StopReason, ...] | None = None
    """The reasons of all stop signals, in the order of their arrival."""
    tokens: NonNegativeInt | None = None
    """Tokens used, in and out."""
    cost_usd: NonNegativeFloat | None = None
    """What they cost."""
    metadata: Mapping[str, JsonValue] | None = None
    """Notes on the state that must be there; others may be."""
    shown: tuple[Shown, ...] | None = None
    warnings: tuple[Annotated[Text, BeforeValidator(_exactly)], ...] | None = None
    """The warnings on the state, all of them, in order."""
    observed: tuple[str, ...] | None = None
    """The names of all execution events (docs/spec.md, section 6) that a wiretap sees, in order; in-process only."""

    @model_validator(mode="after")
    def _says_more_than_its_end(self) -> Self:
        if not self.model_fields_set - {"ends"}:
            raise ValueError("expect something besides `ends`")
        return self


def disappointments(
    expected: Expected,
    state: AgentState,
    requests: Sequence[RequestRecord],
    observed: Sequence[str] | None = None,
) -> list[str]:
    """Return what is not as expected, one readable line each.

    `requests` are those of this run alone; `observed` are the names of its events, none where nobody listened.
    """
    roles = [message.role for message in state.messages]
    errors = [f"{error.type}: {error.message}" for error in state.errors]
    signals = [signal.reason for signal in state.execution.continuation.stop_signals] if state.execution else []
    return [
        *_other("ends", expected.ends, (state.status, state.stop_reason)),
        *_misfit("final", expected.final, state.final_response),
        *_other("steps", expected.steps, state.step_count),
        *_miscounted("messages", expected.messages, roles),
        *_misfits("answers", expected.answers, [each.text for each in state.messages if each.role == "tool"]),
        *_other("outcomes", expected.outcomes, _outcomes(state)),
        *_misfits("errors", expected.errors, errors),
        *_other("signals", expected.signals, tuple(signals)),
        *_other("tokens", expected.tokens, state.usage.total_tokens),
        *_other("cost_usd", expected.cost_usd, round(state.cost, 9)),
        *_misfits("warnings", expected.warnings, state.warnings),
        *_other("observed", expected.observed if observed is not None else None, tuple(observed or ())),
        *(
            line
            for name, value in (expected.metadata or {}).items()
            for line in _other(f"metadata.{name}", value, state.metadata.get(name, "(not there)"))
        ),
        *(line for shown in expected.shown or () for line in _misshown(shown, requests)),
    ]


def _outcomes(state: AgentState) -> tuple[Outcome, ...]:
    return tuple(execution.outcome for step in state.steps for execution in step.tool_executions)


def _other(what: str, wanted: object, found: object) -> Iterator[str]:
    if wanted is not None and wanted != found:
        yield f"{what}: wanted {_told(wanted)}, found {_told(found)}"


def _miscounted(what: str, wanted: int | tuple[str, ...] | None, found: Sequence[str]) -> Iterator[str]:
    return _other(what, wanted, len(found) if isinstance(wanted, int) else tuple(found))


def _misfit(what: str, wanted: Text | None, found: str) -> Iterator[str]:
    if wanted is not None and not wanted.fits(found):
        told = wanted.model_dump(by_alias=True, exclude_unset=True)
        yield f"{what}: wanted {_told(told)}, found {len(found):,} characters: {_told(found)}"


def _misfits(what: str, wanted: Sequence[Text] | None, found: Sequence[str]) -> Iterator[str]:
    if wanted is None:
        return
    each = [text for text in wanted for _ in range(text.repeat if isinstance(text, Answer) else 1)]
    if len(each) != len(found):
        yield f"{what}: wanted {len(each)}, found {len(found)}: {_told(found)}"
    for index, (text, said) in enumerate(zip(each, found, strict=False)):
        yield from _misfit(f"{what}[{index}]", text, said)


def _misshown(shown: Shown, requests: Sequence[RequestRecord]) -> Iterator[str]:
    what = f"shown in request {shown.request}"
    if len(requests) < shown.request:
        yield f"{what}: there were {len(requests)} requests"
        return
    body: dict[str, Any] = requests[shown.request - 1].body
    texts = [str(message.get("content") or "") for message in body["messages"]]
    yield from _miscounted(f"messages {what}", shown.messages, [message["role"] for message in body["messages"]])
    yield from _misfit(f"last {what}", shown.last, texts[-1])
    yield from _misfit(f"anywhere {what}", shown.anywhere, "\n".join(texts))
    yield from _other(f"output_tokens_max {what}", shown.output_tokens_max, body.get("max_completion_tokens"))


def _told(value: object) -> str:
    told = repr(value)
    return told if len(told) <= TOLD_CHARS_MAX else f"{told[:TOLD_CHARS_MAX]}..."
