"""What an agent is: its prompt, model, tools, rules and limits, as one value. `client.definition_files` reads files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Protocol, cast

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, ValidationInfo, field_validator, model_validator
from pydantic_core import to_json

from holdfast.core.agent.budget import BudgetPolicy, ExecutionBudget
from holdfast.core.agent.policies import (
    ApprovalRules,
    ContextPolicy,
    Critique,
    ErrorPolicy,
    Plan,
    ResponseFormat,
    TextFormat,
)
from holdfast.core.agent.tool_selection import HookChoice, ToolChoice, named
from holdfast.core.base.bounds import DEPTH_MAX, FALLBACKS_MAX, OUTPUT_TOKENS_MAX, SECONDS_MAX, WORD_CHARS_MAX
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import Frozen, is_empty, is_none, replace
from holdfast.core.base.json_values import PortableMap
from holdfast.core.base.model_options import (
    ExtraBody,
    ReasoningEffort,
    Seed,
    ServiceTier,
    StopTexts,
    Verbosity,
)
from holdfast.core.base.names import Name, Names, distinct
from holdfast.core.base.retries import MODEL_PATIENCE_SECONDS
from holdfast.core.base.server_tools import ServerTools
from holdfast.core.base.usage import Prices
from holdfast.core.conversation.model_call_changes import MODEL_FACTS, ModelCallChanges
from holdfast.core.conversation.questions import ANSWER_SECONDS, is_usual_wait
from holdfast.core.conversation.stop_reasons import OVERRIDABLE, StopReason
from holdfast.core.tools.code_mode import CodeMode
from holdfast.core.tools.mcp_servers import SERVERS_MAX, McpChoice, server_name
from holdfast.core.tools.workspace_profile import WORKSPACE, WorkspaceProfile

OVERRIDES_MAX: Final = 100
"""The most stops of one execution that hooks may override, whatever a definition says: nothing loops for ever."""

REASKS_MAX: Final = 10
"""The most re-asks after answers in the wrong format, whatever a definition says."""

PLAN: Final = "plan"
"""The capability that has a plan made."""

CAPABILITIES_MAX: Final = 64
"""The most capabilities one agent may name."""

SUBAGENTS_MAX: Final = 64
"""The most agents one agent may call by name."""

HANDOFFS_MAX: Final = 64
"""The most agents that one agent may hand the conversation to."""

MODEL_PATIENCE_SECONDS_MAX: Final = 24 * 3600
"""The longest that a model call is retried: every attempt that costs tokens writes a few events."""


class Named(Protocol):
    """Anything with a name: a tool, a hook, another agent's definition."""

    @property
    def name(self) -> str:
        """The name that a definition lists."""
        ...


def name_of(value: str | Named) -> str:
    """Return a name as it is, and the name of what has one. Raises InvalidInput for what has none."""
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if not isinstance(name, str):
        raise InvalidInput(f"{repr(value)[:80]} has no name; write @tool above a function, * before a list")
    return name


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it holds characters that are not valid Unicode (lone surrogates)") from None
    return text


def _distinct_servers(servers: tuple[McpChoice, ...]) -> tuple[McpChoice, ...]:
    distinct(tuple(map(server_name, servers)))
    return servers


Text = Annotated[str, AfterValidator(_encodable)]
"""A text that can travel."""

Word = Annotated[str, Field(min_length=1, max_length=WORD_CHARS_MAX)]


class FallbackRoute(Frozen):
    """A model that answers where those before it cannot; what is known of it, as `LLM` has it for the first one."""

    model: str = Field(min_length=1, max_length=200)
    prices: Prices | None = Field(default=None, exclude_if=is_none)
    context_window: int | None = Field(default=None, gt=0, exclude_if=is_none)
    longest_answer: int | None = Field(default=None, gt=0, exclude_if=is_none)


def _fallback_route(value: object) -> object:
    return {"model": value} if isinstance(value, str) else value


FallbackChoice = Annotated[FallbackRoute, BeforeValidator(_fallback_route, json_schema_input_type=str | FallbackRoute)]
"""A route to fall back to; its name is enough."""


class LLM(Frozen):
    """Which model answers and how; without `model` it is the worker's HOLDFAST_MODEL.

    `stream` has the answer arrive in pieces, so that silence is noticed early and a stopped call keeps part of it;
    turn it off for a server that refuses it.

    Address and key are the worker's environment and never travel. `prices` are what its tokens cost; without them
    `max_cost` limits nothing, which the state says as a warning.

    The options from `top_p` on are sent only where they are set. `tool_choice` is `auto`, `none`, `required` or the
    name of a tool; one that forces a call holds for the first step of a run, and later ones are free. `strict` has the
    provider hold tool calls to their schemas, of those tools whose schemas allow it. `extra` are further fields of the
    request's body. With `background` the provider stores each answer and makes it whatever becomes of the connection: a
    lost worker's call is resumed, not paid for again. `server_tools` are tools that the provider runs itself within a
    model call; no other is asked for. An API that does not know an option refuses the agent before it runs.
    `context_window` is how many tokens of input and answer the model takes together, `longest_answer` how many it can
    answer with: no call is allowed more. Both are by default what the worker knows of the model.

    `fallback` are the models that a step asks in turn when the one before is away, overloaded or out of quota. The next
    step begins with `model` again.
    """

    model: str | None = Field(default=None, min_length=1, max_length=200)
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_output_tokens: int | None = Field(default=None, gt=0)
    stream: bool = True
    prices: Prices | None = None
    top_p: float | None = Field(default=None, ge=0, le=1, exclude_if=is_none)
    reasoning_effort: ReasoningEffort | None = Field(default=None, exclude_if=is_none)
    verbosity: Verbosity | None = Field(default=None, exclude_if=is_none)
    stop: StopTexts | None = Field(default=None, exclude_if=is_none)
    seed: Seed | None = Field(default=None, exclude_if=is_none)
    tool_choice: Name | None = Field(default=None, exclude_if=is_none)
    parallel_tool_calls: bool | None = Field(default=None, exclude_if=is_none)
    strict: bool | None = Field(default=None, exclude_if=is_none)
    service_tier: ServiceTier | None = Field(default=None, exclude_if=is_none)
    extra: ExtraBody | None = Field(default=None, exclude_if=is_none)
    background: bool | None = Field(default=None, exclude_if=is_none)
    server_tools: ServerTools = Field(default=(), exclude_if=is_empty)
    context_window: int | None = Field(default=None, gt=0, exclude_if=is_none)
    longest_answer: int | None = Field(default=None, gt=0, exclude_if=is_none)
    fallback: tuple[FallbackChoice, ...] = Field(default=(), max_length=FALLBACKS_MAX, exclude_if=is_empty)

    @property
    def output_bound(self) -> int:
        """The longest answer that one call is allowed, in tokens; no more than the model can give."""
        asked = self.max_output_tokens or self.longest_answer or OUTPUT_TOKENS_MAX
        return min(asked, self.longest_answer or asked)

    def known(
        self, prices: Prices | None, window: int | None, longest: int | None, fallback: tuple[FallbackRoute, ...]
    ) -> LLM:
        """Return the settings with what is known of their model and of each fallback, where they do not say it."""
        facts = {"prices": prices, "context_window": window, "longest_answer": longest}
        facts = {name: getattr(self, name) or fact for name, fact in facts.items()}
        both = replace(self, **facts, fallback=fallback)
        return self if both == self else both

    def after(self, fallbacks: int) -> LLM:
        """Return the settings for the call after so many `fallbacks` of its step: that route's.

        A definition that has changed since may have fewer of them.
        """
        if not fallbacks or not self.fallback:
            return self
        route = self.fallback[min(fallbacks, len(self.fallback)) - 1]
        return replace(self, model=route.model, **{name: getattr(route, name) for name in MODEL_FACTS})

    def changed_by(self, changes: ModelCallChanges | None) -> LLM:
        """Return the settings for a call with these `changes`; what it falls back to does not ask that model twice.

        Raises ValueError (a ValidationError) for an option that is none, or has a wrong value.
        """
        if changes is None:
            return self
        changed = replace(self, **_option_values(changes.options)) if changes.options else self
        if changes.tools is not None and changed.server_tools:
            offered = tuple(tool for tool in changed.server_tools if tool.name in changes.tools)
            changed = replace(changed, server_tools=offered)
        same = changes.model in (None, self.model)
        known = {name: getattr(changes, name) for name in MODEL_FACTS}
        routes = self.fallback
        if anew := changes.fallback_prices:
            routes = tuple(replace(each, prices=anew.get(each.model, each.prices)) for each in routes)
        if same:
            known = {name: value or getattr(self, name) for name, value in known.items()}
            return replace(changed, fallback=routes, **known)
        rest = tuple(each for each in routes if each.model != changes.model)
        return replace(changed, model=changes.model, fallback=rest, **known)

    def difference(self, other: LLM) -> Mapping[str, JsonValue]:
        """Return the fields of `other` that are not as here, as JSON, but for those of UNSENT: no call needs them.

        They travel in place of all of it (`with_difference`).
        """
        theirs, own = other.model_dump(mode="json"), self.model_dump(mode="json")
        names = (name for name in LLM.model_fields if name not in UNSENT)
        # as JSON, where 1 is not true: `extra` and options of tools may have either
        return {name: theirs.get(name) for name in names if to_json(theirs.get(name)) != to_json(own.get(name))}

    def with_difference(self, fields: Mapping[str, JsonValue]) -> LLM:
        """Return the settings with those fields."""
        changed = {**self.model_dump(mode="json"), **fields}
        return LLM.model_validate({name: value for name, value in changed.items() if value is not None})


OPTIONS: Final = (
    "temperature",
    "top_p",
    "reasoning_effort",
    "verbosity",
    "stop",
    "seed",
    "tool_choice",
    "parallel_tool_calls",
    "strict",
    "service_tier",
    "extra",
    "background",
    "server_tools",
)
"""The fields of `LLM` that an API may not know; none, or an empty list, is unset."""

UNSENT: Final = ("prices", "longest_answer", "fallback")
"""The fields of `LLM` that decide what a call is allowed, and that the call itself does not need."""

CALL_OPTIONS: Final = (*OPTIONS, "max_output_tokens", "stream")
"""The fields of `LLM` that hooks can change for one call, besides the model."""


def _option_values(options: Mapping[str, JsonValue]) -> dict[str, object]:
    """Return options as fields of `LLM`. Raises ValueError for one that is none, or has a wrong value."""
    for name in options:
        if name not in CALL_OPTIONS:
            raise ValueError(f"there is no option {name!r}; {suggestion(name, CALL_OPTIONS)}")
    values = LLM.model_validate({name: value for name, value in options.items() if value is not None})
    return {name: getattr(values, name) for name in options}


class AgentDefinition(Frozen):
    """An agent. It has the `tools` and `hooks` that it names, by default none; "all" takes every one that is offered.

    `sequential` runs the calls of a step one after another. `code` lets its model write Python over its tools.
    `max_depth` is how deep subagents may nest below this agent when it is the root. `overridable` and `max_overrides`
    bound what a hook's continuation request may do (`holdfast.core.conversation.stop_reasons`). `finish_reasons` are
    the provider's words for an answer that ended early: an answer without tool calls that ends with one stops the run
    with the reason `finish_reason`. `reasks_max` is how often an answer that breaks `response_format` is asked for
    again. `capabilities` name bundles of tools and hooks. `workspace` is a room of its own for files and commands, and
    adds the capability of that name. `mcp` names MCP servers of the worker, or describes others where the worker allows
    it: the agent gets their tools, besides its own. `handoffs` are the agents that it may hand the conversation to.
    `answer_seconds` is how long its own question to a person (the capability `ask_user`) waits for the answer.
    `critique` has another agent or a rubric judge the final answer before it counts, `plan` names who plans for the
    capability of that name.

    `model_patience_seconds` is how long a model call is tried whose endpoint is away, busy or breaks its answers: the
    clock alone ends it, counted from its first attempt, no number of attempts. An attempt under way then may finish; 0
    means that the first failure counts. Refused: a name listed twice, a tool that is named and denied at once, an agent
    among its own subagents or handoffs.
    """

    name: Name
    label: Text = Field(default="", max_length=200)
    description: Text = Field(default="", max_length=2_000)
    system_prompt: Text = ""
    llm: LLM = LLM()
    tools: ToolChoice = ()
    tools_deny: Names = ()
    mcp: Annotated[tuple[McpChoice, ...], Field(max_length=SERVERS_MAX), AfterValidator(_distinct_servers)] = ()
    sequential: bool = False
    code: CodeMode | None = Field(default=None, exclude_if=is_none)
    hooks: HookChoice = ()
    capabilities: Names = Field(default=(), max_length=CAPABILITIES_MAX)
    workspace: WorkspaceProfile | None = Field(default=None, exclude_if=is_none)
    subagents: Names = Field(default=(), max_length=SUBAGENTS_MAX)
    handoffs: Names = Field(default=(), max_length=HANDOFFS_MAX)
    max_depth: int = Field(default=3, ge=0, le=DEPTH_MAX)
    budget: ExecutionBudget = ExecutionBudget()
    budget_policy: BudgetPolicy = "inherit"
    pause_while_waiting: bool = False
    answer_seconds: float = Field(default=ANSWER_SECONDS, gt=0, le=SECONDS_MAX, exclude_if=is_usual_wait)
    approvals: ApprovalRules = ()
    critique: Critique | None = Field(default=None, exclude_if=is_none)
    plan: Plan | None = Field(default=None, exclude_if=is_none)
    errors: ErrorPolicy = "recover"
    model_patience_seconds: float = Field(default=MODEL_PATIENCE_SECONDS, ge=0, le=MODEL_PATIENCE_SECONDS_MAX)
    overridable: Annotated[tuple[StopReason, ...], AfterValidator(distinct)] = OVERRIDABLE
    max_overrides: int = Field(default=3, ge=0, le=OVERRIDES_MAX)
    finish_reasons: Annotated[tuple[Word, ...], AfterValidator(distinct)] = ("length", "content_filter")
    response_format: ResponseFormat = TextFormat()
    reasks_max: int = Field(default=2, ge=0, le=REASKS_MAX)
    context: ContextPolicy = ContextPolicy()
    metadata: PortableMap = Field(default_factory=dict[str, JsonValue])

    @model_validator(mode="before")
    @classmethod
    def _a_workspace_brings_its_tools(cls, data: Any) -> Any:  # noqa: ANN401  # whatever is validated
        """Add the capability to a definition that describes a workspace."""
        if not isinstance(data, dict) or cast("dict[str, Any]", data).get("workspace") is None:
            return cast("Any", data)
        names: Any = cast("dict[str, Any]", data).get("capabilities") or ()
        if not isinstance(names, list | tuple) or WORKSPACE in names:
            return cast("Any", data)
        return {**cast("dict[str, Any]", data), "capabilities": (*cast("tuple[str, ...]", names), WORKSPACE)}

    @property
    def mcp_names(self) -> tuple[str, ...]:
        """The names of its MCP servers."""
        return tuple(map(server_name, self.mcp))

    @field_validator("tools_deny")
    @classmethod
    def _denied_tools_are_not_named(cls, denied: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        both = [name for name in named(info.data.get("tools", ())) if name in denied]
        if both:
            raise ValueError(f"{both[0]!r} stands under `tools` as well; keep one")
        return denied

    @field_validator("subagents", "handoffs")
    @classmethod
    def _it_does_not_name_itself(cls, agents: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if info.data.get("name") in agents:
            raise ValueError(f"{info.data['name']!r} is the agent itself; name other agents")
        return agents

    @field_validator("critique")
    @classmethod
    def _it_does_not_judge_itself(cls, critique: Critique | None, info: ValidationInfo) -> Critique | None:
        if critique is not None and critique.agent is not None and critique.agent == info.data.get("name"):
            raise ValueError(f"{critique.agent!r} is the agent itself; name another agent, or give a `rubric`")
        return critique

    @field_validator("plan")
    @classmethod
    def _it_has_somebody_else_plan(cls, plan: Plan | None, info: ValidationInfo) -> Plan | None:
        if plan is not None and PLAN not in info.data.get("capabilities", (PLAN,)):
            raise ValueError(f"nobody plans without the capability {PLAN!r}; add it to `capabilities`")
        if plan is not None and plan.agent is not None and plan.agent == info.data.get("name"):
            raise ValueError(f"{plan.agent!r} is the agent itself; name another agent, or leave `agent` out")
        return plan
