"""Options of a model in a run: what each of its calls is asked with, in both drivers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.inference import Inference
from activities.tools import Catalog
from activities.transcript_cache import TranscriptCache
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import UnknownTool
from holdfast.core.conversation.messages import user_message
from holdfast.core.tools.tools import tool
from holdfast.core.wire.contracts import InferenceInput
from holdfast.core.wire.tool_catalog import ToolsRequest
from holdfast.core.wire.transcript_digest import TranscriptPrefix, advanced, root
from holdfast.local import LocalDriver
from holdfast.runtime.prices import PriceList
from holdfast.testing.script import call, say
from holdfast.testing.scripted_model import ScriptedModel
from tests.activities.asking import asking

AT = datetime(2026, 1, 1, tzinfo=UTC)
FORCED = LLM(model="m", tool_choice="add", seed=7)
AGENT = AgentDefinition(name="local", tools=("add",), llm=FORCED)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_forced_call_goes_out_with_the_first_step_alone() -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("add", a=3, b=3), say("6")])
    state = await LocalDriver(AGENT, model=model, tools=[add]).execute("What?")
    assert state.final_response == "6"
    assert [(each.llm.tool_choice, each.llm.seed) for each in model.requests] == [("add", 7), (None, 7), (None, 7)]


async def test_an_activity_asks_with_the_calls_own_options_where_it_has_some() -> None:
    opening = TranscriptPrefix(definition=AGENT, tools=("add",))
    base, messages = root(opening), (user_message("What?"),)
    first = InferenceInput(opening=opening, base=base, delta=messages, target=advanced(base, messages))
    free = InferenceInput.model_validate({**first.model_dump(), "llm": AGENT.llm.difference(LLM(model="m", seed=7))})
    async with asking(say("6"), say("6")) as (endpoint, model):
        for asked in (first, free):
            await ActivityEnvironment().run(Inference(model, Toolset(tools=(add,)), TranscriptCache()).run, asked)
        bodies = [each.body for each in endpoint.requests]
    assert [body.get("tool_choice") for body in bodies] == [{"type": "function", "function": {"name": "add"}}, None]
    assert [body["seed"] for body in bodies] == [7, 7]


async def test_a_forced_tool_that_the_agent_lacks_is_refused_by_both_drivers() -> None:
    agent = AGENT.model_copy(update={"llm": LLM(tool_choice="ad")})
    words = "'local': llm.tool_choice names the tool 'ad', which is not there; did you mean 'add'?"
    model = ScriptedModel([say("6")])
    with pytest.raises(UnknownTool, match=r"llm\.tool_choice") as here:
        await LocalDriver(agent, model=model, tools=[add]).execute("What?")
    catalog = Catalog(Toolset(tools=(add,)), PriceList())
    with pytest.raises(ApplicationError, match=r"llm\.tool_choice") as there:
        await ActivityEnvironment().run(catalog.resolve, ToolsRequest.of(agent, AT))
    assert words in str(here.value)
    assert words in str(there.value)
    assert there.value.non_retryable
    assert not model.requests
