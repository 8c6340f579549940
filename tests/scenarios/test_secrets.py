"""The API key is the worker's: it is in no input, history, state or listing, whatever the endpoint does with it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.hooks import Changes, HookContext, Trigger, hook
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ExecutionFailed, InvalidInput
from holdfast.testing.openai_server import RequestRecord
from holdfast.testing.script import Reply, Script, call, say
from tests.scenarios.tools import Gate, tools_at
from tests.serving import Serve, Served

pytestmark = pytest.mark.temporal

KEY = b"test-key"  # what `tests.serving` gives its worker
AGENT = AgentDefinition(name="secretive", tools="all", hooks="all", system_prompt="Be brief.")
REPEATED = "Incorrect API key provided: test-key. Authorization: Bearer test-key"

SCRIPTS: dict[str, Script] = {
    "an answer": [call("add", a=1, b=2), say("3")],
    "401": [Reply(status=401, text=REPEATED)],
    "400": [call("add", a=1, b=2), Reply(status=400, text=REPEATED)],
    "500 and then an answer": [say("well", failures=(Reply(status=500, text=REPEATED),))],
    "HTML and then an answer": [say("well", failures=(Reply(body=REPEATED, headers={"content-type": "text/html"}),))],
}


def tattle(context: HookContext) -> Changes:
    """Keep all that a hook may know where everybody can read it."""
    return Changes(metadata={context.trigger: context.model_dump_json()[-2_000:]})


TATTLERS = tuple(hook(trigger, name=f"tattle_{trigger}")(tattle) for trigger in Trigger)


@asynccontextmanager
async def ended(serve: Serve, script: Script) -> AsyncGenerator[tuple[Served, str, str]]:
    """Run `script` to whatever end; give the run's id and the error the client told, if any."""
    async with serve(script, offer=Toolset(tools=tuple(tools_at(Gate())), hooks=TATTLERS)) as served:
        told = ""
        id_ = await served.client.start(AGENT, "What is it?")
        try:
            await served.client.result(id_)
        except ExecutionFailed as failed:
            told = f"{failed} {json.dumps(failed.state)}"
        yield served, id_, told


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
async def test_the_api_key_is_nowhere_in_a_runs_records(serve: Serve, script: Script) -> None:
    async with ended(serve, script) as (served, id_, told):
        workflow = served.client.temporal.get_workflow_handle(id_)
        history = [event.SerializeToString() async for event in workflow.fetch_history_events()]
        described = (await workflow.describe()).raw_description.SerializeToString()
        state = json.dumps((await served.client.state(id_)).to_dict()).encode()
        debug = json.dumps(await served.client.debug(id_)).encode()
    assert any(b"What is it?" in event for event in history), "the history is readable, so that a key would be seen"
    assert all(KEY not in record for record in (*history, described, state, debug, told.encode()))


async def test_the_endpoint_really_got_the_key(serve: Serve) -> None:
    def with_key(records: tuple[RequestRecord, ...]) -> bool:
        return any("authorization" in record.headers for record in records)

    async with ended(serve, [say("3")]) as (served, _, _):
        assert with_key(served.endpoint.requests)


def test_a_definition_has_no_place_for_a_key() -> None:
    with pytest.raises((ValueError, InvalidInput), match="api_key"):
        AgentDefinition.model_validate({"name": "a", "llm": {"api_key": "test-key"}})
