"""`holdfast send | sessions`: talking to agents that live on between their runs, and finding them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import uuid4

import typer

from holdfast.cli.approval_hints import approval_hints
from holdfast.cli.busy_indicator import busy
from holdfast.cli.command_context import agent_id_of, asked, joined, metadata_of, read
from holdfast.cli.commands.runs import STOPPED
from holdfast.cli.options import AgentId, AsJson, Limit, Metadata, Policy, Query, with_server
from holdfast.cli.screens import output, session_views
from holdfast.cli.shell_completion import agent_names
from holdfast.cli.worker_wait import when_served
from holdfast.connection.settings import Settings
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ExecutionFailed, HoldfastError
from holdfast.core.wire.session_contracts import Receipt, SessionView

if TYPE_CHECKING:
    from holdfast.client import AgentHandle, Holdfast, SessionSummary

AT_ONCE_MAX: Final = 16
"""How many sessions are looked at side by side."""

LOOK_SECONDS_MAX: Final = 3.0
"""How long a listing waits for what only workers know."""


@with_server("agents_dir", "modules", "task_queue")
def send(
    agent_id: AgentId,
    text: Annotated[str, typer.Argument(help="What to say to it; - reads standard input.")],
    *,
    agent: Annotated[
        str | None,
        typer.Option(
            help="A name in the agents folder, or a file: what the agent is if it is new.", autocompletion=agent_names
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the answer, or print the receipt.")] = True,
    message_id: Annotated[str | None, typer.Option(help="The message's id: the same one twice is one message.")] = None,
    while_running: Policy = None,
    metadata: Metadata = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Say something to an agent, and print its answer. Exit code 0 answered, 3 stopped, 4 failed."""
    words, given = read(text), metadata_of(metadata)
    id_ = str(uuid4()) if message_id is None else message_id  # sent again, it is the same message

    async def say(to: AgentHandle) -> Receipt:
        return await to.send(words, message_id=id_, while_running=while_running, metadata=given)

    raise typer.Exit(asyncio.run(_send(settings, agent_id, agent, say, wait=wait, as_json=as_json)))


@with_server()
def sessions(
    *,
    limit: Limit = 20,
    query: Query = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """List the latest sessions: agents that live on between their runs."""
    found = asked(settings, lambda holdfast: _looked_at(holdfast, limit, query))
    if as_json:
        output.as_json([session_views.session_line(*each) for each in found])
    else:
        session_views.sessions(
            found, none=output.NONE_MATCHES.format("session") if query else session_views.NO_SESSIONS
        )


async def _looked_at(
    holdfast: Holdfast, limit: int, query: str | None
) -> list[tuple[SessionSummary, SessionView | None]]:
    """Return the sessions, and of those on the server what they are, as far as workers say it in time."""
    found = await holdfast.sessions(limit, query)
    at_once = asyncio.Semaphore(AT_ONCE_MAX)
    session_views: dict[str, SessionView] = {}

    async def look(agent: AgentHandle) -> None:
        with suppress(HoldfastError):
            async with at_once:
                session_views[agent.agent_id] = await agent.view()

    looking = [asyncio.create_task(look(holdfast.agent(each.agent_id))) for each in found if each.updated_at is None]
    if looking:
        await asyncio.wait(looking, timeout=LOOK_SECONDS_MAX)
    for each in looking:
        each.cancel()
    return [(each, session_views.get(each.agent_id)) for each in found]


async def _send(
    settings: Settings,
    agent_id: str,
    definition: str | None,
    say: Callable[[AgentHandle], Awaitable[Receipt]],
    *,
    wait: bool,
    as_json: bool,
) -> int:
    with busy("sending the message") as sending:
        holdfast = await joined(settings)
        agent = holdfast.agent(await agent_id_of(holdfast, agent_id), definition)
        receipt = await when_served(holdfast, lambda: say(agent), sending, "the message")
    if not wait:
        output.as_json(session_views.receipt_line(agent.agent_id, receipt)) if as_json else session_views.receipt(
            receipt
        )
        return 0
    try:
        return await answered(agent, receipt, as_json=as_json)
    except ExecutionFailed:
        raise
    except (asyncio.CancelledError, HoldfastError):
        again = f"holdfast send {agent.agent_id} --message-id {receipt.message_id} TEXT"
        output.hint(f"the message is kept and will be answered; the same again waits for it: {again}")
        raise


async def answered(agent: AgentHandle, receipt: Receipt, *, as_json: bool) -> int:
    """Wait for a message's answer and print it; return the exit code that says what it came to."""
    try:
        with busy("waiting for the answer") as showing:
            async with approval_hints(agent.watch(), showing):
                state = await agent.answer(receipt)
    except ExecutionFailed as error:
        if not as_json or error.state is None:
            raise
        told = _line(agent, receipt, AgentState.from_dict(error.state))
        output.as_json({**told, "error": error.to_dict()})
        return error.exit_code
    stopped = state.status is ExecutionStatus.STOPPED
    if as_json:
        output.as_json(_line(agent, receipt, state))
    elif stopped:
        output.ended(state)
    else:
        output.say(state.final_response or "")
    return STOPPED if stopped else 0


def _line(agent: AgentHandle, receipt: Receipt, state: AgentState) -> dict[str, Any]:
    """Return what a message came to, JSON-ready."""
    return {"agent_id": agent.agent_id, "message_id": receipt.message_id, **output.outcome(state)}
