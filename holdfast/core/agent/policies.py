"""The policies of an agent: response formats, context and summaries, approval rules, errors."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from holdfast.core.base.argument_patterns import ArgumentPatterns, matches_all, matches_some
from holdfast.core.base.bounds import NAME_CHARS_MAX, PRICE_USD_MAX, SECONDS_MAX, TOOL_RESULT_CHARS_MAX
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.json_values import PortableMap
from holdfast.core.base.names import Name, Names, distinct

APPROVALS_MAX: Final = 64
"""The most approval rules of one agent: every call is held against them."""

CRITIQUE_ROUNDS_MAX: Final = 10
"""The most judgements of one run, whatever a definition says: an agent and its critic must not argue for ever."""

RUBRIC_CHARS_MAX: Final = 20_000
"""The longest rubric, in characters: the prompt of whoever judges by it."""

ErrorPolicy = Literal["recover", "fatal"]
"""`recover`: a tool's error goes back to the model, and a good answer after it is `completed`. `fatal`: a step with any
error is the last one, and the execution is `failed` (docs/spec.md, section 2)."""


class TextFormat(Frozen):
    """A text answer: any text is valid."""

    type: Literal["text"] = "text"


class JsonObjectFormat(Frozen):
    """An answer that is some JSON object."""

    type: Literal["json_object"] = "json_object"


class JsonSchemaFormat(Frozen):
    """An answer that is JSON as `json_schema` says (a JSON Schema). `strict` asks the provider to enforce it."""

    type: Literal["json_schema"] = "json_schema"
    name: Name = "answer"
    json_schema: PortableMap
    strict: bool = False


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]
"""The form of a final answer; we validate it, whatever the provider promises."""


class Critique(Frozen):
    """Who judges a final answer before it counts: another agent, or a model by a rubric (docs/capabilities.md).

    `rounds` is how many answers of a run are refused at the most: the last refusal stops the run. `unjudged` is
    what becomes of an answer whose judgement fails: it fails the run, or counts with a warning.
    """

    agent: Name | None = None
    rubric: str | None = Field(default=None, min_length=1, max_length=RUBRIC_CHARS_MAX)
    rounds: int = Field(default=2, ge=1, le=CRITIQUE_ROUNDS_MAX)
    unjudged: Literal["fail", "accept"] = "fail"

    @model_validator(mode="after")
    def _has_one_judge(self) -> Self:
        if (self.agent is None) is (self.rubric is None):
            raise ValueError("a critique is by an `agent` or a `rubric`; give one of them")
        return self


class Plan(Frozen):
    """Who plans for the capability `plan`: the agent of that name, or the agent's own model with a planner's prompt."""

    agent: Name | None = None


class SummaryPolicy(Frozen):
    """When old messages are replaced by a summary of them.

    Once a model call's input had more than `above_input_tokens` (the provider's own count), all but the latest
    `keep_messages` messages are moved to the section `buffer`, and the buffer is summarised into `summary`. A call is
    never parted from its results, so a few messages more may stay.
    """

    above_input_tokens: int = Field(gt=0)
    keep_messages: int = Field(default=20, ge=0)


class ContextPolicy(Frozen):
    """What the model is shown of the conversation (docs/spec.md, section 7).

    `view`: `current_trace` leaves out the steps that earlier executions took (their questions and final answers stay),
    `all` leaves out nothing. `sections` names the sections shown, in that order; all of them in their own order by
    default. `tool_output_chars_max` cuts every tool result. `images` shows the model the pictures that tools attach, in
    a message behind the results, and `files` their PDFs, sounds and texts; without that the model reads of them.
    `compiler` names a function of the worker's that has the last word (`holdfast.core.agent.context_view`).
    """

    view: Literal["current_trace", "all"] = "current_trace"
    sections: Names | None = None
    tool_output_chars_max: int | None = Field(default=None, ge=100, le=TOOL_RESULT_CHARS_MAX)
    compiler: Name | None = None
    summary: SummaryPolicy | None = None
    images: bool = Field(default=False, exclude_if=operator.not_)
    files: bool = Field(default=False, exclude_if=operator.not_)

    @model_validator(mode="after")
    def _shows_its_summaries(self) -> Self:
        shown = self.sections
        if self.summary is not None and shown is not None and not {"summary", "buffer"} <= set(shown):
            raise ValueError(
                "with `summary`, `sections` must name `summary` and `buffer`, or the model forgets what is old"
            )
        return self


Pattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_*?-]+$", max_length=NAME_CHARS_MAX)]
"""Names of tools: `*` stands for any characters, `?` for one."""


class ApprovalRule(Frozen):
    """Which tool calls wait for a person (`when: always`), or need not wait (`when: never`).

    A rule matches calls of tools that match one of `tools` (`*` and `?` stand for anything) and whose arguments match
    all of `arguments` (`holdfast.core.base.argument_patterns`): an argument that is missing matches nothing, and of one
    that holds several values a single one is enough for `always`, while `never` needs all of them, so that in doubt a
    person is asked. With `cost_above` it matches only calls of an execution that has cost more than that many US
    dollars so far, its subagents included, or whose cost is unknown because a price is missing.

    Rules are tried in order; the first match applies, and a call that matches none runs without approval.

    A pattern of `tools` holds what a name may hold, and `*` and `?`: any other character would match no tool and
    protect nothing. Without a decision after `expires_seconds` the call counts as denied; none means that it waits for
    as long as the execution may.
    """

    tools: Annotated[tuple[Pattern, ...], AfterValidator(distinct)] = Field(min_length=1)
    arguments: ArgumentPatterns = Field(default_factory=dict[str, str])
    when: Literal["always", "never"] = "always"
    cost_above: float | None = Field(default=None, ge=0, le=PRICE_USD_MAX)
    expires_seconds: float | None = Field(default=None, gt=0, le=SECONDS_MAX)

    @model_validator(mode="after")
    def _exempts_by_what_is_called_alone(self) -> Self:
        if self.when == "never" and self.expires_seconds is not None:
            raise ValueError("`never` requests no approval, so nothing can expire; leave out `expires_seconds`")
        if self.when == "never" and self.cost_above is not None:
            raise ValueError(
                "`never` with `cost_above` would ask until the money is spent; give `cost_above` to the rule that asks"
            )
        return self

    def names(self, tool: str) -> bool:
        """Return whether the rule can match calls of `tool`, judged by the name alone."""
        return any(fnmatchcase(tool, pattern) for pattern in self.tools)

    def concerns(self, tool: str, arguments: Mapping[str, JsonValue], cost: float | None) -> bool:
        """Return whether the rule matches this call; `cost` in US dollars, none if unknown."""
        if not self.names(tool):
            return False
        if self.cost_above is not None and cost is not None and cost <= self.cost_above:
            return False
        matches = matches_all if self.when == "never" else matches_some
        return matches(self.arguments, arguments)

    def hides(self, later: ApprovalRule) -> bool:
        """Return whether `later`, a rule after this one, could never apply to any call."""
        if self.arguments or self.cost_above is not None:
            return False
        return all(
            pattern in self.tools or "*" in self.tools or (not {"*", "?"} & set(pattern) and self.names(pattern))
            for pattern in later.tools
        )

    @property
    def expires(self) -> timedelta | None:
        """How long a decision is waited for."""
        return None if self.expires_seconds is None else timedelta(seconds=self.expires_seconds)


def reachable_rules(rules: tuple[ApprovalRule, ...]) -> tuple[ApprovalRule, ...]:
    """Return `rules`; raises ValueError for one that could never apply: hidden by another, or exempting from nothing.

    Whoever writes such a rule expects something that would not happen.
    """
    for number, rule in enumerate(rules):
        for earlier, other in enumerate(rules[:number]):
            if other.hides(rule):
                raise ValueError(f"rule {number} never decides: rule {earlier} comes first and matches all its calls")
    if rules and rules[-1].when == "never":
        raise ValueError("the last rule is `never`, but no later rule is left to exempt from; move or drop it")
    return rules


ApprovalRules = Annotated[tuple[ApprovalRule, ...], Field(max_length=APPROVALS_MAX), AfterValidator(reachable_rules)]
"""An agent's approval rules in the order in which they are tried."""
