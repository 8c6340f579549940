"""`holdfast run | stop | list`: starting, stopping and listing runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final
from uuid import uuid4

import typer
from pydantic import JsonValue

from holdfast.cli.approval_hints import approval_hints
from holdfast.cli.busy_indicator import ASKING, BusyIndicator, busy
from holdfast.cli.command_context import ask_server, connected, metadata_of, page_of, read_text, resolve_id, state_of
from holdfast.cli.limit_options import with_limits
from holdfast.cli.options import AsJson, Attach, Metadata, Query, Tenant, UnderWayId, with_server
from holdfast.cli.screens import output
from holdfast.cli.screens.run_progress import Steps
from holdfast.cli.shell_completion import agent_names
from holdfast.client.start_state import InitialState
from holdfast.client.watch_events import TextDelta, ToolProgressed
from holdfast.connection.settings import Settings
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ExecutionFailed, HoldfastError, InvalidInput, ServerUnavailable
from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.core.wire.execution_events import ApprovalRequested, InputRequested
from holdfast.runtime.files.message_files import GivenFile, message_files

if TYPE_CHECKING:
    from holdfast.client import Holdfast

STOPPED: Final = 3


@with_server("agents_dir", "modules", "task_queue")
@with_limits()
def run(
    agent: Annotated[
        str,
        typer.Argument(help="The agent's name in the agents folder, or a definition file.", autocompletion=agent_names),
    ],
    question: Annotated[
        str, typer.Argument(help="What to do; - reads standard input. Optional only with --from.")
    ] = "",
    *,
    from_file: Annotated[
        str | None,
        typer.Option(
            "--from", help="Continue from the state in this file, as `holdfast export` writes it.", metavar="FILE"
        ),
    ] = None,
    budget: ExecutionBudget,
    execution_id: Annotated[str | None, typer.Option("--id", help="A UUID of your own for the run.")] = None,
    metadata: Metadata = None,
    attach: Attach = None,
    tenant: Tenant = "",
    detach: Annotated[bool, typer.Option("--detach", help="Start it, print its id, and do not wait.")] = False,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Start a run and follow it to its end. Exit code 0 completed, 3 stopped, 4 failed."""
    if question == from_file == "-":
        raise InvalidInput("standard input can be the question or the state, not both; name a file with --from")
    state = None if from_file is None else state_of(from_file)
    files = message_files(attach or ())
    start = _Start(agent, read_text(question), state, budget, execution_id, metadata_of(metadata), tenant, files)
    raise typer.Exit(asyncio.run(_run(settings, start, detach=detach, as_json=as_json)))


@with_server()
def stop(
    execution_id: UnderWayId,
    *,
    reason: Annotated[str, typer.Option(help="Why; kept with the run.")] = "",
    after_step: Annotated[bool, typer.Option("--after-step", help="Let the step under way finish first.")] = False,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Stop a run; with a session's id, its run under way."""
    mode: StopMode = "after_step" if after_step else "now"

    async def ask(holdfast: Holdfast) -> tuple[str, bool, str]:
        id_, is_session = await resolve_id(holdfast, execution_id)
        if not is_session:
            accepted = await holdfast.stop(id_, reason, mode=mode, source="cli")
            return id_, accepted, f"run {id_} had already ended"
        running_id = (await holdfast.agent(id_).stop(reason, mode=mode, source="cli")).running_id
        return running_id or id_, running_id is not None, f"agent {id_} has no run under way"

    id_, stopping, otherwise = ask_server(settings, ask)
    if as_json:
        output.as_json({"execution_id": id_, "stop_requested": stopping})
    else:
        output.say(f"stop requested for {id_}" if stopping else otherwise)


@with_server()
def list_runs(
    *,
    limit: Annotated[int, typer.Option(help="At most this many.")] = 20,
    query: Query = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only runs with calls that wait for a person.")] = False,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """List runs: those under way first, then the latest to end."""
    summaries = ask_server(settings, lambda holdfast: holdfast.runs(limit, query, waiting=waiting))
    if as_json:
        output.as_json([output.json_line(each) for each in summaries])
    else:
        nothing = "no run waits for a person" if waiting else output.NO_RUNS
        output.table(summaries, none=output.NONE_MATCHES.format("run") if query else nothing)


@dataclass(frozen=True, slots=True)
class _Start:
    """What is to be started."""

    agent: str
    question: str
    state: AgentState | None
    budget: ExecutionBudget
    execution_id: str | None
    metadata: Mapping[str, JsonValue]
    tenant: str
    attachments: Sequence[GivenFile]


async def _run(settings: Settings, start: _Start, *, detach: bool, as_json: bool) -> int:
    resumed = InitialState(start.state).execution_id if start.state else None
    chosen = start.execution_id or resumed or str(uuid4())
    try:
        with busy("starting the run"):
            client = await connected(settings)
            started = await client.start(
                start.agent,
                start.question,
                state=start.state,
                budget=start.budget,
                execution_id=chosen,
                metadata=start.metadata,
                tenant=start.tenant,
                attachments=start.attachments,
            )
    except asyncio.CancelledError:
        output.hint(f"the run may have started anyway: holdfast show {chosen}, holdfast stop {chosen}")
        raise
    if detach:
        output.as_json({"execution_id": started}) if as_json else output.say(started)
        return 0
    try:
        with busy(ASKING):
            await _look_for_worker(client)
        state = await _followed(client, started, await page_of(client, started), as_json=as_json)
    except asyncio.CancelledError:
        output.hint(f"the run continues: holdfast show {started}, holdfast stop {started}")
        raise
    except ExecutionFailed:
        raise
    except HoldfastError:
        output.hint(f"the run has started but is no longer followed: holdfast show {started}")
        raise
    return STOPPED if state.status is ExecutionStatus.STOPPED else 0


async def _look_for_worker(client: Holdfast) -> None:
    """Say so when no worker takes new runs; the run is there in any case."""
    from holdfast.client.worker_presence import unserved

    queue = client.settings.task_queue
    try:
        if (target := await unserved(client.temporal, queue)) is not None:
            output.hint(f"{target.problem}: the run waits for {target.command}")
    except HoldfastError as error:
        output.hint(f"cannot tell whether a worker serves the task queue {queue!r}: {error}")


async def _followed(client: Holdfast, execution_id: str, page: str | None, *, as_json: bool) -> AgentState:
    """Show the steps as they come and return the final state; raise ExecutionFailed."""
    if as_json:
        try:
            with busy("the run is under way") as indicator:
                async with approval_hints(client.watch(execution_id), indicator):
                    state = await client.result(execution_id)
        except ExecutionFailed as error:
            if error.state is None:
                raise
            output.as_json({**output.outcome(AgentState.from_dict(error.state)), "error": error.to_dict()})
            raise typer.Exit(error.exit_code) from None
        output.as_json(output.outcome(state))
        return state
    output.started(execution_id, page)
    steps = Steps(live=sys.stdout.isatty())
    # beside the watch: one after the other would wait twice for a server that is away
    ending = asyncio.create_task(client.result(execution_id))
    try:
        with busy("waiting for a worker") as waiting:
            told = False
            with suppress(ServerUnavailable):  # the end can be known where no worker is left to tell what led to it
                await _show_steps(client, execution_id, steps, waiting)
                told = True
            waiting.done()
            steps.end()
            try:
                final = await ending
            except ServerUnavailable:
                if not told:
                    raise
                final = await client.result(execution_id)  # its worker was away, and has told the end since
    finally:
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
    output.ended(final, answer=steps.streamed != (final.final_response or output.partial_text(final)))
    return final


async def _show_steps(client: Holdfast, execution_id: str, steps: Steps, waiting: BusyIndicator) -> None:
    async with aclosing(client.watch(execution_id)) as watched:
        async for each in watched:
            if each.execution_id != execution_id:
                if isinstance(each, ApprovalRequested | InputRequested):
                    waiting.done()
                    output.hint(output.wait_text(each))
                continue
            if isinstance(each, TextDelta) and not steps.live:
                continue
            if isinstance(each, ToolProgressed):
                steps.show(each)
                waiting.change(steps.doing)
                continue
            waiting.done()
            steps.show(each)
            if not steps.within_text:
                waiting.show_later(steps.doing)
