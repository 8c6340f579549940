"""Random values of the core: any that its types allow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import strategies as st
from pydantic import JsonValue

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, FallbackRoute
from holdfast.core.agent.execution_state import AgentContext, ExecutionState, ExecutionStatus
from holdfast.core.agent.hooks import Trigger
from holdfast.core.agent.state import AgentState
from holdfast.core.base.append_list import AppendList
from holdfast.core.base.bounds import SECONDS_MAX
from holdfast.core.base.server_tools import ServerTool
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.attachments import ATTACHMENT_BYTES_MAX, Attachment
from holdfast.core.conversation.handoffs import Handoff, Handover
from holdfast.core.conversation.input_requests import InputRecord, InputRequest, InputResponse, PendingInput
from holdfast.core.conversation.messages import (
    FilePart,
    ImagePart,
    Message,
    MessageStore,
    Section,
    StoredFilePart,
    StoredImagePart,
    TextPart,
    ToolCall,
)
from holdfast.core.conversation.model_call_changes import ModelCallChanges
from holdfast.core.conversation.provider_items import ProviderItem
from holdfast.core.conversation.steps import (
    AgentStep,
    CallStage,
    ErrorRecord,
    Fallback,
    InferenceResponse,
    OpenCall,
    Outcome,
    RevisedAnswer,
    StepExecution,
    ToolExecution,
)
from holdfast.core.conversation.stop_reasons import Continuation, StopReason, StopSignal
from holdfast.core.conversation.verdicts import Approval


def _id_of(call: ToolCall) -> str:
    return call.id


texts = st.text(max_size=20)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(min_value=0, max_value=10**12)
ids = st.uuids().map(str)

_offsets = st.integers(min_value=-14 * 60, max_value=14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments: st.SearchStrategy[datetime] = st.datetimes(
    min_value=datetime(2, 1, 1),  # noqa: DTZ001  # hypothesis takes naive bounds
    max_value=datetime(9998, 1, 1),  # noqa: DTZ001  # the same
    timezones=st.just(UTC) | _offsets,
)

section_names = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True).filter(lambda name: name != "messages")

_leaves: st.SearchStrategy[JsonValue] = st.none() | st.booleans() | numbers | texts
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
json_maps: st.SearchStrategy[dict[str, JsonValue]] = st.dictionaries(texts, json_values, max_size=3)


def _usage(given: int, answered: int, cached: int, written: int, hidden: int) -> Usage:
    return Usage(input_tokens=given, output_tokens=answered).with_parts(cached, written, hidden)


usages = st.builds(_usage, counts, counts, counts, counts, counts)
errors = st.builds(ErrorRecord, type=texts, message=texts, source=texts)
calls = st.builds(ToolCall, id=texts, name=texts, arguments=json_maps, malformed=st.none() | texts)
digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
attachments = st.builds(
    Attachment,
    name=st.sampled_from(("chart.png", "a b.txt", "ü")),
    media_type=st.sampled_from(("image/png", "text/plain")),
    size=st.integers(0, ATTACHMENT_BYTES_MAX),
    digest=digests,
)
parts = (
    st.builds(TextPart, text=texts)
    | st.builds(ImagePart, url=texts.map("https://".__add__))
    | st.builds(StoredImagePart, attachment=attachments)
    | st.builds(StoredFilePart, attachment=attachments, of_result=st.booleans())
    | st.builds(FilePart, name=st.just("a.pdf"), media_type=st.just("application/pdf"), data=st.just("JVBERi0="))
)
provider_items = st.builds(ProviderItem, route=texts, api=texts, model=texts, body=texts) | st.builds(
    ProviderItem, route=texts, api=texts, body=st.just(""), digest=digests, size=counts
)
contents = texts | st.lists(parts, min_size=1, max_size=3).map(tuple)
call_ids = st.text(min_size=1, max_size=20)
said = (
    st.builds(Message, role=st.sampled_from(["system", "assistant"]), content=texts, metadata=json_maps)
    | st.builds(
        Message, role=st.just("assistant"), content=texts, items=st.lists(provider_items, max_size=2).map(tuple)
    )
    | st.builds(Message, role=st.just("user"), content=contents, metadata=json_maps)
)
exchanges: st.SearchStrategy[tuple[Message, ...]] = st.lists(
    st.builds(ToolCall, id=call_ids, name=texts, arguments=json_maps), min_size=1, max_size=3, unique_by=_id_of
).flatmap(
    lambda asked: st.tuples(
        st.builds(
            Message, role=st.just("assistant"), content=texts, tool_calls=st.just(tuple(asked)), metadata=json_maps
        ),
        *(
            st.builds(Message, role=st.just("tool"), content=texts, tool_call_id=st.just(call.id), metadata=json_maps)
            for call in asked
        ),
    ).flatmap(lambda pair: st.permutations(pair[1:]).map(lambda answers: (pair[0], *answers)))
)
"""An assistant's calls with their answers, in any order."""
messages = said | exchanges.flatmap(st.sampled_from)
conversations: st.SearchStrategy[tuple[Message, ...]] = st.lists(st.tuples(said) | exchanges, max_size=6).map(
    lambda runs: tuple(message for run in runs for message in run)
)
"""Messages that every provider takes."""
budgets = st.builds(
    ExecutionBudget,
    max_steps=st.none() | counts,
    max_tokens=st.none() | counts,
    max_seconds=st.none() | st.floats(min_value=0, max_value=SECONDS_MAX),
    deadline=st.none() | moments,
)
signals = st.builds(
    StopSignal, reason=st.sampled_from(list(StopReason)), message=texts, source=texts, at=moments, context=json_maps
)
continuations = st.builds(
    Continuation, stop_signals=st.lists(signals, max_size=3).map(tuple), continuation_requested=st.booleans()
)
responses = st.builds(
    InferenceResponse,
    text=texts,
    reasoning=texts,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    finish_reason=texts,
    usage=usages,
    model=texts,
    response_id=texts,
    cost=st.none() | st.floats(min_value=0, max_value=1e6),
    format_problem=st.none() | texts,
    items=st.lists(provider_items, max_size=2).map(tuple),
    dropped=st.lists(texts, max_size=2).map(tuple),
    server_tool_calls=st.dictionaries(st.just("web_search"), st.integers(1, 9), max_size=1),
)
approvals = st.builds(
    Approval,
    decision=st.sampled_from(["approve", "deny", "edit", "expired"]),
    by=texts,
    reason=texts,
    at=moments,
    digest=digests,
)
input_requests = st.builds(
    InputRequest, key=ids, message=texts, form=st.just({"type": "object", "properties": {}}), url=st.none()
) | st.builds(InputRequest, key=ids, message=texts, form=st.none(), url=st.just("https://example.com/"))
input_responses = st.builds(InputResponse, action=st.sampled_from(["accept", "decline"]), content=st.none() | json_maps)
input_records = st.builds(
    InputRecord,
    server=texts,
    message=texts,
    action=st.sampled_from(["accept", "expired"]),
    by=texts,
    at=moments,
    digest=digests,
)
pending_inputs = st.builds(
    PendingInput,
    server=texts,
    round=st.integers(1, 10),
    requests=st.lists(input_requests, max_size=2).map(tuple),
    responses=st.dictionaries(ids, input_responses, max_size=2),
    asked_at=moments,
)
models = st.lists(st.sampled_from(("m", "n")), max_size=2).map(tuple)
tool_executions = st.builds(
    ToolExecution,
    id=ids,
    call=calls,
    outcome=st.sampled_from(list(Outcome)),
    result=st.none() | texts,
    structured=st.none() | texts,
    attachments=st.lists(attachments, max_size=2).map(tuple),
    error=st.none() | errors,
    started_at=moments,
    completed_at=moments,
    usage=usages,
    cost=st.floats(min_value=0, max_value=1e6),
    unpriced=models,
    approval=st.none() | approvals,
    inputs=st.lists(input_records, max_size=1).map(tuple),
)
open_calls = st.builds(
    OpenCall,
    index=counts,
    call=calls,
    stage=st.sampled_from(list(CallStage)),
    started_at=st.none() | moments,
    expires_at=st.none() | moments,
    digest=st.none() | digests,
    approval=st.none() | approvals,
    ended=st.none() | tool_executions,
    pending_input=st.none() | pending_inputs,
    inputs=st.lists(input_records, max_size=1).map(tuple),
)
CHANGED_OPTIONS: tuple[dict[str, JsonValue], ...] = ({"temperature": 0.5, "stop": ["a"]}, {})
model_call_changes = st.builds(
    ModelCallChanges,
    model=st.none() | st.just("m"),
    options=st.sampled_from(CHANGED_OPTIONS),
    tools=st.none() | st.just(("a", "b")) | st.just(()),
    prompt=texts,
    longest_answer=st.none() | st.just(8),
    fallback_prices=st.sampled_from(({}, {"n": Prices(input_usd=1, output_usd=2)})),
    hooks=st.just(("h",)),
)
steps = st.builds(
    AgentStep,
    id=ids,
    number=counts,
    input_length=counts,
    inference_response=st.none() | responses,
    tool_executions=st.lists(tool_executions, max_size=2).map(tuple),
    errors=st.lists(errors, max_size=2).map(tuple),
    overhead=usages,
    overhead_cost=st.floats(min_value=0, max_value=1e6),
    unpriced=models,
    revised=st.none() | st.builds(RevisedAnswer, text=texts, hook=ids),
    pictures=st.lists(attachments, max_size=2).map(tuple),
    files=st.lists(attachments, max_size=2).map(tuple),
    model_call_changes=st.none() | model_call_changes,
    fallbacks=st.lists(
        st.builds(Fallback, route=ids, to=ids, error=errors, at=moments, usage=usages, cost=st.floats(0, 1)), max_size=2
    ).map(tuple),
)
step_executions = st.builds(
    StepExecution, step=steps, started_at=moments, completed_at=moments, continuation=continuations
)
handoffs = st.builds(Handoff, step_number=st.integers(1, 9), from_agent=texts, to_agent=texts, reason=texts, at=moments)
handovers = st.builds(Handover, agent=texts, origin=texts, origin_digest=st.from_regex(r"[0-9a-f]{64}", fullmatch=True))
executions = st.builds(
    ExecutionState,
    execution_id=ids,
    status=st.sampled_from([each for each in ExecutionStatus if each.is_terminal]),  # the others must fit together
    started_at=moments,
    completed_at=st.none() | moments,
    budget=budgets,
    step_executions=st.lists(step_executions, max_size=2).map(AppendList[StepExecution]),
    usage=usages,
    handoffs=st.lists(handoffs, max_size=2).map(tuple),
    handing_over=st.none() | handoffs,
    continuation=continuations,
    current_step_started_at=st.none() | moments,
    current_step=st.none() | steps,
    open_calls=st.lists(open_calls, max_size=2).map(tuple),
    hooks_under_way=st.none() | st.sampled_from(list(Trigger)),
    summary_under_way=st.booleans(),
    compactions=counts,
    waiting_messages=st.lists(messages, max_size=2).map(tuple),
    answer_due=st.booleans(),
    reasks=counts,
    paused_at=st.none() | moments,
    paused_seconds=st.floats(min_value=0, max_value=1e6),
    warnings=st.lists(texts, max_size=2).map(tuple),
    cost=st.floats(min_value=0, max_value=1e6),
    unpriced=models,
    error=st.none() | errors,
)
_logs = conversations.map(AppendList[Message])
stores = st.lists(section_names, unique=True, max_size=3).flatmap(
    lambda names: st.tuples(
        *(st.builds(Section, name=st.just(name), messages=_logs) for name in [*names, "messages"])
    ).map(lambda sections: MessageStore(sections=sections))
)
states = st.builds(
    AgentState,
    agent_id=ids,
    parent_agent_id=st.none() | ids,
    created_at=moments,
    updated_at=moments,
    execution_count=counts,
    llm=st.none()
    | st.builds(
        LLM,
        model=st.none() | st.just("m"),
        temperature=st.none() | st.floats(0, 2),
        background=st.none() | st.booleans(),
        longest_answer=st.none() | st.just(9),
        server_tools=st.lists(
            st.builds(ServerTool, type=st.just("web_search"), usd_per_call=st.none() | st.just(0.01)), max_size=1
        ).map(tuple),
        fallback=st.lists(
            st.builds(FallbackRoute, model=st.just("n"), longest_answer=st.none() | st.just(7)), max_size=2
        ).map(tuple),
    ),
    context=st.builds(AgentContext, store=stores, metadata=json_maps, system_prompt=texts),
    handover=st.none() | handovers,
    execution=st.none() | executions,
)
