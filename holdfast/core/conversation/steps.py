"""The record of a step: the model's answer and the tool calls it requested (docs/spec.md, section 3)."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, Field, JsonValue

from holdfast.core.base.bounds import WORD_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, is_empty, is_none, replace, trusted
from holdfast.core.base.json_form import JsonForm
from holdfast.core.base.json_parsing import read_json
from holdfast.core.base.model_retry import MODEL_RETRY
from holdfast.core.base.server_tools import ServerToolCalls
from holdfast.core.base.truncation import reference_of
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.amounts import WORKERS_MODEL
from holdfast.core.conversation.attachments import Attachments, has_none, with_attachments
from holdfast.core.conversation.decision_text import APPROVAL, decision_text
from holdfast.core.conversation.input_requests import InputRecord, InputRequest, PendingInput
from holdfast.core.conversation.judgements import Judgement
from holdfast.core.conversation.messages import Message, ToolCall
from holdfast.core.conversation.model_call_changes import ModelCallChanges
from holdfast.core.conversation.provider_items import ProviderItems
from holdfast.core.conversation.result_files import results_message
from holdfast.core.conversation.stop_reasons import Continuation
from holdfast.core.conversation.verdicts import Approval


class AgentStepType(StrEnum):
    """The outcome of a step (docs/spec.md, section 3)."""

    ERROR = "error"
    TOOL_EXECUTION = "tool_execution"
    FINAL_RESPONSE = "final_response"


class Duration(timedelta):
    """A length of time that formats as its seconds: `f"{duration:.1f} s"`."""

    @classmethod
    def between(cls, start: datetime, end: datetime) -> Duration:
        """Return the time from one moment to another."""
        return cls(seconds=(end - start).total_seconds())

    def __format__(self, spec: str) -> str:
        """Return the seconds by a number's format; without one, what `str` gives."""
        return format(self.total_seconds(), spec) if spec else str(self)


class ErrorRecord(Frozen):
    """An error as data: its type's name, its text, and which part raised it (`model`, a tool's name, `driver`)."""

    type: str
    message: str
    source: str


DROPPED_MAX: Final = 16
"""The most names of parts of one answer that are not kept."""


class InferenceResponse(Frozen):
    """The model's answer in our terms; `finish_reason` and `model` are the provider's own texts."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    usage: Usage = Usage()
    model: str = ""
    response_id: str = ""
    cost: float | None = Field(default=None, ge=0)
    """In US dollars; none without a known price."""
    format_problem: str | None = None
    """Why the answer breaks the response format, if it does; none when it asks for tools."""
    items: ProviderItems = Field(default=(), exclude_if=is_empty)
    """What the provider wants back with this answer; events do not have it."""
    dropped: Annotated[tuple[str, ...], Field(max_length=DROPPED_MAX)] = Field(default=(), exclude_if=is_empty)
    """Which parts of the provider's answer are not kept, by their names there."""
    route: str = Field(default="", max_length=WORD_CHARS_MAX, exclude_if=operator.not_)
    """The route that answered; empty for the worker's own model."""
    server_tool_calls: ServerToolCalls = Field(default_factory=dict[str, int], exclude_if=operator.not_)
    """How many calls of its own tools the provider made for this answer, by the tool's name."""

    @property
    def context_tokens(self) -> int:
        """About how many tokens the conversation had.

        A provider reads it again after each call of its own tools, and counts that each time.
        """
        return self.usage.input_tokens // (1 + sum(self.server_tool_calls.values()))

    @property
    def without_items(self) -> InferenceResponse:
        """The answer as observers see it."""
        return replace(self, items=()) if self.items else self


class Outcome(StrEnum):
    """How a requested tool call ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    BLOCKED = "blocked"
    DENIED = "denied"
    CANCELLED = "cancelled"


NOT_RUN = frozenset({Outcome.BLOCKED, Outcome.DENIED, Outcome.CANCELLED})

REFUSALS = frozenset(
    {
        *("InvalidArguments", "UnknownTool", "TooManyCalls", "ToolUnavailable"),
        *("UnknownSubagent", "SubagentTooDeep", "TooManySubagents"),
        *("UnknownHandoff", "SecondHandoff", "TooManyHandoffs"),
    }
)
"""The types of the errors of calls that could not run at all."""


ResultType = Literal["text", "json"]
"""What a tool's result is besides the text that the model sees: that text alone, or a value of which it is the JSON."""


def is_text(result_type: object) -> bool:
    """For `Field(exclude_if=is_text)`: the type of most results is not written."""
    return result_type == "text"


def is_nothing(value: tuple[object, ...]) -> bool:
    """For `Field(exclude_if=is_nothing)`: what most calls have none of is not written."""
    return not value


class ToolExecution(JsonForm):
    """One requested call and its outcome. `answer` is the tool message for the model.

    `result` is the text the model sees. It is the JSON of `value` where `result_type` says so; `structured` is that
    JSON where the text is in other words. `attachments` are its files, which the record store has.

    `call` is what ran, also where a hook or a person changed its arguments. `usage` and `cost` (US dollars) are a
    subagent's, and `unpriced` the models whose tokens are not in that cost.
    """

    id: str
    call: ToolCall
    outcome: Outcome
    result: str | None = None
    result_type: ResultType = Field(default="text", exclude_if=is_text)
    structured: str | None = Field(default=None, exclude_if=is_none)
    attachments: Attachments = Field(default=(), exclude_if=has_none)
    error: ErrorRecord | None = None
    started_at: AwareDatetime
    completed_at: AwareDatetime
    usage: Usage = Usage()
    cost: float = Field(default=0.0, ge=0)
    unpriced: tuple[str, ...] = ()
    approval: Approval | None = None
    """The decision about it; none for a call that needed no approval, or that was cancelled before a decision."""
    inputs: tuple[InputRecord, ...] = Field(default=(), exclude_if=is_nothing)
    """What its server asked a person for meanwhile, in order."""
    workspace: Digest | None = Field(default=None, exclude_if=is_none)
    """The snapshot of the workspace's files that it has left; none for a call that made none."""
    parent_call_id: str | None = Field(default=None, exclude_if=is_none)
    """The call whose script made this one; none for a call of the model's own."""
    asked_digest: Digest | None = Field(default=None, exclude_if=is_none)
    """The digest of the call as a script made it, where a hook or a person has changed it since."""

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.call.name

    @property
    def args(self) -> Mapping[str, JsonValue]:
        """The arguments it ran with."""
        return self.call.arguments

    @property
    def value(self) -> JsonValue:
        """What the tool returned, as a JSON value; parsed anew each time.

        Of a tool that returned a text it is that text; of one that returned a dict, list, number, bool, none or a
        model, that value in JSON's terms; of an MCP server's tool, what the server structured. A result that was cut
        for the model is the text the model saw, whatever it
        was: the whole is in the result store (`reference`). None also without a result (`has_error`).
        """
        if self.structured is not None:
            return read_json(self.structured)
        return self.result if self.result is None or self.result_type == "text" else read_json(self.result)

    @property
    def reference(self) -> str | None:
        """The reference of the whole result in the result store (`ResultStore.whole`), where the model saw only a part.

        None for a result that is whole here, and for one whose rest was not stored.
        """
        return None if self.result is None or self.result_type == "json" else reference_of(self.result)

    @property
    def has_error(self) -> bool:
        """True when it has an error: it failed, or was blocked, denied or cancelled."""
        return self.error is not None

    @property
    def error_message(self) -> str:
        """What that error says; empty without one."""
        return self.error.message if self.error else ""

    @property
    def duration(self) -> Duration:
        """From its beginning to its end, attempts and waits between them included."""
        return Duration.between(self.started_at, self.completed_at)

    @property
    def ran(self) -> bool:
        """True when the tool was actually run; false for a call that was refused, blocked, denied or cancelled."""
        return self.outcome not in NOT_RUN and (self.error is None or self.error.type not in REFUSALS)

    @property
    def was_blocked(self) -> bool:
        """True when a rule or a person kept it from running."""
        return self.outcome in (Outcome.BLOCKED, Outcome.DENIED)

    @property
    def answer(self) -> Message:
        """The one tool message that answers this call."""
        if self.error is not None and self.error.type == MODEL_RETRY and self.error.message.strip():
            content = self.error.message
        elif self.error is not None:
            content = f"Error ({self.error.type}): {self.error.message}"
        else:
            content = with_attachments(self.result or "", self.attachments)
        if self.approval is None:
            return trusted(Message, role="tool", content=content, tool_call_id=self.call.id)
        metadata = {APPROVAL: decision_text(self.approval, self.call.arguments)}  # for whoever reads the conversation
        return trusted(Message, role="tool", content=content, tool_call_id=self.call.id, metadata=metadata)


class CallStage(StrEnum):
    """How far an open call has come."""

    WAITING = "waiting"
    BEFORE_TOOL = "before_tool"
    APPROVAL = "approval"
    INPUT = "input"
    RUNNING = "running"
    AFTER_TOOL = "after_tool"


class OpenCall(Frozen):
    """A requested call without an answer yet; `index` is its place in the request.

    `call` has the arguments it runs with; `ended` is its outcome while hooks look at it. `digest` is the call's own,
    while it waits for a person, and `tool_digest` that of an MCP tool's description; `approval` is the decision.

    `pending_input` is what its server asks a person for, or has asked for last; `digest` is then that of the request
    which waits, and `inputs` are the answers so far.

    `parent_call_id` is the call whose script made this one; its `index` is then no place in the request. `asked_digest`
    is that of the call as the script made it, where a hook or a person has changed it since.
    """

    index: int
    call: ToolCall
    stage: CallStage = CallStage.WAITING
    started_at: AwareDatetime | None = None
    expires_at: AwareDatetime | None = None
    digest: Digest | None = None
    tool_digest: Digest | None = Field(default=None, exclude_if=is_none)
    approval: Approval | None = None
    ended: ToolExecution | None = None
    pending_input: PendingInput | None = Field(default=None, exclude_if=is_none)
    inputs: tuple[InputRecord, ...] = Field(default=(), exclude_if=is_nothing)
    parent_call_id: str | None = Field(default=None, exclude_if=is_none)
    asked_digest: Digest | None = Field(default=None, exclude_if=is_none)

    def with_arguments(self, arguments: Mapping[str, JsonValue]) -> OpenCall:
        """Return the call with other arguments than it was asked with."""
        asked = (self.asked_digest or self.call.digest) if self.parent_call_id is not None else None
        return replace(self, call=replace(self.call, arguments=arguments), asked_digest=asked)

    @property
    def input_request(self) -> InputRequest | None:
        """The request that a person is to answer now; none where the call waits for none."""
        if self.stage is not CallStage.INPUT or self.pending_input is None:
            return None
        return next(iter(self.pending_input.requests), None)

    @property
    def input_server(self) -> str:
        """The server that asks for input, or has asked; empty where none has."""
        return self.pending_input.server if self.pending_input else ""


ANSWER_HELD_BACK: Final = "AnswerHeldBack"
"""The type of the error of a step whose answer does not count, as its hooks were cut off or failed."""


def _is_nothing(usage: Usage) -> bool:
    return usage == NOTHING_USED


class Fallback(Frozen):
    """The route `route` could not answer, for `error`, and the step asked `to` instead.

    An empty `route` is the worker's own model. `usage` is what its failed attempts used, `cost` that in US dollars.
    """

    route: str
    to: str
    error: ErrorRecord
    at: AwareDatetime
    usage: Usage = Field(default=NOTHING_USED, exclude_if=_is_nothing)
    cost: float = Field(default=0.0, ge=0, exclude_if=operator.not_)

    @property
    def line(self) -> str:
        """What happened, in a line."""
        failed = f"{self.route or WORKERS_MODEL} cannot answer ({self.error.type}: {self.error.message})"
        return f"{failed}; {self.to} is asked"


class RevisedAnswer(Frozen):
    """The text that the hook `hook` put in place of the model's."""

    text: str
    hook: str


class AgentStep(JsonForm):
    """A model call and its tool calls. `input_length` is how many messages the default section had before it.

    Output messages are derived: the assistant's message, then one answer per requested call, in request order, then one
    with its pictures and files.
    `overhead` is what else the step used: failed attempts of the model call, a summary made for it; its cost is in
    US dollars.
    """

    id: str
    number: int
    input_length: int
    inference_response: InferenceResponse | None = None
    tool_executions: tuple[ToolExecution, ...] = ()
    errors: tuple[ErrorRecord, ...] = ()
    overhead: Usage = Usage()
    overhead_cost: float = Field(default=0.0, ge=0)
    unpriced: tuple[str, ...] = ()
    """The models, its own or its subagents', that it used tokens of without a known price: they are not in its cost."""
    compactions: int = Field(default=0, ge=0)
    """How often older messages had been moved away before the model was asked."""
    partial_response: InferenceResponse | None = None
    """The partial answer of a model call that was cancelled, or one held back, without tool calls."""
    revised: RevisedAnswer | None = None
    """What stands in the conversation in place of the text of `inference_response`, where a hook changed it."""
    pictures: Attachments = Field(default=(), exclude_if=has_none)
    """The files of its results that the model is shown as pictures."""
    files: Attachments = Field(default=(), exclude_if=has_none)
    """The other files of its results that the model is shown."""
    judgement: Judgement | None = Field(default=None, exclude_if=is_none)
    """What came of judging its answer, where the definition has a `critique`."""
    fallbacks: tuple[Fallback, ...] = Field(default=(), exclude_if=is_empty)
    """The routes that could not answer it, in order."""
    model_call_changes: ModelCallChanges | None = Field(default=None, exclude_if=is_none)
    """What hooks changed of its model call; none where they left it as it is."""

    @property
    def response(self) -> InferenceResponse | None:
        """The model's answer as the conversation has it: with the text of the hook that changed it."""
        response = self.inference_response
        return response if self.revised is None or response is None else replace(response, text=self.revised.text)

    @property
    def without_items(self) -> AgentStep:
        """The step as observers see it: without what the provider wants back."""
        full, partial = self.inference_response, self.partial_response
        if not ((full and full.items) or (partial and partial.items)):
            return self
        return replace(
            self,
            inference_response=full and full.without_items,
            partial_response=partial and partial.without_items,
        )

    @property
    def text_so_far(self) -> str:
        """The text of its answer, else of its partial one; empty for an answer that was held back."""
        if any(error.type == ANSWER_HELD_BACK for error in self.errors):
            return ""
        response = self.response or self.partial_response
        return response.text if response else ""

    @property
    def step_type(self) -> AgentStepType | None:
        """Derived, never stored: any error, else requested tools, else the final response; none before the answer."""
        if self.all_errors:
            return AgentStepType.ERROR
        if self.inference_response is None:
            return None
        return AgentStepType.TOOL_EXECUTION if self.requested_tool_calls else AgentStepType.FINAL_RESPONSE

    @property
    def all_errors(self) -> tuple[ErrorRecord, ...]:
        """Errors of failed tools first, then explicit ones, none twice; those of a script's calls are the script's."""
        if not self.errors and all(execution.outcome is not Outcome.FAILED for execution in self.tool_executions):
            return ()  # the usual case, asked for several times in every step
        own = (execution for execution in self.tool_executions if execution.parent_call_id is None)
        failures = (execution.error for execution in own if execution.outcome is Outcome.FAILED)
        return tuple(dict.fromkeys(error for error in (*failures, *self.errors) if error is not None))

    @property
    def usage(self) -> Usage:
        """What the step used: its model call, the overhead, and the subagents it called."""
        response = self.inference_response or self.partial_response
        used = response.usage if response else Usage()
        used = used if self.judgement is None else used + self.judgement.usage
        return sum((execution.usage for execution in self.tool_executions), used + self.overhead)

    @property
    def cost(self) -> float:
        """The same in US dollars; tokens without a known price count nothing."""
        response = self.inference_response or self.partial_response
        own = response.cost if response else None
        judged = self.judgement.cost if self.judgement else 0.0
        return (own or 0.0) + self.overhead_cost + judged + sum(execution.cost for execution in self.tool_executions)

    @property
    def server_tool_calls(self) -> Mapping[str, int]:
        """How many calls of its own tools the provider made for the answer, by the tool's name."""
        response = self.inference_response or self.partial_response
        return response.server_tool_calls if response else {}

    @property
    def requested_tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that the model requested."""
        return self.inference_response.tool_calls if self.inference_response else ()

    @property
    def executed_tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that actually ran."""
        return tuple(execution.call for execution in self.tool_executions if execution.ran)

    @property
    def unanswered_calls(self) -> Iterator[tuple[int, ToolCall]]:
        """The requested calls that have no execution yet, each with its place in the request."""
        answered = {execution.call.id for execution in self.tool_executions}
        return (pair for pair in enumerate(self.requested_tool_calls) if pair[1].id not in answered)

    @property
    def output_messages(self) -> tuple[Message, ...]:
        """What this step adds to the conversation."""
        response = self.response
        if response is None:
            return ()
        message = trusted(
            Message, role="assistant", content=response.text, tool_calls=response.tool_calls, items=response.items
        )
        ended = {execution.call.id: execution for execution in self.tool_executions}
        answers = (ended[call.id].answer for call in response.tool_calls if call.id in ended)
        shown = (results_message(self.pictures, self.files),) if self.pictures or self.files else ()
        return (message, *answers, *shown)


class StepExecution(JsonForm):
    """A completed step with its times and the stop signals as they stood when it was archived."""

    step: AgentStep
    started_at: AwareDatetime
    completed_at: AwareDatetime
    continuation: Continuation

    @property
    def duration(self) -> Duration:
        """From before the model call to the last answer."""
        return Duration.between(self.started_at, self.completed_at)

    @property
    def usage(self) -> Usage:
        """What the step used."""
        return self.step.usage
