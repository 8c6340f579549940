"""Questions of an agent to a person: answered on a real server by a program and by the command, and in-process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import AgentDefinition
from holdfast.client import Settings
from holdfast.core.base.errors import DecisionRefused, InvalidInput
from holdfast.core.conversation.input_requests import InputAnswer, InputRequest
from holdfast.core.conversation.messages import ToolCall
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel
from holdfast.testing.script import Call, calls, say
from tests.capabilities.twin import assert_same_in_process
from tests.cli.program import Project, beside
from tests.serving import Serve
from tests.workflows.histories import replayed
from tests.workflows.test_input_waits import asked

AGENT = AgentDefinition(name="clerk", capabilities=("ask_user",))
ASKS = calls(Call("ask_user", {"question": "Which one?", "choices": ["red", "blue"]}))
SCRIPT = [ASKS, say("done")]


@pytest.mark.temporal
@pytest.mark.timeout(180)
async def test_a_question_waits_on_the_server_and_its_answer_goes_to_the_model(serve: Serve) -> None:
    async def answer(_call: ToolCall, _request: InputRequest) -> InputAnswer:
        return InputAnswer(content={"answer": "blue"}, by="ann")

    async with serve(SCRIPT) as served:
        client = served.client
        execution_id = await client.start(AGENT, "Go.")
        waiting = await asked(client, execution_id, "Which one?")
        with pytest.raises(DecisionRefused, match="'green' is no option"):
            await client.answer_question(execution_id, waiting.call.id, {"answer": "green"})
        assert await client.answer_question(
            execution_id, waiting.call.id, {"answer": "blue"}, by="ann", digest=waiting.digest
        )
        state = await client.result(execution_id)
        told = served.endpoint.requests[-1].body["messages"][-1]["content"]
        await replayed(client, execution_id)
    assert told == "blue"
    await assert_same_in_process(AGENT, SCRIPT, state, answer_input=answer)


@pytest.mark.temporal
@pytest.mark.timeout(240)
async def test_a_question_is_shown_and_answered_by_the_command(
    serve: Serve, settings: Settings, tmp_path: Path
) -> None:
    project = Project(tmp_path, beside(settings))
    async with serve(SCRIPT) as served:
        run = await served.client.start(AGENT, "Go.")
        await asked(served.client, run, "Which one?")
        shown = await asyncio.to_thread(project.run, "answer", run)
        assert shown.code != 0
        assert "the agent asks, for ask_user of run" in shown.err
        assert "answer (one of red, blue)" in shown.err
        done = await asyncio.to_thread(project.run, "answer", run, "--set", "answer=blue")
        assert done.code == 0, done.err
        state = await served.client.result(run)
    assert state.steps[0].tool_executions[0].result == "blue"


@pytest.mark.temporal
@pytest.mark.timeout(180)
async def test_a_question_expires_on_the_server_and_the_model_is_told(serve: Serve) -> None:
    async with serve(SCRIPT) as served:
        agent = AGENT.model_copy(update={"answer_seconds": 0.5})
        state = (await served.client.run(agent, "Go.")).state
    assert state.steps[0].tool_executions[0].error_message.endswith("nobody answered in time")


async def test_without_anybody_to_answer_the_driver_refuses_the_agent() -> None:
    with pytest.raises(InvalidInput, match="nobody is here to answer; give the driver answer_input="):
        LocalDriver(AGENT, model=ScriptedModel(SCRIPT))


async def test_an_answerer_that_raises_or_never_fits_leaves_the_question_without_an_answer() -> None:
    tries: list[str] = []

    async def wrong(_call: ToolCall, request: InputRequest) -> InputAnswer:
        tries.append(request.message)
        return InputAnswer(content={"answer": "green"})

    async def broken(_call: ToolCall, _request: InputRequest) -> InputAnswer:
        raise RuntimeError("the desk is closed")

    for answerer in (wrong, broken):
        driver = LocalDriver(AGENT, model=ScriptedModel(SCRIPT), answer_input=answerer)
        state = await driver.execute("Go.")
        assert state.steps[0].tool_executions[0].result == "[the person left the question without an answer]"
    assert tries == ["Which one?"] * 3


async def test_a_question_expires_in_process_too() -> None:
    async def never(_call: ToolCall, _request: InputRequest) -> InputAnswer:
        await asyncio.Event().wait()
        return InputAnswer()

    agent = AGENT.model_copy(update={"answer_seconds": 0.2})
    state = await LocalDriver(agent, model=ScriptedModel(SCRIPT), answer_input=never).execute("Go.")
    assert state.steps[0].tool_executions[0].error_message.endswith("nobody answered in time")
