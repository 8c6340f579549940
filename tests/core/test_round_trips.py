"""Every value that crosses a process comes back from JSON as it was, whatever is in it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import holdfast.core
from holdfast.core.agent.assistants import AnswerVerdict, PlannedWork
from holdfast.core.agent.budget import TreeUse
from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.context_view import RunFacts
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import ExecutionStatus, SavedState
from holdfast.core.agent.hooks import Changes, HookContext, HookRun, HookTraits, Trigger
from holdfast.core.agent.model import BackgroundAnswer
from holdfast.core.agent.policies import Critique, Plan
from holdfast.core.base.bounds import MESSAGES_WAITING_MAX
from holdfast.core.base.frozen import Frozen, canonical
from holdfast.core.base.json_form import JsonForm, SparseForm
from holdfast.core.conversation.attempt_tally import McpTask, ToolAttempts
from holdfast.core.conversation.input_requests import InputAnswer
from holdfast.core.conversation.judgements import Judgement
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.questions import Question, QuestionField
from holdfast.core.conversation.steps_back import StepBack, StepBackRequest
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.conversation.todos import Todo, TodoList
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.loop.own_tools.planning import PlanRequest
from holdfast.core.tools.call_context import BudgetLeft, CallContext, ToolProgress
from holdfast.core.tools.code_mode import CodeMode
from holdfast.core.tools.mcp_catalog import McpAnnotations, McpCatalog, McpChange, McpTool
from holdfast.core.tools.mcp_changes import McpToolsChange, PinnedCatalog
from holdfast.core.tools.mcp_servers import InlineServer, McpOAuth, McpServer
from holdfast.core.tools.tool_results import ToolReply
from holdfast.core.tools.tool_traits import ToolSchema, ToolTraits
from holdfast.core.tools.workspace_profile import WorkspaceProfile, WorkspaceUse
from holdfast.core.wire.argument_check_contracts import ArgumentsCheck, ArgumentsChecked
from holdfast.core.wire.contracts import (
    ApprovalDecision,
    BufferPage,
    CallProgress,
    CarriedRun,
    CarriedState,
    EventsPage,
    EventsRequest,
    ExecutionInput,
    FailedAttemptsUsage,
    HooksRan,
    HooksRequest,
    InferenceAnswer,
    InferenceInput,
    ModelWait,
    PageRequest,
    PickupTime,
    Segment,
    StatePage,
    StopRequest,
    SummaryInput,
    SummaryText,
    TranscriptPage,
    TranscriptRequest,
)
from holdfast.core.wire.execution_events import InferenceResponseReceived, StopSignalReceived, ToolCallCompleted
from holdfast.core.wire.mcp_contracts import (
    CallAnswer,
    McpCall,
    McpInputNeeded,
    McpInputs,
    McpRequest,
    McpResolved,
    McpSearch,
)
from holdfast.core.wire.result_contracts import ExecutionFailure, ExecutionResult
from holdfast.core.wire.script_contracts import ScriptAdvance, ScriptCall, ScriptRequest, ScriptResult
from holdfast.core.wire.session_contracts import Branch
from holdfast.core.wire.session_events import (
    MessageAccepted,
    SessionChanged,
    SessionClosed,
    SessionCreated,
    SessionEventsPage,
    SessionForked,
    SessionResumed,
    SessionSuspended,
)
from holdfast.core.wire.tool_catalog import ToolCatalog, ToolsRequest
from holdfast.core.wire.transcript_digest import TranscriptMark, TranscriptPrefix
from tests.core.defining import definitions, names
from tests.core.lasting import VALUES as LASTING
from tests.core.strategies import (
    budgets,
    calls,
    counts,
    errors,
    ids,
    input_requests,
    input_responses,
    json_maps,
    messages,
    model_call_changes,
    moments,
    provider_items,
    responses,
    signals,
    states,
    step_executions,
    texts,
    tool_executions,
    usages,
)

costs = st.floats(min_value=0, max_value=1e6)
uses = st.builds(TreeUse, steps=counts, usage=usages, cost=costs, unpriced=st.lists(texts, max_size=2).map(tuple))
some_messages = st.lists(messages, max_size=3).map(tuple)
tool_traits = st.builds(ToolTraits, name=names, sequential=st.booleans(), at_most_once=st.booleans())
tool_schemas = st.builds(ToolSchema, name=names, description=texts, parameters=json_maps)
hook_traits = st.builds(HookTraits, name=names, trigger=st.sampled_from(Trigger), tools=st.none() | st.just(("a*",)))
changes = st.builds(
    Changes,
    metadata=json_maps,
    messages=st.lists(messages, max_size=min(3, MESSAGES_WAITING_MAX)).map(tuple),
    stop=st.none() | texts,
    go_on=st.booleans(),
    arguments=st.none() | json_maps,
    block=st.none() | texts,
    model_call=st.none() | model_call_changes,
)
hook_runs = st.builds(HookRun, name=names, changes=st.none() | changes, error=st.none() | errors)
hook_contexts = st.builds(
    HookContext,
    trigger=st.sampled_from(Trigger),
    agent=names,
    agent_id=ids,
    execution_id=ids,
    step_number=counts,
    at=moments,
    metadata=json_maps,
    messages=some_messages,
    usage=usages,
    cost=costs,
    budget_remaining=budgets,
    stop_signals=st.lists(signals, max_size=2).map(tuple),
    response=st.none() | responses,
    call=st.none() | calls,
    tool_execution=st.none() | tool_executions,
    error=st.none() | errors,
)
marks = st.builds(TranscriptMark, length=counts, digest=texts)
openings = st.builds(
    TranscriptPrefix,
    definition=definitions,
    tools=st.lists(names, max_size=3).map(tuple),
    spawn=st.none() | tool_schemas,
)

BASES = (JsonForm, SavedState, SparseForm)
"""What other types inherit their form from: they have no fields, and nothing makes a value of them."""

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
catalogs = st.builds(
    ToolCatalog,
    at=moments,
    tools=st.lists(tool_traits, max_size=2).map(tuple),
    hooks=st.lists(hook_traits, max_size=2).map(tuple),
    prompt=texts,
)
envelope = {
    "agent_id": ids,
    "execution_id": ids,
    "parent_agent_id": st.none() | ids,
    "at": moments,
    "step_number": counts,
}
observed = (
    st.builds(StopSignalReceived, **envelope, signal=signals)
    | st.builds(InferenceResponseReceived, **envelope, response=responses)
    | st.builds(ToolCallCompleted, **envelope, tool_execution=tool_executions)
)

session = {"agent_id": ids, "temporal_run_id": ids, "agent": names, "tenant": texts, "at": moments}
session_events = (
    st.builds(SessionCreated, **session)
    | st.builds(SessionForked, **session, origin=st.builds(Branch, agent_id=ids, execution_id=ids))
    | st.builds(
        MessageAccepted, **session, message_id=texts, while_running=st.just("queue"), chars=counts, excerpt=texts
    )
    | st.builds(SessionChanged, **session, changed=st.just(("llm", "budget")), place=st.none())
    | st.builds(SessionSuspended, **session, running_id=st.none() | ids)
    | st.builds(SessionResumed, **session, waiting=counts)
    | st.builds(SessionClosed, **session, at_once=st.booleans(), waiting=counts)
)

carried_parts: dict[str, st.SearchStrategy[Any]] = {
    "head": states,
    "segments": st.lists(st.builds(Segment, series=st.none() | names, count=st.integers(1, 9)), max_size=2).map(tuple),
    "steps": st.tuples(step_executions),
    "messages": st.tuples(some_messages),
}
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
mcp_tools = st.builds(
    McpTool,
    name=names,
    server=names,
    tool=texts,
    description=texts,
    parameters=json_maps,
    output=st.none() | json_maps,
    annotations=st.builds(McpAnnotations, title=st.none() | texts, read_only=st.none() | st.booleans()),
)
background = st.none() | st.builds(BackgroundAnswer, response_id=st.just("resp_1"), model=st.none() | st.just("m"))
VALUES: tuple[st.SearchStrategy[Frozen], ...] = (
    states,
    definitions,
    st.builds(Critique, rubric=names, rounds=st.integers(min_value=1, max_value=10)),
    st.builds(Plan, agent=names),
    st.builds(Judgement, judge=texts, reasons=st.lists(texts, max_size=2).map(tuple), started_at=moments, usage=usages),
    st.builds(AnswerVerdict, accepted=st.booleans(), reasons=st.lists(texts, max_size=2).map(tuple)),
    st.builds(PlannedWork, items=st.lists(names, min_size=1, max_size=2).map(tuple)),
    st.builds(PlanRequest, task=names),
    st.builds(StepBack, from_step=st.just(2), to_step=st.just(1), note=texts, at=moments),
    st.builds(StepBackRequest, step=st.just(1), note=names),
    st.builds(TodoList, items=st.lists(st.builds(Todo, text=names), max_size=2).map(tuple)),
    st.builds(Question, question=names, fields=st.just((QuestionField(name="seats", kind="integer"),))),
    st.builds(Capability, name=names, prompt=texts),
    st.builds(CodeMode, tools=st.just("all") | st.just(("a", "b")), only=st.booleans()),
    st.builds(
        ScriptRequest,
        code=texts,
        tools=st.just(("a",)),
        results=st.lists(
            st.builds(
                ScriptResult, tool=names, digest=st.none() | st.just("0" * 64), value=json_maps, error=st.none() | texts
            ),
            max_size=2,
        ).map(tuple),
        calls_max=counts,
    ),
    st.builds(
        ScriptAdvance,
        calls=st.lists(st.builds(ScriptCall, tool=names, arguments=json_maps), max_size=2).map(tuple),
        output=texts,
        error=st.none() | errors,
    ),
    st.builds(
        WorkspaceUse,
        id=names,
        profile=st.builds(WorkspaceProfile, backend=st.just("folder"), disk_mb=st.integers(1, 99)),
        files=st.none() | digests,
        left_by=st.none() | names,
    ),
    changes,
    provider_items,
    tool_traits,
    st.builds(ToolReply, text=texts, stop=st.none() | texts, metadata=json_maps),
    st.builds(
        CallContext,
        agent=names,
        agent_id=ids,
        parent_agent_id=st.none() | ids,
        step=counts,
        call_id=texts,
        deadline=st.none() | moments,
        budget_left=st.builds(BudgetLeft, steps=st.none() | counts, tokens=st.none() | counts, cost=st.none() | costs),
        metadata=json_maps,
    ),
    st.builds(ToolProgress, call_id=texts, tool=names, step=counts, attempt=counts, text=texts, fraction=st.none()),
    st.builds(HooksRequest, hooks=st.lists(hook_traits, max_size=2).map(tuple), context=hook_contexts),
    st.builds(HooksRan, runs=st.lists(hook_runs, max_size=2).map(tuple)),
    st.builds(
        ExecutionInput,
        agent_id=ids,
        definition=definitions,
        question=texts,
        budget=budgets,
        subagents=st.lists(definitions, max_size=2).map(tuple),
        parent_agent_id=st.none() | ids,
        depth_left=st.none() | st.integers(),
    ),
    st.builds(StopRequest, reason=texts, mode=st.sampled_from(["now", "after_step"]), source=texts),
    st.builds(
        ApprovalDecision,
        call_id=texts,
        verdict=st.builds(Verdict, decision=st.sampled_from(["approve", "deny"]), by=texts, reason=texts)
        | st.builds(Verdict, decision=st.just("edit"), arguments=json_maps),
    ),
    st.builds(
        ExecutionResult,
        execution_id=ids,
        status=st.sampled_from(ExecutionStatus),
        stop_reason=st.none() | st.sampled_from(StopReason),
        step_count=counts,
        used=uses,
        final_response=texts,
        partial_response=texts,
        state=st.none() | states,
    ),
    st.builds(ExecutionFailure, execution_id=ids, reason=st.sampled_from(StopReason), message=texts, used=uses),
    st.builds(PageRequest, messages_from=counts, steps_from=counts, messages_total=st.none() | counts),
    st.builds(
        StatePage,
        head=states,
        messages=some_messages,
        steps=st.lists(step_executions, max_size=2).map(tuple),
        messages_total=counts,
        steps_total=counts,
    ),
    st.builds(TranscriptRequest, start=counts, stop=counts),
    st.builds(TranscriptPage, opening=openings, start=counts, messages=some_messages),
    st.builds(
        InferenceInput,
        opening=st.none() | openings,
        base=marks,
        delta=some_messages,
        target=marks,
        max_output_tokens=st.none() | counts,
        llm=st.none() | st.just({"model": "m", "stop": ["a"], "seed": None}),
        offered=st.none() | st.just(("a",)) | st.just(()),
        prompt=texts,
        run=st.none() | st.builds(RunFacts, agent=names, agent_id=ids, step_number=counts, error_count=counts),
    ),
    st.builds(SummaryInput, llm=st.builds(LLM, model=st.none() | st.just("m")), max_output_tokens=st.none() | counts),
    st.builds(BufferPage, messages=some_messages),
    st.builds(SummaryText, text=texts, usage=usages),
    st.builds(ToolsRequest, agent=names, tools=st.just("all") | st.just(()), at=moments, compiler=st.none() | names),
    catalogs,
    st.builds(PickupTime, at=moments),
    st.builds(
        McpServer,
        name=st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,9}", fullmatch=True),
        url=st.just("https://example.org/mcp"),
        headers=st.just({"Accept-Language": "${LANGUAGE}"}),
        oauth=st.none()
        | st.builds(
            McpOAuth, token_url=st.just("https://x.example/t"), client_id=st.just("a"), client_secret=st.just("b")
        ),
        tools=st.none() | st.just(("a", "b")),
        trusted=st.booleans(),
    ),
    st.builds(
        McpCatalog, tools=st.lists(mcp_tools, max_size=2).map(tuple), left_out=st.lists(texts, max_size=2).map(tuple)
    ),
    st.builds(McpChange, name=texts, kind=st.just("changed"), fields=st.dictionaries(texts, st.tuples(texts, texts))),
    st.builds(McpToolsChange, server=st.just("github"), added=st.lists(names, max_size=2).map(tuple), more=counts),
    st.builds(PinnedCatalog, digest=digests),
    st.builds(McpSearch, catalog=digests, arguments=json_maps, tools_deny=st.lists(names, max_size=2).map(tuple)),
    st.builds(InlineServer, name=st.just("files"), command=st.just(("run", "it")), timeout_seconds=st.floats(1, 9)),
    st.builds(McpRequest, agent=names, servers=st.just(("github",))),
    st.builds(McpResolved, catalog=digests, tools=counts, left_out=st.lists(texts, max_size=2).map(tuple)),
    st.builds(
        McpCall,
        catalog=digests,
        name=names,
        arguments=json_maps,
        step=counts,
        call_id=names,
        inputs=st.none()
        | st.builds(
            McpInputs,
            round=st.integers(1, 10),
            responses=st.dictionaries(names, input_responses, max_size=2),
            request_state=st.none() | texts,
        ),
    ),
    st.builds(
        McpInputNeeded,
        server=names,
        requests=st.lists(input_requests, max_size=2).map(tuple),
        seconds_max=st.floats(1, 1e6),
        request_state=st.none() | texts,
    ),
    st.builds(
        CallAnswer,
        call_id=names,
        answer=st.builds(InputAnswer, content=st.none() | json_maps, by=texts, digest=st.none() | digests),
    ),
    st.builds(ArgumentsCheck, tool=names, arguments=json_maps, mcp=st.none() | digests),
    st.builds(ArgumentsChecked, problem=st.none() | texts),
    st.builds(Segment, series=st.none() | names, count=st.integers(1, 9), rank=counts),
    st.builds(CarriedState, **carried_parts),
    st.builds(
        CarriedRun,
        **carried_parts,
        opening=openings,
        told=st.none() | marks,
        catalog=catalogs,
        events_total=counts,
        previous_run_id=names,
    ),
    st.builds(InferenceAnswer, response=responses, complete=st.booleans(), failed_usage=usages),
    st.builds(
        CallProgress, chars=counts, tail=texts, usage=st.none() | usages, failed_usage=usages, background=background
    ),
    st.builds(FailedAttemptsUsage, call=texts, usage=usages, background=background),
    st.builds(BackgroundAnswer, response_id=st.just("resp_1"), model=st.none() | st.just("m")),
    st.builds(
        ToolAttempts,
        own=counts,
        postponed=counts,
        deaths=counts,
        blamed=st.booleans(),
        task=st.none() | st.builds(McpTask, id=names, created_at=moments),
    ),
    st.builds(ModelWait, call=texts, attempt=st.integers(1, 9), message=texts, since=moments, next_at=moments),
    st.builds(EventsRequest, start=counts),
    st.builds(
        EventsPage,
        first=counts,
        start=counts,
        events=st.lists(observed, max_size=3).map(tuple),
        total=counts,
        previous_run_id=st.none() | names,
    ),
    st.builds(
        SessionEventsPage,
        before=counts,
        first=counts,
        start=counts,
        events=st.lists(session_events, max_size=3).map(tuple),
        total=counts,
        previous_run_id=st.none() | names,
    ),
)


def inside(value: object) -> Iterator[Frozen]:
    """Yield every value of ours within `value`, itself included."""
    if isinstance(value, Frozen):
        yield value
        for _, inner in value:
            yield from inside(inner)
    elif isinstance(value, Mapping):
        for inner in cast("Mapping[str, object]", value).values():
            yield from inside(inner)
    elif not isinstance(value, str) and hasattr(value, "__iter__"):
        for inner in cast("tuple[object, ...]", value):
            yield from inside(inner)


def every_type(kind: type[BaseModel] = Frozen) -> Iterator[type[BaseModel]]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("holdfast.core"):
            yield each
        yield from every_type(each)


@pytest.mark.slow
@pytest.mark.timeout(300)  # half a minute of computing, which a busy machine stretches
def test_whatever_is_in_them_values_of_every_type_come_back_from_json_as_they_were() -> None:
    for module in pkgutil.walk_packages(holdfast.core.__path__, "holdfast.core."):
        importlib.import_module(module.name)
    seen: set[type[Any]] = set()

    # the same values each time, so that the last line does not hang on luck
    same = settings(max_examples=16, derandomize=True, suppress_health_check=list(SLOW), database=None)

    def come_back(value: Frozen) -> None:
        seen.update(type(each) for each in inside(value))
        assert type(value).model_validate_json(canonical(value)) == value

    for strategy in (*VALUES, *LASTING):
        same(given(strategy)(come_back))()
    with_values = {each.__name__ for each in every_type() if each not in BASES}
    assert with_values - {each.__name__ for each in seen} == set()


def test_a_message_in_parts_comes_back_too() -> None:
    said = Message.model_validate({"role": "user", "content": [{"type": "text", "text": "hi"}]})
    assert Message.model_validate_json(canonical(said)) == said
