"""`holdfast records | record | rewind | fork | tree`: what agents have done, and continuing from any point of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from holdfast.cli.command_context import agent_id_of, ask_agent, ask_server, run_id_of
from holdfast.cli.options import AgentId, AsJson, ExecutionId, Limit, with_server
from holdfast.cli.screens import output, run_views, session_views
from holdfast.cli.shell_completion import run_ids
from holdfast.connection.settings import Settings
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.messages import DEFAULT_SECTION
from holdfast.core.wire.records import ExecutionRecord

if TYPE_CHECKING:
    from holdfast.client import AgentHandle, Holdfast
    from holdfast.view.run_view import RunView

Place: TypeAlias = Annotated[
    int | None, typer.Option("--steps", help="After this many steps of the run; its end by default.", min=0)
]


@with_server()
def records(agent_id: AgentId, *, limit: Limit = 20, as_json: AsJson = False, settings: Settings) -> None:
    """List the records of an agent's runs, newest first."""

    async def ask(holdfast: Holdfast) -> list[ExecutionRecord]:
        return await holdfast.records(limit, await agent_id_of(holdfast, agent_id))

    entries = ask_server(settings, ask)
    if as_json:
        output.as_json([each.model_dump(mode="json") for each in entries])
    else:
        session_views.records(entries)


@with_server()
def record(
    execution_id: ExecutionId,
    *,
    transcript: Annotated[
        bool, typer.Option("--transcript", help="Print the conversation as it stood at the run's end.")
    ] = False,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Show the record of an ended run, even after the server has deleted the run."""

    async def ask(holdfast: Holdfast) -> tuple[ExecutionRecord, AgentState | None]:
        entry = await holdfast.record(await run_id_of(holdfast, execution_id))
        return entry, await holdfast.recorded_state(entry) if transcript else None

    entry, state = ask_server(settings, ask)
    if as_json:
        output.as_json(_json(entry, state))
        return
    session_views.record(entry)
    if state is not None:
        output.console().print()
        printed = run_views.Transcript(full=True)
        for each in state.messages:
            printed.show(DEFAULT_SECTION, each)


@with_server()
def rewind(
    agent_id: AgentId,
    execution_id: Annotated[
        str, typer.Argument(metavar="EXECUTION", help="One of the agent's runs, a UUID.", autocompletion=run_ids)
    ],
    *,
    steps: Place = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Rewind an agent to the end of one of its runs, or to a step of it. What its tools did is not undone."""
    view = ask_agent(settings, agent_id, lambda agent: agent.rewind(execution_id, steps))
    if view.place is not None and not as_json:
        output.say(f"now {session_views.place(view.place)}")
    session_views.print_session(view, as_json=as_json)


@with_server()
def fork(
    agent_id: AgentId,
    *,
    execution_id: Annotated[
        str | None,
        typer.Option(
            "--execution",
            help="The run to fork from; the last one by default.",
            metavar="ID",
            autocompletion=run_ids,
        ),
    ] = None,
    steps: Place = None,
    new_id: Annotated[str | None, typer.Option("--id", help="A UUID of your own for the new agent.")] = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Create another agent from where an agent is or was, and print its id. The two are independent."""

    async def ask(agent: AgentHandle) -> str:
        return (await agent.fork(execution_id, steps, agent_id=new_id)).agent_id

    forked = ask_agent(settings, agent_id, ask)
    output.as_json({"agent_id": forked}) if as_json else output.say(forked)


@with_server()
def tree(execution_id: ExecutionId, *, as_json: AsJson = False, settings: Settings) -> None:
    """Show a run with the runs of its subagents: status, steps, tokens, cost, time."""
    from holdfast.view.run_tree import to_dict
    from holdfast.view.run_tree import tree as grown

    async def ask(holdfast: Holdfast) -> RunView:
        return await grown(holdfast, await run_id_of(holdfast, execution_id))

    root = ask_server(settings, ask)
    output.as_json(to_dict(root)) if as_json else session_views.tree(root)


def _json(entry: ExecutionRecord, state: AgentState | None) -> dict[str, Any]:
    data: dict[str, Any] = entry.model_dump(mode="json")
    if state is None:
        return data
    return {**data, "messages": [each.model_dump(mode="json", exclude={"items"}) for each in state.messages]}
