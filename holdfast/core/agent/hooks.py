"""`@hook`: a function of the user's that the loop calls at one of eleven places. Describes them; a shell runs them.

    before_execution                          once, before anything else
    before_step        before_inference       before each step; before its model call
    input_guard                               beside the first model call, whose answer waits for it
    after_inference                           the model has answered, its tools have not begun
    before_tool        after_tool             around each tool call
    after_step                                the step is complete, whether to go on is not decided yet
    on_stop            after_execution        the loop has ended; last of all
    on_error                                  an error ends the execution

`@hook("on_handoff")` is an `after_tool` around the tool `handoff`, for the calls that hand over.

A hook gets one frozen `HookContext`, and resources by the types of further parameters; it returns `Changes` or nothing.
Higher priority goes first, among equals the one registered first, and each sees what those before it changed. What they
change is recorded as an event: after a crash it is not run again, and new code of a hook does not disturb runs that
passed it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial, wraps
from typing import Annotated, Any, Concatenate, Final, get_type_hints

from pydantic import AfterValidator, AwareDatetime, Field, JsonValue, ValidationError

from holdfast.core.agent.answer_types import Answers, AnswerT, typed
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.base.bounds import (
    FORMAT_PROBLEM_CHARS_MAX,
    MESSAGES_WAITING_MAX,
    NAME_CHARS_MAX,
    REASON_CHARS_MAX,
)
from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import Frozen, is_none, replace
from holdfast.core.base.json_values import JsonMap, ShallowMap
from holdfast.core.base.model_options import named_tool
from holdfast.core.base.typed_metadata import MetadataT, metadata_as
from holdfast.core.base.usage import Usage
from holdfast.core.base.validation_errors import problem_text, problems_text
from holdfast.core.conversation.handoffs import HANDOFF
from holdfast.core.conversation.messages import NAME_PATTERN, Message, ToolCall
from holdfast.core.conversation.model_call_changes import ModelCallChanges
from holdfast.core.conversation.steps import ErrorRecord, InferenceResponse, Outcome, StepExecution, ToolExecution
from holdfast.core.conversation.stop_reasons import StopContext, StopSignal
from holdfast.core.tools.tools import is_json_type, plain_type

HOOK_SECONDS_MAX: Final = 5.0
"""The longest one hook may take, whatever it declares: a stop waits for it."""


class Trigger(StrEnum):
    """The places where hooks run, in the order of a run."""

    BEFORE_EXECUTION = "before_execution"
    BEFORE_STEP = "before_step"
    BEFORE_INFERENCE = "before_inference"
    INPUT_GUARD = "input_guard"
    AFTER_INFERENCE = "after_inference"
    BEFORE_TOOL = "before_tool"
    AFTER_TOOL = "after_tool"
    AFTER_STEP = "after_step"
    ON_STOP = "on_stop"
    AFTER_EXECUTION = "after_execution"
    ON_ERROR = "on_error"


ENDING: Final = frozenset({Trigger.ON_STOP, Trigger.AFTER_EXECUTION, Trigger.ON_ERROR})
"""The triggers after the loop has ended, when only its last hooks run."""

AFTER_ANSWER: Final = (Trigger.AFTER_INFERENCE, Trigger.AFTER_STEP)
"""The triggers at which a step has its answer, and the conversation does not have it yet."""

ON_HANDOFF: Final = "on_handoff"
"""Names the place around the tool `handoff` where it has been accepted."""

AROUND_TOOLS: Final = frozenset({Trigger.BEFORE_TOOL, Trigger.AFTER_TOOL})


class HookContext(Frozen):
    """What a hook may know. Bounded in size: `messages` and `steps` (completed ones) are the latest only.

    `call` is the tool call that `before_tool` and `after_tool` are about, `tool_execution` how it ended, `response` the
    model's answer of the step under way, `error` that of `on_error`. `step_number` counts from 1; 0 is before the
    first step. `cost` is in US dollars, without the `unpriced` models. `tool_executions` are those of the step under
    way, all of them in `after_step`; `errors` are of that step and of `steps`. `execution_count` counts the agent's
    executions, this one included, `message_count` the messages of the conversation. `deadline` is when the time limit
    strikes. `sections` has the names of the conversation's sections and how many messages each of them has. `tenant` is
    on whose account the run works, empty where nobody said. At `before_inference`, `llm` is what the model is asked
    with, and `tools` are the names of those that it is offered.
    """

    trigger: Trigger
    agent: str
    agent_id: str
    execution_id: str
    step_number: int
    at: AwareDatetime
    metadata: JsonMap
    messages: tuple[Message, ...]
    usage: Usage
    cost: float
    budget_remaining: ExecutionBudget
    stop_signals: tuple[StopSignal, ...]
    response: InferenceResponse | None = None
    call: ToolCall | None = None
    tool_execution: ToolExecution | None = None
    error: ErrorRecord | None = None
    parent_agent_id: str | None = None
    execution_count: int = 1
    steps: tuple[StepExecution, ...] = ()
    tool_executions: tuple[ToolExecution, ...] = ()
    errors: tuple[ErrorRecord, ...] = ()
    unpriced: tuple[str, ...] = ()
    message_count: int = 0
    deadline: AwareDatetime | None = None
    sections: Mapping[str, int] = Field(default_factory=dict[str, int])
    tenant: str = ""
    llm: LLM | None = None
    tools: tuple[str, ...] = ()

    def answer_as(self, answers: Answers[AnswerT]) -> AnswerT | None:
        """Return the step's final answer as a value of the type (`typed`).

        It is none where the model asked for tools, and where its answer has another form: it is asked again then.
        """
        response = self.response
        if response is None or response.tool_calls or response.format_problem is not None:
            return None
        return typed(response.text, answers)

    def metadata_as(self, model: type[MetadataT]) -> MetadataT:
        """Return the metadata as a value of the pydantic model. Raises InvalidInput with what does not fit."""
        return metadata_as(self.metadata, model)


def _with_known_options(changes: ModelCallChanges) -> ModelCallChanges:
    """Return `changes`. Raises ValueError for an option that is none, or has a wrong value."""
    try:
        LLM().changed_by(changes)
    except ValidationError as error:
        raise ValueError(f"options: {problems_text(error)}") from None
    return changes


class Changes(Frozen):
    """What a hook wants changed; all of it is kept.

    Attributes:
        metadata: merged into the agent's own; a value of none removes the entry.
        messages: added to the conversation before the next model call; of the roles user and system only.
        stop: why the run is to stop.
        stop_reason: under which reason; a word that is none of `StopReason` counts as `unknown`.
        stop_context: what is to stand with that stop, a small JSON object.
        go_on: asks to go on although the loop would stop, within the definition's `overridable` and `max_overrides`.
        arguments: takes the place of the call's arguments (`before_tool` only).
        block: why the call must not run (`before_tool` only); the model sees it.
        answer: takes the place of the text of the model's answer, also beside tool calls (`after_inference` and
            `after_step` only). It counts as the answer: the response format is not checked again.
        reask: what is wrong with the model's answer (`after_inference` only; ignored beside tool calls). The model is
            asked again as after an answer of the wrong form, within `reasks_max`. Raising `ModelRetry` does the same.
            It stands, whatever `answer` another hook gives.
        model_call: what is different in the model call that follows, and in no other (`before_inference` only): model,
            options, tools, prompt.
    """

    metadata: ShallowMap = Field(default_factory=dict[str, JsonValue])
    messages: tuple[Message, ...] = Field(default=(), max_length=MESSAGES_WAITING_MAX)
    stop: str | None = Field(default=None, max_length=REASON_CHARS_MAX)
    stop_reason: str = Field(default="stop_requested", max_length=NAME_CHARS_MAX)
    stop_context: StopContext = Field(default_factory=dict[str, JsonValue])
    go_on: bool = False
    arguments: ShallowMap | None = None
    block: str | None = Field(default=None, max_length=REASON_CHARS_MAX)
    answer: str | None = None
    reask: str | None = Field(default=None, min_length=1, max_length=FORMAT_PROBLEM_CHARS_MAX)
    model_call: Annotated[ModelCallChanges, AfterValidator(_with_known_options)] | None = Field(
        default=None, exclude_if=is_none
    )


HookReturn = Changes | Awaitable[Changes | None] | None

HookFunction = Callable[[HookContext], HookReturn] | Callable[Concatenate[HookContext, ...], HookReturn]
"""A function of the context, and of resources behind it."""


class HookTraits(Frozen):
    """What a run needs to know about a hook: its trigger, its tools, and how long it may take.

    `tools` are patterns (`*` and `?`), for `before_tool` and `after_tool`; none means every tool.
    """

    name: str
    trigger: Trigger
    priority: int = 0
    tools: tuple[str, ...] | None = None
    timeout_seconds: float = Field(default=HOOK_SECONDS_MAX, gt=0, le=HOOK_SECONDS_MAX)

    def concerns(self, tool: str) -> bool:
        """Return whether the hook is to run around calls of `tool`."""
        return self.tools is None or any(fnmatchcase(tool, pattern) for pattern in self.tools)


@dataclass(frozen=True, slots=True)
class Hook:
    """A function with its traits. Calling it calls the function."""

    function: HookFunction
    traits: HookTraits
    resources: Mapping[str, Any] = field(default_factory=dict[str, Any], kw_only=True)
    """The parameters that take a resource, by name, with their types."""

    @property
    def name(self) -> str:
        """What definitions and events call it."""
        return self.traits.name

    @property
    def label(self) -> str:
        """What an error calls it."""
        return f"hook {self.name!r}"

    def __call__(
        self,
        context: HookContext,
        **resources: Any,  # noqa: ANN401  # of any type
    ) -> HookReturn:
        """Call the function itself, unchecked."""
        return partial(self.function, context, **resources)()


class HookRun(Frozen):
    """The outcome of one hook: its changes, none, or the error it raised."""

    name: str
    changes: Changes | None = None
    error: ErrorRecord | None = None


def hook(
    trigger: str,
    *,
    name: str | None = None,
    priority: int = 0,
    tools: Iterable[str] | None = None,
    timeout_seconds: float = HOOK_SECONDS_MAX,
) -> Callable[[HookFunction], Hook]:
    """Make a hook of a function, sync or async, of the context and of the resources that it takes.

    It should be quick and may be repeated when a worker dies in it: what it does outside must bear that.

    Args:
        trigger: one of the eleven places, such as "before_tool"; or "on_handoff".
        name: what definitions call it; the function's own name by default.
        priority: higher goes first.
        tools: around which tools' calls it runs, as patterns; for `before_tool` and `after_tool` only.
        timeout_seconds: how long it may take, 5 s at most: the run waits for it, and so does a stop. Past that it
            counts as failed.
    """

    def decorate(function: HookFunction) -> Hook:
        label = name or str(getattr(function, "__name__", ""))
        if NAME_PATTERN.fullmatch(label) is None:
            raise InvalidInput(f"{label!r} cannot name a hook: use letters, digits, `_` and `-`, at most 64 of them")
        patterns = None if tools is None else tuple(tools)
        if trigger == ON_HANDOFF:
            if tools is not None:
                raise InvalidInput(f"hook {label!r}: `tools` has no meaning for {trigger}; leave it out")
            return hook(
                Trigger.AFTER_TOOL, name=label, priority=priority, tools=[HANDOFF], timeout_seconds=timeout_seconds
            )(_when_handed_over(function))
        if trigger not in set(Trigger):
            raise InvalidInput(
                f"hook {label!r}: there is no trigger {trigger!r}; there are: {', '.join((*Trigger, ON_HANDOFF))}"
            )
        if patterns is not None and Trigger(trigger) not in AROUND_TOOLS:
            raise InvalidInput(f"hook {label!r}: `tools` has no meaning for {trigger}; leave it out")
        try:
            traits = HookTraits(
                name=label,
                trigger=Trigger(trigger),
                priority=priority,
                tools=patterns,
                timeout_seconds=timeout_seconds,
            )
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            field = ".".join(map(str, problem["loc"]))
            raise InvalidInput(
                f"hook {label!r}: {field}: {problem_text(problem)} (it is {problem['input']!r})"
            ) from None
        return Hook(function, traits, resources=_resources_of(label, function))

    return decorate


def _when_handed_over(function: HookFunction) -> HookFunction:
    """Return the function that runs `function` where a handoff has been accepted."""

    @wraps(function)  # whose parameters name its resources
    def run(context: HookContext, **resources: Any) -> HookReturn:  # noqa: ANN401  # of any type
        done = context.tool_execution
        return function(context, **resources) if done is not None and done.outcome is Outcome.SUCCEEDED else None

    return run


def _resources_of(name: str, function: HookFunction) -> Mapping[str, Any]:
    """Return the parameters behind the context that must be given, with their types. Raises InvalidInput."""
    try:
        parameters = [*inspect.signature(function).parameters.values()][1:]
    except (TypeError, ValueError):  # a callable without a signature
        return {}
    named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    needed = [each.name for each in named if each.default is each.empty]
    if not needed:
        return {}
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidInput(f"hook {name!r}: its annotations cannot be read: {error}") from None
    for each in needed:
        if each not in hints or is_json_type(hints[each]):
            kind = hints.get(each, "no type")
            text = f"the parameter {each!r} has {kind}; a hook takes its context, and further resources by their type"
            raise InvalidInput(f"hook {name!r}: {text}")
    return {each: plain_type(hints[each]) for each in needed}


def in_order(hooks: Iterable[HookTraits]) -> tuple[HookTraits, ...]:
    """Return `hooks` as they run: higher priority first, in the given order among equals."""
    return tuple(sorted(hooks, key=lambda traits: -traits.priority))


def problem_with(trigger: Trigger, changes: Changes) -> str | None:
    """Return why a hook may not ask for `changes` at `trigger`, if so."""
    if trigger is not Trigger.BEFORE_TOOL and (changes.block is not None or changes.arguments is not None):
        return f"only a before_tool hook can block a call or change its arguments, this is {trigger}"
    if changes.answer is not None and trigger not in AFTER_ANSWER:
        return f"only hooks at {' and '.join(AFTER_ANSWER)} can change the answer, this is {trigger}"
    if changes.reask is not None and trigger is not Trigger.AFTER_INFERENCE:
        return f"only an after_inference hook can have the model asked again, this is {trigger}"
    if changes.model_call is not None and trigger is not Trigger.BEFORE_INFERENCE:
        return f"only a before_inference hook can change the model call, this is {trigger}"
    if any(message.role not in ("user", "system") for message in changes.messages):
        return "a hook can add messages of the roles user and system only"
    return None


def problem_with_model_call(llm: LLM, tools: Collection[str], changes: ModelCallChanges) -> str | None:
    """Return why a model call with `llm` and `tools`, the names of the agent's, cannot be changed so, if so."""
    own = tuple(tool.name for tool in llm.changed_by(replace(changes, tools=None)).server_tools)
    for name in own:
        if name in tools:
            return f"the agent has a tool {name!r} of its own; leave it out of server_tools"
    known = (*tools, *own)
    for name in changes.tools or ():
        if name not in known:
            return f"the model cannot be offered the tool {name!r}, {nearest(name, known)}"
    forced, offered = named_tool(llm.changed_by(changes).tool_choice), changes.tools
    if forced is not None and forced not in (tools if offered is None else offered):
        return f"tool_choice forces a call of {forced!r}, which the model would not be offered"
    return None


def seen_by_next(context: HookContext, changes: Changes) -> HookContext:
    """Return `context` as the next hook of the same place sees it, after `changes`."""
    metadata = merged(context.metadata, changes.metadata)
    call = context.call
    if call is not None and changes.arguments is not None:
        call = replace(call, arguments=changes.arguments)
    response = context.response
    if response is not None and changes.answer is not None:
        response = replace(response, text=changes.answer)
    if response is not None and changes.reask is not None:
        response = replace(response, format_problem=changes.reask)
    messages = (*context.messages, *changes.messages)
    llm, tools = context.llm, context.tools
    if changes.model_call is not None:
        llm, tools = llm and llm.changed_by(changes.model_call), changes.model_call.offered_of(tools) or ()
    return replace(context, metadata=metadata, call=call, response=response, messages=messages, llm=llm, tools=tools)


def merged(metadata: Mapping[str, JsonValue], changes: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return `metadata` with `changes` made; a value of none removes the entry."""
    if not changes:
        return metadata
    both = {**metadata, **changes}
    return {name: value for name, value in both.items() if value is not None}
