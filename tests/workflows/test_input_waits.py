"""MCP servers that ask people in the middle of a call: durable waits, answered once, on the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from holdfast import AgentDefinition
from holdfast.client import Holdfast, Settings, WaitingCall
from holdfast.client.sync import Holdfast as SyncHoldfast
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import DecisionRefused
from holdfast.core.conversation.input_requests import InputAnswer
from holdfast.core.conversation.steps import OpenCall
from holdfast.core.wire.execution_events import InputRequested, InputResolved
from holdfast.core.wire.mcp_contracts import ANSWER_SIGNAL, CallAnswer
from holdfast.testing.script import call, say
from tests.mcp.places import asking, noted, until_noted
from tests.serving import Serve
from tests.workflows.histories import replayed
from tests.workflows.waiting import LOOK_SECONDS, SECONDS_MAX, state_when

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

AGENT = AgentDefinition(name="clerk", mcp=("theatre",))
BOOKS = [call("theatre_book", show="Hamlet"), say("done")]


async def asked(client: Holdfast, execution_id: str, message: str) -> OpenCall:
    """The call that waits for an answer to `message`, once it does."""

    def there(state: AgentState) -> bool:
        requests = [each.input_request for each in state.input_calls]
        return any(each is not None and each.message == message for each in requests)

    [waiting] = (await state_when(client, execution_id, there)).input_calls
    return waiting


async def until(
    look: Callable[[], Awaitable[Iterable[WaitingCall]]], there: Callable[[Iterable[WaitingCall]], bool]
) -> None:
    """Look until it is there: the server lists a run a moment later."""
    async with asyncio.timeout(SECONDS_MAX):
        while not there(tuple(await look())):  # noqa: ASYNC110  # a client is not called back
            await asyncio.sleep(LOOK_SECONDS)


@pytest.mark.slow
async def test_a_form_waits_and_the_call_goes_on_with_the_answers(serve: Serve, tmp_path: Path) -> None:
    ledger = tmp_path / "mcp"
    async with serve(BOOKS, mcp={"theatre": asking(ledger)}) as served:
        client = served.client
        execution_id = await client.start(AGENT, "book")
        waiting = await asked(client, execution_id, "How many seats for Hamlet?")
        with pytest.raises(DecisionRefused, match="'two' does not fit"):
            await client.answer_question(execution_id, waiting.call.id, {"seats": "two"})
        with pytest.raises(DecisionRefused, match="another request"):
            await client.answer_question(execution_id, waiting.call.id, {"seats": 2}, digest="0" * 64)
        with pytest.raises(DecisionRefused, match="waits for no answer"):
            await client.answer_question(execution_id, "nope", {"seats": 2})
        assert await client.answer_question(
            execution_id, waiting.call.id, {"seats": 2, "row": "back"}, by="ann", digest=waiting.digest
        )
        await asked(client, execution_id, "Book 2?")
        assert await client.answer_question(execution_id, waiting.call.id, {"sure": True}, by="ben")
        state = await client.result(execution_id)
        events = [each async for each in client.watch(execution_id)]
        await replayed(client, execution_id)
        history = await client.temporal.get_workflow_handle(execution_id).fetch_history()
    [execution] = state.steps[0].tool_executions
    assert execution.result == "booked 2 for Hamlet"
    assert [(each.action, each.by) for each in execution.inputs] == [("accept", "ann"), ("accept", "ben")]
    lines = [line.rsplit(" ", 1) for line in noted(ledger)]
    assert [line for line, _ in lines] == ["asks seats", "asks sure", "booked 2"]
    assert len({key for _, key in lines}) == 1, "one idempotency key"
    assert [each.request.message for each in events if isinstance(each, InputRequested)] == [
        "How many seats for Hamlet?",
        "Book 2?",
    ]
    assert [each.by for each in events if isinstance(each, InputResolved)] == ["ann", "ben"]
    scheduled = [each.activity_task_scheduled_event_attributes for each in history.events]
    assert [each.activity_id for each in scheduled if each.activity_type.name == "call_mcp_tool"] == [
        "step-1-tool-0",
        "step-1-tool-0-input-1",
        "step-1-tool-0-input-2",
    ]
    shown = state.to_json().decode() + "".join(map(repr, events))
    assert "v1." not in shown, "the server's state is nowhere to be seen"


@pytest.mark.slow
async def test_a_link_is_shown_and_a_refusal_reaches_the_server(serve: Serve, tmp_path: Path) -> None:
    ledger = tmp_path / "mcp"
    async with serve([call("theatre_consent"), say("done")], mcp={"theatre": asking(ledger)}) as served:
        execution_id = await served.client.start(AGENT, "ask")
        waiting = await asked(served.client, execution_id, "Allow access")
        assert waiting.input_request is not None
        assert waiting.input_request.url == "https://example.com/consent?id=7"
        assert await served.client.answer_question(execution_id, waiting.call.id, action="decline")
        state = await served.client.result(execution_id)
    assert state.steps[0].tool_executions[0].result == "decline"


@pytest.mark.slow
async def test_two_requests_at_once_are_answered_one_by_one(serve: Serve, tmp_path: Path) -> None:
    ledger = tmp_path / "mcp"
    async with serve([call("theatre_both"), say("done")], mcp={"theatre": asking(ledger)}) as served:
        execution_id = await served.client.start(AGENT, "ask")
        waiting = await asked(served.client, execution_id, "How many?")
        assert await served.client.answer_question(execution_id, waiting.call.id, {"seats": 3})
        await asked(served.client, execution_id, "Sure?")
        assert await served.client.answer_question(execution_id, waiting.call.id, {"sure": False})
        state = await served.client.result(execution_id)
    assert state.steps[0].tool_executions[0].result == '[{"seats": 3}, {"sure": false}]'
    assert noted(ledger) == ["both"]


@pytest.mark.slow
async def test_of_two_answers_at_once_one_is_taken(serve: Serve, tmp_path: Path) -> None:
    ledger = tmp_path / "mcp"
    async with serve(BOOKS, mcp={"theatre": asking(ledger)}) as served:
        execution_id = await served.client.start(AGENT, "book")
        waiting = await asked(served.client, execution_id, "How many seats for Hamlet?")
        answers = [
            served.client.answer_question(execution_id, waiting.call.id, {"seats": seats}, digest=waiting.digest)
            for seats in (1, 2, 3)
        ]
        results = await asyncio.gather(*answers, return_exceptions=True)
        await served.client.stop(execution_id)
        await served.client.result(execution_id)
    assert [each for each in results if each is True] == [True]
    assert [type(each) for each in results if each is not True] == [DecisionRefused, DecisionRefused]


@pytest.mark.slow
async def test_an_answer_comes_by_signal_too_and_one_that_does_not_fit_is_a_warning(
    serve: Serve, tmp_path: Path
) -> None:
    ledger = tmp_path / "mcp"
    async with serve([call("theatre_both"), say("done")], mcp={"theatre": asking(ledger)}) as served:
        execution_id = await served.client.start(AGENT, "ask")
        waiting = await asked(served.client, execution_id, "How many?")
        handle = served.client.temporal.get_workflow_handle(execution_id)
        for content in ({"seats": 0}, {"seats": 2}, {"sure": True}):
            answer = CallAnswer(call_id=waiting.call.id, answer=InputAnswer(content=content))
            await handle.signal(ANSWER_SIGNAL, answer)
            if "sure" not in content and content["seats"]:
                await asked(served.client, execution_id, "Sure?")
                await handle.signal(ANSWER_SIGNAL, "nonsense")
        state = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    assert state.steps[0].tool_executions[0].result == '[{"seats": 2}, {"sure": true}]'
    warnings = [each for each in state.running.warnings if "accepted" in each]
    assert len(warnings) == 2
    assert "0 is less than 1" in warnings[0]
    assert "`answer` signal" in warnings[1]


@pytest.mark.slow
async def test_an_agents_handle_lists_the_question_and_answers_it_also_without_await(
    serve: Serve, settings: Settings, tmp_path: Path
) -> None:
    ledger = tmp_path / "mcp"
    async with serve([call("theatre_both"), say("done")], mcp={"theatre": asking(ledger)}) as served:
        agent = served.client.agent(None, AGENT)
        await agent.send("ask")
        await until(agent.waiting, lambda calls: len(tuple(calls)) == 1)
        [question] = await agent.waiting()
        assert (question.tool, question.message, question.url) == ("theatre_both", "How many?", None)
        assert question.form is not None
        await until(served.client.waiting, lambda calls: question.call_id in [each.call_id for each in calls])
        assert await agent.answer_question(question.call_id, {"seats": 1}, by="ann", digest=question.digest)

        def without_await() -> bool:
            with SyncHoldfast.connect(settings) as blocking:
                return blocking.agent(agent.agent_id).answer_question(question.call_id, {"sure": True})

        await until(agent.waiting, lambda calls: [each.message for each in calls] == ["Sure?"])
        assert await asyncio.to_thread(without_await)
        await until_noted(ledger, "both")
        await agent.close()


@pytest.mark.slow
async def test_nobody_answers_and_the_model_is_told(serve: Serve, tmp_path: Path) -> None:
    ledger = tmp_path / "mcp"
    async with serve(BOOKS, mcp={"theatre": asking(ledger, answer_seconds=1)}) as served:
        result = await served.client.run(AGENT, "book")
        await replayed(served.client, result.state.running.execution_id)
    [execution] = result.state.steps[0].tool_executions
    assert execution.error is not None
    assert execution.error.type == "InputExpired"
    assert "How many seats for Hamlet?" in execution.error.message
    assert len(noted(ledger)) == 1


@pytest.mark.slow
async def test_a_stop_ends_the_wait(serve: Serve, tmp_path: Path) -> None:
    ledger = tmp_path / "mcp"
    async with serve(BOOKS, mcp={"theatre": asking(ledger)}) as served:
        execution_id = await served.client.start(AGENT, "book")
        waiting = await asked(served.client, execution_id, "How many seats for Hamlet?")
        await served.client.stop(execution_id, "enough")
        state = await served.client.result(execution_id)
        assert not await served.client.answer_question(execution_id, waiting.call.id, {"seats": 2})
        await replayed(served.client, execution_id)
    assert state.status is ExecutionStatus.STOPPED


@pytest.mark.slow
async def test_a_server_that_never_ends_asking_and_one_with_a_huge_state_fail_the_call(
    serve: Serve, tmp_path: Path
) -> None:
    ledger = tmp_path / "mcp"
    script = [call("theatre_insist"), call("theatre_insist", size=70_000), say("done")]
    async with serve(script, mcp={"theatre": asking(ledger)}) as served:
        result = await served.client.run(AGENT, "insist")
    often, huge = (step.tool_executions[0].error for step in result.state.steps[:2])
    assert often is not None
    assert huge is not None
    assert "more than 10 times" in often.message
    assert "at most 65,536 are kept" in huge.message
    assert len(noted(ledger)) == 12
