"""A script of Code Mode whose worker is killed again and again makes the same calls, each under one key."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id
from holdfast.core.loop.calls.nested_calls import NESTED_INDEX_MIN
from holdfast.core.tools.code_mode import RUN_CODE, CodeMode
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import call, say
from tests.chaos.processes import worker
from tests.workflows.histories import replayed

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(900)]

AGENT = AgentDefinition(name="coder", tools=("note",), code=CodeMode(only=True))
CALLS = 40
KILLS = 10
LOOK_SECONDS = 0.02
PROGRESS_SECONDS_MAX = 120.0

SCRIPT = f"""
import asyncio, random
noted = []
for start in range(0, {CALLS}, 2):
    pair = [note(text=f"{{n}}-{{random.random()}}", seconds=0.05) for n in (start, start + 1)]
    noted += await asyncio.gather(*pair)
print(len(noted))
"""


@pytest.mark.slow
async def test_a_script_whose_worker_is_killed_ten_times_makes_the_same_forty_calls_once_each(
    settings: Settings, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "tools.jsonl")
    async with FakeOpenAI([call(RUN_CODE, code=SCRIPT), say("done")]) as endpoint:
        client = await Holdfast.connect(settings)
        id_ = await client.start(AGENT, "note forty things")
        for kill in range(KILLS):
            async with worker(settings, endpoint, ledger.path) as process:
                async with asyncio.timeout(PROGRESS_SECONDS_MAX):
                    while keys_of(ledger) < kill * 3 + 2:  # noqa: ASYNC110  # a file tells nobody that it has grown
                        await asyncio.sleep(LOOK_SECONDS)
                process.kill()
            assert keys_of(ledger) < CALLS, "the script was to be under way"
        async with worker(settings, endpoint, ledger.path):
            state = await client.result(id_)
        await replayed(client, id_)
    assert state.status is ExecutionStatus.COMPLETED
    script, *nested = state.running.step_executions[0].step.tool_executions
    assert (script.result, len(nested)) == (str(CALLS), CALLS)
    entries = ledger.entries(name="note")
    texts = {(each.key, str(each.detail["text"])) for each in entries}
    expected = [named_id(id_, call_name(1, NESTED_INDEX_MIN + number)) for number in range(1, CALLS + 1)]
    assert sorted(key for key, _ in texts) == sorted(expected), "each call has one key, and each key one text"
    assert [str(each.args["text"]).split("-")[0] for each in nested] == [str(n) for n in range(CALLS)]


def keys_of(ledger: Ledger) -> int:
    return len({each.key for each in ledger.entries()})
