"""Two hundred short calls: every exit code as documented, no traceback, every `--json` answer JSON."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest

from holdfast.client import Holdfast
from holdfast.core.base.errors import ExecutionFailed
from tests.cli.calls import AWAY, NOBODY, OLD, calls, said
from tests.cli.page import rows
from tests.cli.program import Ended, Project, Running
from tests.workflows.waiting import waiting_calls

HEAVY = ("temporalio", "openai", "textual", "aiohttp", "cryptography", "opentelemetry", "prompt_toolkit", "obstore")


async def _ended(client: Holdfast, agent: str, *, stop: bool = False) -> str:
    """Start a run and return its id when it has ended."""
    execution_id = await client.start(agent, "hello")
    if stop:
        await client.stop(execution_id, "enough")
    try:
        await client.result(execution_id)
    except ExecutionFailed:
        assert agent == "refused"
    return execution_id


AT_ONCE = 3
"""So many calls run at the same time."""


async def _stage(project: Project, folder: Path) -> dict[str, tuple[str, ...]]:
    """Return what the words in the table stand for, all of it there."""
    client = await Holdfast.connect(project.settings)
    holdfast = client
    agent, idle, closed = (holdfast.agent(str(uuid4()), "clerk") for _ in range(3))
    waiting = await client.start("careful", "hello")
    ends = _ended(client, "assistant"), _ended(client, "slow", stop=True), _ended(client, "refused")
    done, stopped, failed = await asyncio.gather(*ends)
    await asyncio.gather(*(each.ask("hello") for each in (agent, idle, closed)), waiting_calls(client, waiting))
    await closed.close()
    (folder / "there.json").write_text("{}", encoding="utf-8")
    named = {"DONE": done, "STOPPED": stopped, "FAILED": failed, "WAITING": waiting, "AGENT": agent.agent_id}
    more = {"IDLE": idle.agent_id, "CLOSED": closed.agent_id, "NOBODY": NOBODY, "FOLDER": str(folder)}
    return {**{name: (value,) for name, value in {**named, **more}.items()}, "OLD": OLD, "AWAY": AWAY}


async def _cleared(project: Project, waiting: str) -> None:
    """Stop the run that waits, and return when it is listed no more: other tests list what waits, too."""
    client = await Holdfast.connect(project.settings)
    await client.stop(waiting, "the test is over")
    await client.result(waiting)
    until = monotonic() + 90
    while waiting in await _listed(client) and monotonic() < until:  # noqa: ASYNC110  # a client is not called back
        await asyncio.sleep(0.1)


async def _listed(client: Holdfast) -> set[str]:
    found = await client.waiting(100)
    return {*(each.execution_id for each in found), *found.unread}


def problem(words: tuple[str, ...], code: int, ended: Ended) -> str | None:
    """Return what is wrong with how a call went; none when nothing is."""
    told = f"`holdfast {' '.join(words)}` ended with {ended.code}: {ended.err.strip()[:300]} {ended.out[:200]!r}"
    if ended.code != code:
        return f"{told}; {code} is documented"
    if "Traceback" in ended.err + ended.out:
        return told
    if "--json" not in words:
        return None if code in (0, 3) or ended.err.startswith("error: ") or "\nerror: " in ended.err else told
    try:
        documents = [json.loads(line) for line in ended.out.splitlines()]
    except ValueError:
        return f"{told}; that is no JSON"
    failed = code not in (0, 3)
    return None if documents and (not failed or "error" in documents[-1]) else told


@pytest.mark.slow
@pytest.mark.temporal
@pytest.mark.timeout(300)
def test_every_call_ends_as_documented(project: Project, dev: Running, tmp_path: Path) -> None:  # noqa: ARG001  # its server
    table = [*calls()]
    assert len(table) >= 200
    assert {code for _, code in table} <= {int(row[0]) for row in rows("When something is wrong")}
    names = asyncio.run(_stage(project, tmp_path))

    def called(each: tuple[tuple[str, ...], int]) -> str | None:
        words, code = said(each[0], names), each[1]
        return problem(words, code, project.run(*words))

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            problems = [each for each in pool.map(called, table) if each]
    finally:
        asyncio.run(_cleared(project, *names["WAITING"]))
    assert not problems, "\n".join(problems)
    assert sorted(each.suffix for each in tmp_path.iterdir()) == [".html", ".json", ".json", ".md", ".txt"]


@pytest.mark.slow
def test_the_program_starts_without_what_only_some_commands_need() -> None:
    told = "import sys, holdfast.cli.main; print(*{each.partition('.')[0] for each in sys.modules})"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=90, check=True)
    assert set(done.stdout.split()).isdisjoint(HEAVY)
