"""The client on a real Temporal server: starting once, reading what is large, following, stopping, refusing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
from pydantic import JsonValue
from temporalio.client import Client as TemporalClient

from holdfast.client import ExecutionSummary, Holdfast, Settings
from holdfast.connection import workflow_reader
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import (
    DEFINITION_BYTES_MAX,
    QUESTION_BYTES_MAX,
    REASON_CHARS_MAX,
    SOURCE_CHARS_MAX,
    TOOL_RESULT_CHARS_MAX,
)
from holdfast.core.base.errors import (
    ExecutionExists,
    ExecutionFailed,
    ExecutionNotFound,
    InvalidInput,
    ServerUnavailable,
)
from holdfast.core.conversation.stop_reasons import StopMode, StopReason
from holdfast.core.tools.tools import tool
from holdfast.core.wire.contracts import STATE_QUERY, PageRequest, StatePage
from holdfast.core.wire.result_contracts import ExecutionResult
from holdfast.storage.data_converter import converter
from holdfast.testing.script import Reply, call, say
from tests.serving import Serve, served

pytestmark = pytest.mark.temporal

CLERK = AgentDefinition(name="clerk", tools="all")
NOBODY = "00000000-0000-4000-8000-000000000000"
STARTS = 20
FOLLOWED_RUNS = 8
LARGE_STEPS = 24
"""Results of 50,000 characters, which make a transcript of more than one megabyte."""


@tool
def large(number: int) -> str:
    """Return a long text that depends on the number."""
    return f"{number:04} " * (TOOL_RESULT_CHARS_MAX // 5)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# --- starting


async def test_of_many_starts_with_one_id_one_starts_the_run(settings: Settings) -> None:
    clients = await asyncio.gather(*(Holdfast.connect(settings) for _ in range(STARTS)))
    chosen = str(uuid4())
    starts = (client.start(CLERK, f"from {number}", execution_id=chosen) for number, client in enumerate(clients))
    outcomes = await asyncio.gather(*starts, return_exceptions=True)
    assert outcomes.count(chosen) == 1
    refused = [outcome for outcome in outcomes if isinstance(outcome, ExecutionExists)]
    assert len(refused) == STARTS - 1
    assert {chosen in str(error) and "already exists" in str(error) for error in refused} == {True}
    assert await clients[0].stop(chosen)


async def test_an_id_of_a_run_that_has_ended_stays_taken(serve: Serve) -> None:
    async with serve([say("done")]) as at_work:
        chosen = (await at_work.client.run(CLERK, "once")).execution_id
        with pytest.raises(ExecutionExists):
            await at_work.client.start(CLERK, "twice", execution_id=chosen.upper())


@pytest.mark.parametrize(
    "question",
    [
        "🧑‍🚀🏴󠁧󠁢󠁳󠁣󠁴󠁿 what is this?",
        "\u202eمرحبا, שלום\u202c",
        "a\0b",
        " \n\tindented\r\n",
        "\u2028\ufeff\u0085 \x1b[31m",
        "é" * (QUESTION_BYTES_MAX // 2),
    ],
    ids=["emoji", "right to left", "NUL", "blanks", "odd", "128 KB"],
)
async def test_a_question_arrives_as_it_was_asked(serve: Serve, question: str) -> None:
    async with serve([say("yes")]) as at_work:
        state = await at_work.client.run(CLERK, question)
        assert state.output == "yes"
        assert state.messages[0].content == question
        asked = at_work.endpoint.requests[-1].body["messages"]
        assert asked == [{"role": "user", "content": question}]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("", "empty"),
        (" \n\t\u3000", "empty"),
        ("a\ud800b", "not valid Unicode"),
        ("\udcff", "not valid Unicode"),
        ("x" * (QUESTION_BYTES_MAX + 1), "131,073 bytes, at most 131,072"),
        ("é" * (QUESTION_BYTES_MAX // 2) + "x", "131,073 bytes, at most 131,072"),
        ("\x01" * QUESTION_BYTES_MAX, "bytes as JSON, at most 262,144 are allowed; shorten"),
    ],
    ids=["empty", "blank", "half a character", "one byte", "one too many", "one too many bytes", "escapes"],
)
async def test_a_question_that_cannot_be_asked_starts_nothing(settings: Settings, question: str, words: str) -> None:
    client, chosen = await Holdfast.connect(settings), str(uuid4())
    with pytest.raises(InvalidInput, match=words):
        await client.start(CLERK, question, execution_id=chosen)
    with pytest.raises(ExecutionNotFound):
        await client.stop(chosen)


async def test_a_definition_that_cannot_travel_starts_nothing(settings: Settings) -> None:
    client, chosen = await Holdfast.connect(settings), str(uuid4())
    with pytest.raises(InvalidInput, match=r"at most 65,536 are allowed; shorten its prompt"):
        await client.start(
            AgentDefinition(name="a", tools="all", system_prompt="x" * DEFINITION_BYTES_MAX), "hi", execution_id=chosen
        )
    odd = AgentDefinition(name="a", tools="all").model_copy(
        update={"metadata": {"by": "\ud800"}}
    )  # as no file can hold it
    with pytest.raises(InvalidInput, match="Unicode"):
        await client.start(odd, "hi", execution_id=chosen)
    with pytest.raises(ExecutionNotFound):
        await client.stop(chosen)


BAD_IDS = {
    "empty": "",
    "long": "x" * 1001,
    "path": "/../",
    "newline": f"{NOBODY}\n",
    "NUL": f"{NOBODY}\0",
    "half a character": "\ud800",
    "braces": f"{{{NOBODY}}}",
    "urn": f"urn:uuid:{NOBODY}",
    "other digits": "٠" * 8 + NOBODY[8:],
}
ASKED: dict[str, Callable[[Holdfast, str], Awaitable[object]]] = {
    "start": lambda client, bad: client.start(CLERK, "hi", execution_id=bad),
    "state": lambda client, bad: client.state(bad),
    "debug": lambda client, bad: client.debug(bad),
    "result": lambda client, bad: client.result(bad),
    "stop": lambda client, bad: client.stop(bad),
    "follow": lambda client, bad: anext(client.follow(bad)),
}


class Unasked:
    """In place of a connection: any call of it is a fault."""

    data_converter = converter("memory://", None)

    def __getattr__(self, name: str) -> Callable[..., None]:
        def called(*_: object, **__: object) -> None:
            raise AssertionError(f"Temporal was asked: {name}")

        return called


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("bad", BAD_IDS.values(), ids=BAD_IDS)
async def test_a_bad_id_is_refused_before_temporal_is_asked(
    asked: Callable[[Holdfast, str], Awaitable[object]], bad: str
) -> None:
    client = Holdfast(cast("TemporalClient", Unasked()), Settings())
    with pytest.raises(InvalidInput) as caught:
        await asked(client, bad)
    assert "is not a UUID" in str(caught.value) or "is not an id of a run, the beginning of one" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


# --- reading


@pytest.mark.slow
async def test_a_run_begins_at_one_moment_whenever_it_is_read(serve: Serve) -> None:
    """A question during the first workflow task moves the end of `resolve_tools` into the second one, live only."""
    async with serve([say("3", delay_seconds=0.4)], [add]) as at_work:
        client = at_work.client

        async def begin() -> tuple[datetime, datetime, datetime]:
            chosen = await client.start(CLERK, "what is 1+2?")
            lived = [state.running.started_at async for state in client.follow(chosen) if state.execution]
            handle = client.temporal.get_workflow_handle(chosen)
            replayed = await handle.query(STATE_QUERY, PageRequest(), result_type=StatePage)
            return lived[0], lived[-1], replayed.head.running.started_at

        begun = await asyncio.gather(*(begin() for _ in range(FOLLOWED_RUNS)))
    assert [len(set(moments)) for moments in begun] == [1] * FOLLOWED_RUNS, begun


@pytest.mark.slow
async def test_a_large_run_is_read_by_pages_and_is_whole(serve: Serve) -> None:
    script = [call("large", number=number) for number in range(LARGE_STEPS)]
    async with serve([*script, say("read it all")], [large]) as at_work:
        chosen = await at_work.client.start(CLERK, "read")
        followed = [state async for state in at_work.client.follow(chosen)]
        result = await at_work.client.result(chosen)
        handle = at_work.client.temporal.get_workflow_handle(chosen, result_type=ExecutionResult)
        assert (await handle.result()).state is None, "it fits a result and proves nothing"
        state = await at_work.client.state(chosen)
    assert differences(result.to_dict(), state.to_dict()) == []
    assert (followed[-1].messages, followed[-1].status) == (result.messages, result.status)
    assert len(result.model_dump_json()) > 1_000_000
    told = [message.content for message in result.messages if message.role == "tool"]
    assert told == [large(number) for number in range(LARGE_STEPS)]
    assert (result.status, result.step_count) == (ExecutionStatus.COMPLETED, LARGE_STEPS + 1)
    for earlier, later in pairwise(followed):
        assert later.steps[: earlier.step_count] == earlier.steps, "a step was lost or changed"
        assert later != earlier


def differences(one: JsonValue, other: JsonValue, path: str = "") -> list[str]:
    """Return the places where two JSON values differ: pytest's own comparison of megabytes takes minutes."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted({*one, *other})
        return [each for name in names for each in differences(one.get(name), other.get(name), f"{path}.{name}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [each for index, (left, right) in pairs for each in differences(left, right, f"{path}[{index}]")]
    return [] if one == other else [f"{path}: {str(one)[:80]} is not {str(other)[:80]}"]


@pytest.mark.slow
async def test_a_follower_waits_out_the_absence_of_a_worker(settings: Settings, serve: Serve) -> None:
    brief = WorkerSettings(grace_seconds=0.1)  # it does not wait for the model call under way
    client = await Holdfast.connect(settings)
    chosen = await client.start(CLERK, "what is 1+2?")
    seen: list[AgentState] = []
    away = asyncio.Event()

    async def follow() -> None:
        async for state in client.follow(chosen):
            seen.append(state)
            if state.step_count:
                away.set()

    following = asyncio.create_task(follow())
    assert not await client.has_worker()
    # The second model call does not end while the first worker is there.
    async with serve([call("add", a=1, b=2), say("3", delay_seconds=600)], [add], serving=brief) as first:
        await first.endpoint.until(lambda requests: len(requests) == 2)
        await away.wait()
        assert await client.has_worker()
    async with serve([call("add", a=1, b=2), say("3")], [add]) as second:
        await following
        assert len(second.endpoint.requests) == 1
    assert [seen[-1].status, seen[-1].final_response] == [ExecutionStatus.COMPLETED, "3"]
    assert seen[-1].step_count == 2


async def test_a_follower_is_told_the_end_where_no_worker_is_left(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve([call("add", a=1, b=2), say("3")], [add]) as served:
        chosen, client = await served.client.start(CLERK, "what is 1+2?"), served.client
        final = await client.result(chosen)
    monkeypatch.setattr(workflow_reader, "ASK_TIMEOUT", timedelta(seconds=0.5))
    assert [state async for state in client.follow(chosen)] == [final]


async def test_a_follower_of_no_run_is_told_so(settings: Settings) -> None:
    client = await Holdfast.connect(settings)
    with pytest.raises(ExecutionNotFound, match=f"no run {NOBODY} on this server; `holdfast list`"):
        await anext(client.follow(NOBODY))


async def test_what_only_a_worker_knows_is_not_waited_for_without_end(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await Holdfast.connect(settings)
    chosen = await client.start(CLERK, "hi")
    monkeypatch.setattr(workflow_reader, "ASK_TIMEOUT", timedelta(seconds=0.5))
    with pytest.raises(ServerUnavailable, match="no worker answers"):
        await client.state(chosen)


# --- failing


async def test_a_failed_run_is_raised_with_its_state(serve: Serve) -> None:
    async with serve([call("add", a=1, b=2), Reply(status=401, text="no such key")], [add]) as at_work:
        with pytest.raises(ExecutionFailed) as caught:
            await at_work.client.run(CLERK, "what is 1+2?")
    assert "answered 401: no such key" in str(caught.value)
    assert str(caught.value).endswith("; check OPENAI_API_KEY of the worker")
    assert caught.value.state is not None
    state = AgentState.from_dict(caught.value.state)
    assert (state.status, state.stop_reason) == (ExecutionStatus.FAILED, StopReason.ERROR)
    assert [error.type for error in state.errors] == ["NotAuthorised"]
    assert [message.content for message in state.messages if message.role == "tool"] == ["3"]


async def test_a_run_whose_tools_are_not_there_fails_with_its_state(serve: Serve) -> None:
    async with serve([say("never asked")], [add]) as at_work:
        with pytest.raises(ExecutionFailed, match="did you mean 'add'") as caught:
            await at_work.client.run(AgentDefinition(name="a", tools=("ad",)), "what is 1+2?")
        assert at_work.endpoint.requests == ()
    assert caught.value.state is not None
    state = AgentState.from_dict(caught.value.state)
    assert (state.status, state.stop_reason) == (ExecutionStatus.FAILED, StopReason.ERROR)
    assert [error.type for error in state.errors] == ["UnknownTool"]


async def test_a_run_ended_by_the_server_is_raised_as_such(settings: Settings) -> None:
    client = await Holdfast.connect(settings)
    chosen = await client.start(CLERK, "hi")
    await client.temporal.get_workflow_handle(chosen).terminate(reason="by hand")
    with pytest.raises(ExecutionFailed, match=f"run {chosen} failed: .*by hand"):
        await client.result(chosen)
    [line] = [each for each in await client.runs(1000) if each.execution_id == chosen]
    assert line.status == "terminated"


# --- stopping and listing


async def test_a_stop_of_no_run_is_told_and_of_an_ended_one_is_not_taken(serve: Serve) -> None:
    async with serve([say("done")]) as at_work:
        with pytest.raises(ExecutionNotFound, match=f"no run {NOBODY} on this server; `holdfast list`"):
            await at_work.client.stop(NOBODY, "why not")
        state = await at_work.client.run(CLERK, "hi")
        assert await at_work.client.stop(state.execution_id) is False


@pytest.mark.parametrize(("reason", "words"), [("x" * (REASON_CHARS_MAX + 1), "1,001"), ("\udcff", "Unicode")])
async def test_a_reason_that_cannot_be_kept_stops_nothing(settings: Settings, reason: str, words: str) -> None:
    client = await Holdfast.connect(settings)
    chosen = await client.start(CLERK, "hi")
    with pytest.raises(InvalidInput, match=words):
        await client.stop(chosen, reason)
    assert await client.stop(chosen, "x" * REASON_CHARS_MAX)


async def test_what_only_a_type_checker_would_have_noticed_is_refused_in_our_words(settings: Settings) -> None:
    client = await Holdfast.connect(settings)
    with pytest.raises(InvalidInput, match="the budget is a dict; give ExecutionBudget"):
        await client.start(CLERK, "hi", budget=cast("ExecutionBudget", {"max_steps": 3}))
    with pytest.raises(InvalidInput, match=r"the stop is not valid: .*mode"):
        await client.stop(NOBODY, mode=cast("StopMode", "later"))
    with pytest.raises(InvalidInput, match=r"the stop is not valid: .*source"):
        await client.stop(NOBODY, source="x" * (SOURCE_CHARS_MAX + 1))


async def test_a_stop_before_any_worker_is_there_is_kept(settings: Settings, serve: Serve) -> None:
    client = await Holdfast.connect(settings)
    chosen = await client.start(CLERK, "hi")
    assert await client.stop(chosen, "changed my mind \0 \u202e")
    async with serve([say("never asked")]) as at_work:
        state = await at_work.client.result(chosen)
        assert at_work.endpoint.requests == ()
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    assert state.stop_signal is not None
    assert state.stop_signal.message == "changed my mind \0 \u202e"


async def listed_as_ended(client: Holdfast, execution_id: str) -> ExecutionSummary:
    """Wait until the server's lists, which come late, have the run's end."""
    while True:
        for each in await client.runs(1000):
            if each.execution_id == execution_id and each.status == "completed":
                return each
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_the_list_tells_a_run_s_facts(serve: Serve) -> None:
    began = datetime.now(UTC)
    async with serve([call("add", a=1, b=2), say("3")], [add]) as at_work:
        state = await at_work.client.run(
            AgentDefinition(name="lister", tools="all", llm=LLM(model="x")), "what is 1+2?"
        )
        line = await listed_as_ended(at_work.client, state.execution_id)
    assert line.agent == "lister"
    assert (line.status, line.stop_reason, line.steps, line.tokens) == ("completed", "completed", 2, 240)
    assert line.closed_at is not None
    assert began.timestamp() - 1 < line.started_at.timestamp() <= line.closed_at.timestamp()


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_list_has_its_bounds(settings: Settings, limit: int) -> None:
    client = await Holdfast.connect(settings)
    with pytest.raises(InvalidInput, match="between 1 and 1,000"):
        await client.runs(limit)


# --- a server that is not ours


@pytest.mark.slow
async def test_a_server_without_our_search_attributes_does_all_but_name_the_agent(
    plain_server: str, tmp_path: Path
) -> None:
    settings = Settings(address=plain_server, task_queue="plain")
    async with served(
        settings, tmp_path / "ledger.jsonl", [call("add", a=1, b=2), say("3")], Toolset(tools=(add,))
    ) as here:
        state = await here.client.run(CLERK, "what is 1+2?")
        again = await here.client.start(CLERK, "what is 1+2?", budget=ExecutionBudget(max_steps=1))
        assert [each.status async for each in here.client.follow(again)][-1] is ExecutionStatus.STOPPED
        assert await here.client.stop(again) is False
        lines = {line.execution_id: line for line in await here.client.runs()}
    assert (state.status, state.state.final_response) == (ExecutionStatus.COMPLETED, "3")
    assert set(lines) == {state.execution_id, again}
    line = lines[state.execution_id]
    assert (line.agent, line.status, line.steps, line.tokens) == (None, "completed", None, None)
