"""`holdfast chat`: a conversation with one agent, in a terminal or line by line through pipes."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.client.cli import render
from holdfast.client.cli.approvals import login
from holdfast.client.cli.asking import joined
from holdfast.client.cli.options import AgentsDir, AsJson, Policy, TaskQueue, with_server
from holdfast.client.cli.runs import STOPPED
from holdfast.client.cli.sessions import shown_answer
from holdfast.client.settings import Settings
from holdfast.core.errors import InvalidInput
from holdfast.core.limits import QUESTION_BYTES_MAX
from holdfast.core.session_contracts import WhileRunning

if TYPE_CHECKING:
    from holdfast.client import Agent

INTERRUPTED = 130


@with_server
def chat(
    agent: Annotated[
        str | None, typer.Argument(help="A name in the agents folder, or a definition file: what a new agent is.")
    ] = None,
    *,
    agent_id: Annotated[
        str | None, typer.Option("--id", help="The agent to talk with; a new one without it.", metavar="ID")
    ] = None,
    while_running: Policy = None,
    as_json: AsJson = False,
    agents_dir: AgentsDir = None,
    task_queue: TaskQueue = None,
    settings: Settings,
) -> None:
    """Talk with an agent. Ctrl-C stops what it does, Ctrl-D leaves; the agent lives on."""
    if agent is None and agent_id is None:
        raise InvalidInput("which agent? name a definition (a new agent), or an agent with --id")
    raise typer.Exit(asyncio.run(_chat(settings, agent, agent_id, while_running, as_json=as_json)))


async def _chat(
    settings: Settings, name: str | None, agent_id: str | None, while_running: WhileRunning | None, *, as_json: bool
) -> int:
    agent = (await joined(settings)).agent(agent_id, name)
    view = await agent.open()
    back = f"holdfast chat --id {agent.agent_id}"
    render.hint(f"agent {agent.agent_id} ({view.definition.name}); it lives on: {back}")
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return await _lines(agent, while_running, as_json=as_json)
    from holdfast.client.cli.conversation import Conversation
    from holdfast.client.cli.keyboard import Leaving

    try:
        await Conversation(agent, while_running, login()).hold()
    except Leaving as leaving:
        render.hint(f"the agent lives on: {back}")
        return INTERRUPTED if leaving.interrupted else 0
    return 0


async def _lines(agent: Agent, while_running: WhileRunning | None, *, as_json: bool) -> int:
    """Answer line by line; the first that comes to no answer is the last, and says so with its exit code."""
    lines = _standard_input()
    while (line := await lines.get()) is not None:
        if not line.strip():
            continue
        receipt = await agent.send(line, while_running=while_running)
        if shown_answer(agent, receipt, await agent.answer(receipt), as_json=as_json):
            return STOPPED
    return 0


def _standard_input() -> asyncio.Queue[str | None]:
    """Return the lines of standard input as they come, none at its end; a thread waits for them."""
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        while line := sys.stdin.readline(QUESTION_BYTES_MAX + 1):
            loop.call_soon_threadsafe(lines.put_nowait, line.rstrip("\n"))
        loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    return lines
