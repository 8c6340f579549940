"""What a run is told about itself: its tools, hooks and subagents read it, in-process as on Temporal; no model does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.client import WorkflowUpdateFailedError

from holdfast import AgentDefinition, AgentState, tool
from holdfast.core.agent.hooks import Changes, HookContext, Trigger, hook
from holdfast.core.agent.toolset import Toolset
from holdfast.core.agent.user_metadata import RESERVED, RUN_METADATA_BYTES_MAX, checked_metadata
from holdfast.core.base.bounds import SEGMENT_BYTES_MIN
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.wire.session_contracts import SEND_UPDATE, SessionMessage
from holdfast.local import LocalDriver
from holdfast.testing.script import Call, Reply, calls, say, turn_number
from holdfast.testing.scripted_model import ScriptedModel
from tests.serving import Serve
from tests.workflows.chats import Chat
from tests.workflows.histories import history_of, replayed, written

GIVEN: Mapping[str, JsonValue] = {"customer": "c-17", "tier": {"gold": True}}
CANARY = "c-17"
HELPER = AgentDefinition(name="helper", system_prompt="You help.", tools=("whose",), hooks="all")
HELPER_ALONE = AgentDefinition(name="helper")
LEAD = AgentDefinition.model_validate(
    {
        "name": "lead",
        "system_prompt": "You lead.",
        "metadata": {"desk": 4},
        "tools": "all",
        "hooks": "all",
        "subagents": ["helper"],
    }
)


def script(request: dict[str, Any]) -> Reply:
    """Ask each tool whose request it is, and a subagent, too."""
    if turn_number(request):
        return say("done")
    if request["messages"][0]["content"] == HELPER.system_prompt:
        return calls(Call("whose", {}))
    return calls(Call("whose", {}), Call("whose_locally", {}), Call("spawn", {"agent": "helper", "task": "look"}))


class Desk:
    """Tools and hooks that note what they are told of the run."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Mapping[str, JsonValue]]] = []

    def offer(self) -> Toolset:
        @tool
        def whose(context: ToolContext) -> str:
            """Return whose request it is."""
            self.told.append(("tool", context.metadata))
            return str(context.metadata.get("customer"))

        @tool(local=True, idempotent=True)
        def whose_locally(context: ToolContext) -> str:
            """Return whose request it is."""
            self.told.append(("local", context.metadata))
            return str(context.metadata.get("customer"))

        @hook(Trigger.BEFORE_EXECUTION)
        def note(context: HookContext) -> Changes:
            self.told.append(("hook", context.metadata))
            return Changes(metadata={"seen_by": "note"})

        return Toolset(tools=(whose, whose_locally), hooks=(note,))


async def in_process(desk: Desk, metadata: Mapping[str, JsonValue]) -> AgentState:
    offer = desk.offer()
    model = ScriptedModel(script)
    driver = LocalDriver(LEAD, model=model, tools=offer.tools, hooks=offer.hooks, agents=[HELPER])
    state = await driver.execute("help", metadata=metadata)
    assert CANARY not in str([request.messages for request in model.requests if not turn_number_of(request.messages)])
    return state


def turn_number_of(messages: object) -> int:
    return str(messages).count("role='tool'")


@pytest.mark.slow
@pytest.mark.temporal
async def test_tools_hooks_and_subagents_read_the_metadata_of_a_run_alike_in_both_drivers(serve: Serve) -> None:
    here, there = Desk(), Desk()
    local = await in_process(here, GIVEN)
    async with serve(script, offer=there.offer()) as served:
        execution_id = await served.client.start(LEAD, "help", subagents=[HELPER], metadata=GIVEN)
        durable = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    expected = {"desk": 4, "agent": "lead", "seen_by": "note", **GIVEN}
    assert local.metadata == durable.metadata == expected
    assert local.context.metadata == expected
    before = {name: value for name, value in expected.items() if name != "seen_by"}
    for desk in (here, there):
        assert ("hook", before) in desk.told
        assert ("tool", expected) in desk.told
        assert ("local", expected) in desk.told
        assert ("tool", {"agent": "helper", "seen_by": "note", **GIVEN}) in desk.told, "the subagent's tool"
    for state in (local, durable):
        assert [each.text for each in state.messages if each.role == "tool"][:2] == [CANARY, CANARY]
    first = served.endpoint.requests[0].body
    assert CANARY not in json.dumps(first), "no model reads them"


@pytest.mark.temporal
async def test_long_metadata_travel_with_calls_by_their_digest(serve: Serve) -> None:
    """What hooks make of them can be longer than what a history is to hold with each call."""
    long = "x" * 2 * SEGMENT_BYTES_MIN

    @tool
    def size(context: ToolContext) -> str:
        """Return how long the note is."""
        return str(len(str(context.metadata["note"])))

    @hook(Trigger.BEFORE_EXECUTION)
    def grow(_: HookContext) -> Changes:
        return Changes(metadata={"note": long})

    many = calls(*(Call("size", {}) for _ in range(3)))
    async with serve([many, say("done")], offer=Toolset(tools=(size,), hooks=(grow,))) as served:
        execution_id = await served.client.start(AgentDefinition(name="sizer", tools="all", hooks="all"), "go")
        state = await served.client.result(execution_id)
        events = (await history_of(served.client, execution_id)).events
    assert [each.text for each in state.messages if each.role == "tool"] == [str(len(long))] * 3
    scheduled = [each for each in events if each.HasField("activity_task_scheduled_event_attributes")]
    assert long.encode() not in written(scheduled)


@pytest.mark.slow
@pytest.mark.temporal
async def test_a_message_to_a_session_brings_metadata_for_its_execution(serve: Serve) -> None:
    desk = Desk()
    async with serve(script, offer=desk.offer()) as served:
        agent = served.client.agent(definition=replace(LEAD, subagents=()), subagents=[HELPER])
        first = await agent.ask("help", metadata=GIVEN)
        second = await agent.ask("and now?", metadata={"customer": "c-18", "tier": None})
        chat = Chat(served.client, None, agent_id=agent.agent_id)
        forged = SessionMessage(message_id="m", text="hello", metadata={"agent": "me"})
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await chat.update(SEND_UPDATE, forged)
    assert "is reserved by Holdfast" in str(refused.value.cause)
    assert first.state.metadata["customer"] == "c-17"
    assert second.state.metadata["customer"] == "c-18"
    assert "tier" not in second.state.metadata
    told = [metadata.get("customer") for kind, metadata in desk.told if kind == "hook"]
    assert told == ["c-17", "c-18"]


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"all": "x" * RUN_METADATA_BYTES_MAX}, "the limit is 16,384; store long values where a tool"),
        ({"agent": "me"}, "'agent' is reserved by Holdfast"),
        ({"": 1}, "has 0 characters"),
        ({"n" * 65: 1}, "has 65 characters"),
        ({"at": object()}, "not a JSON object: at"),
        (["customer"], "not a JSON object: metadata"),
        ({"odd": "\ud800"}, "Unicode"),
        ({"odd": float("nan")}, "not a JSON object"),
    ],
    ids=["long", "ours", "empty name", "long name", "an object", "a list", "surrogate", "nan"],
)
async def test_metadata_that_cannot_be_kept_are_refused_before_anything_begins(metadata: Any, why: str) -> None:  # noqa: ANN401  # whatever a caller gives
    model = ScriptedModel([say("done")])
    with pytest.raises(InvalidInput, match=why):
        checked_metadata(metadata)
    with pytest.raises(InvalidInput, match=why):
        await LocalDriver(HELPER_ALONE, model=model).execute("x", metadata=metadata)
    assert not model.requests


def test_what_we_set_ourselves_is_reserved() -> None:
    for name in RESERVED:
        with pytest.raises(InvalidInput):
            checked_metadata({name: 1})
    assert checked_metadata(None) == {}
