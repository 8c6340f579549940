"""`holdfast send | sessions`: sending messages to agents, and listing sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import uuid4

import typer

from holdfast.cli.approval_hints import approval_hints
from holdfast.cli.busy_indicator import busy
from holdfast.cli.command_context import agent_id_of, ask_server, connected, metadata_of, read_text, refuse_other_tenant
from holdfast.cli.commands.runs import STOPPED
from holdfast.cli.options import AgentId, AsJson, Attach, Limit, Metadata, Policy, Query, Tenant, with_server
from holdfast.cli.screens import output, session_views
from holdfast.cli.shell_completion import agent_names
from holdfast.cli.worker_wait import when_served
from holdfast.connection.settings import Settings
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ExecutionFailed, HoldfastError, SessionClosed, SessionRefused
from holdfast.core.wire.session_contracts import Receipt, SessionView
from holdfast.runtime.files.message_files import message_files

if TYPE_CHECKING:
    from holdfast.client import AgentHandle, Holdfast, SessionSummary

AT_ONCE_MAX: Final = 16
"""How many sessions are looked at side by side."""

LOOK_SECONDS_MAX: Final = 3.0
"""How long a listing waits for what only workers know."""


@with_server("agents_dir", "modules", "task_queue")
def send(
    agent_id: AgentId,
    text: Annotated[str, typer.Argument(help="The message; - reads standard input.")],
    *,
    agent: Annotated[
        str | None,
        typer.Option(
            help="Creates a new agent: a name in the agents folder, or a definition file.", autocompletion=agent_names
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the answer, or print the receipt.")] = True,
    message_id: Annotated[str | None, typer.Option(help="The message's id; the same id twice is one message.")] = None,
    while_running: Policy = None,
    metadata: Metadata = None,
    attach: Attach = None,
    tenant: Tenant = "",
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Send a message to an agent and print its answer. Exit code 0 answered, 3 stopped, 4 failed."""
    files = message_files(attach or ())
    message, run_metadata = read_text(text), metadata_of(metadata)
    id_ = str(uuid4()) if message_id is None else message_id  # sent again, it is the same message

    async def say(to: AgentHandle) -> Receipt:
        if tenant:
            refuse_other_tenant(await to.open(), tenant)
        return await to.send(
            message, message_id=id_, while_running=while_running, metadata=run_metadata, attachments=files
        )

    raise typer.Exit(asyncio.run(_send(settings, agent_id, agent, tenant, say, wait=wait, as_json=as_json)))


@with_server()
def sessions(
    *,
    limit: Limit = 20,
    query: Query = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """List sessions: agents that live on between their runs."""
    rows = ask_server(settings, lambda holdfast: _with_views(holdfast, limit, query))
    if as_json:
        output.as_json([session_views.session_line(*each) for each in rows])
    else:
        session_views.sessions(rows, none=output.NONE_MATCHES.format("session") if query else session_views.NO_SESSIONS)


async def _with_views(
    holdfast: Holdfast, limit: int, query: str | None
) -> list[tuple[SessionSummary, SessionView | None]]:
    """Return the sessions, and of those on the server what they are, as far as workers say it in time."""
    summaries = await holdfast.sessions(limit, query)
    at_once = asyncio.Semaphore(AT_ONCE_MAX)
    session_views: dict[str, SessionView] = {}

    async def look(agent: AgentHandle) -> None:
        with suppress(HoldfastError):
            async with at_once:
                session_views[agent.agent_id] = await agent.view()

    looking = [
        asyncio.create_task(look(holdfast.agent(each.agent_id))) for each in summaries if each.updated_at is None
    ]
    if looking:
        await asyncio.wait(looking, timeout=LOOK_SECONDS_MAX)
    for each in looking:
        each.cancel()
    return [(each, session_views.get(each.agent_id)) for each in summaries]


async def _send(
    settings: Settings,
    agent_id: str,
    definition: str | None,
    tenant: str,
    say: Callable[[AgentHandle], Awaitable[Receipt]],
    *,
    wait: bool,
    as_json: bool,
) -> int:
    with busy("sending the message") as sending:
        holdfast = await connected(settings)
        agent = holdfast.agent(await agent_id_of(holdfast, agent_id), definition, tenant=tenant)
        receipt = await when_served(holdfast, lambda: say(agent), sending, "the message", agent.agent_id)
    if not wait:
        output.as_json(session_views.receipt_line(agent.agent_id, receipt)) if as_json else session_views.receipt(
            receipt
        )
        return 0
    try:
        return await print_answer(agent, receipt, as_json=as_json)
    except (ExecutionFailed, SessionClosed, SessionRefused):  # that one will not be answered
        raise
    except (asyncio.CancelledError, HoldfastError):
        again = f"holdfast send {agent.agent_id} --message-id {receipt.message_id} TEXT"
        output.hint(f"the message is stored and will be answered; to wait for its answer: {again}")
        raise


async def print_answer(agent: AgentHandle, receipt: Receipt, *, as_json: bool) -> int:
    """Wait for a message's answer and print it; return the exit code that says what it came to."""
    try:
        with busy("waiting for the answer") as indicator:
            async with approval_hints(agent.watch(), indicator):
                state = await agent.answer(receipt)
    except ExecutionFailed as error:
        if not as_json or error.state is None:
            raise
        outcome = _line(agent, receipt, AgentState.from_dict(error.state))
        output.as_json({**outcome, "error": error.to_dict()})
        return error.exit_code
    stopped = state.status is ExecutionStatus.STOPPED
    if as_json:
        output.as_json(_line(agent, receipt, state))
    elif stopped:
        output.ended(state)
    else:
        if state.execution and state.execution.handoffs:
            output.hint(f"{state.active_agent} answers from here on")
        output.say(state.final_response or "")
    return STOPPED if stopped else 0


def _line(agent: AgentHandle, receipt: Receipt, state: AgentState) -> dict[str, Any]:
    """Return what a message came to, JSON-ready."""
    return {"agent_id": agent.agent_id, "message_id": receipt.message_id, **output.outcome(state)}
