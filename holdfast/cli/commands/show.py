"""`holdfast show`: a run as it is now, or one of its views: transcript, steps, events, main facts."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast.cli.busy_indicator import ASKING, busy
from holdfast.cli.command_context import connected, page_of, resolve_id
from holdfast.cli.options import AsJson, RunOrAgentId, with_server
from holdfast.cli.output_file import writable, write
from holdfast.cli.screens import output, pending_calls, run_views, session_views
from holdfast.connection.settings import Settings
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.errors import InvalidInput
from holdfast.core.wire.contracts import PageRequest
from holdfast.core.wire.execution_events import AnyObserved

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.client.run_source import RunSource

MESSAGES_ALONE: Final = PageRequest(steps_total=0)
STEPS_ALONE: Final = PageRequest(messages_total=0)

RECONSTRUCTED: Final = "no worker can report the run's events any more: these are reconstructed from its state"

ENDED: Final = "the server has ended this run ({})"


@with_server()
def show(
    execution_id: RunOrAgentId,
    *,
    transcript: Annotated[bool, typer.Option("--transcript", help="The conversation, message by message.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="A table of the steps: calls, times, tokens, cost.")] = False,
    events: Annotated[bool, typer.Option("--events", help="The run's events so far, one per line.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="The main facts.")] = False,
    attachment: Annotated[
        int | None, typer.Option("--attachment", help="The file of that number, written to --out.", metavar="N", min=1)
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", help="With --attachment: the file to write.", metavar="FILE")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --attachment: overwrite an existing file.")] = False,
    full: Annotated[bool, typer.Option("--full", help="With --transcript: do not cut long texts.")] = False,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Show a run: status, steps, answer, errors; or one of its views. A session's id shows the session."""
    flags = {"transcript": transcript, "steps": steps, "events": events, "debug": debug}
    view = _one_of([name for name, chosen in flags.items() if chosen])
    if full and view != "transcript":
        raise InvalidInput("--full works only with --transcript; add it")
    if attachment is not None:
        out = _output_file(view, out)
        asyncio.run(_write_attachment(settings, execution_id, attachment, out, force=force, as_json=as_json))
        return
    if out is not None or force:
        raise InvalidInput("--out and --force work only with --attachment; add it")
    asyncio.run(_show(settings, execution_id, view, full=full, as_json=as_json))


def _output_file(view: str | None, out: str | None) -> str:
    """Return the file to write an attachment to. Raises InvalidInput without one, and beside a view."""
    if view is not None:
        raise InvalidInput(f"--{view} and --attachment are different views of a run; choose one of them")
    if not out:
        raise InvalidInput("--attachment needs a file to write to; add --out FILE")
    return out


async def _write_attachment(settings: Settings, id_: str, number: int, out: str, *, force: bool, as_json: bool) -> None:
    file = writable(out, force=force)
    from holdfast.client.run_source import RunSource

    with busy("reading the run"):
        holdfast = await connected(settings)
        id_, is_session = await resolve_id(holdfast, id_)
        run = await RunSource.find(holdfast, await _run_of(holdfast, id_) if is_session else id_)
        files = output.run_files(await run.whole())
        if number > len(files):
            there = (
                f"it has {len(files)}, numbered from 1"
                if files
                else "none came with its messages, and its tools have attached none"
            )
            raise InvalidInput(f"run {run.execution_id} has no attachment {number}: {there}")
        chosen = files[number - 1]
        data = await holdfast.attachment(chosen)
    write(file, data, force=force)
    if as_json:
        output.as_json({"execution_id": run.execution_id, "file": str(file), **chosen.model_dump(mode="json")})
    else:
        output.say(f"wrote {file} ({chosen.name}, {chosen.media_type}, {len(data):,} bytes)")


def _one_of(names: list[str]) -> str | None:
    if len(names) > 1:
        options = " and ".join(f"--{name}" for name in names)
        raise InvalidInput(f"{options} are different views of a run; choose one of them")
    return names[0] if names else None


async def _show(settings: Settings, id_: str, view: str | None, *, full: bool, as_json: bool) -> None:
    with busy(ASKING):
        holdfast = await connected(settings)
        id_, is_session = await resolve_id(holdfast, id_)
    if view is None:
        await (_session if is_session else _whole)(holdfast, id_, as_json=as_json)
        return
    from holdfast.client.run_source import RunSource

    with busy("looking for the run"):
        run = await RunSource.find(holdfast, await _run_of(holdfast, id_) if is_session else id_)
    if not run.begun:
        await _not_begun(run, as_json=as_json)
        return
    if run.source == "record":
        output.hint("the server has forgotten this run, or no worker answers for it: read from its record")
    if run.ended_as:
        output.hint(f"{ENDED.format(run.ended_as)}: it is shown as it was left")
    match view:
        case "transcript":
            await _transcript(run, full=full, as_json=as_json)
        case "steps":
            await _steps(run, as_json=as_json)
        case "events":
            await _events(run, as_json=as_json)
        case _:
            facts = await run.debug()
            output.as_json(facts) if as_json else run_views.debug(facts)


async def _session(holdfast: Holdfast, agent_id: str, *, as_json: bool) -> None:
    with busy("asking a worker"):
        view, calls = await pending_calls.of_session(holdfast, agent_id)
    session_views.print_session(view, calls, as_json=as_json)


async def _whole(holdfast: Holdfast, execution_id: str, *, as_json: bool) -> None:
    from holdfast.client.run_source import RunSource
    from holdfast.client.watch_events import to_dict

    with busy("reading the run"):
        run = await RunSource.find(holdfast, execution_id)
        if not run.begun:
            await _not_begun(run, as_json=as_json)
            return
        state, wait, limited, awaited, below = (
            await run.whole(),
            await run.model_wait(),
            await run.rate_wait(),
            await run.awaited_workers(),
            await pending_calls.or_hint(run.waiting_below()),
        )
    state = run.at_end(state)
    if run.ended_as:
        below = None
    if as_json:
        waits: dict[str, object] = {} if wait is None else {"model_wait": to_dict(wait)}
        if limited is not None:
            waits["rate_limit_awaited"] = to_dict(limited)
        if awaited:
            waits["workers_awaited"] = [to_dict(each) for each in awaited]
        if below:
            waits["subagents_waiting"] = [output.json_line(each) for each in below]
        ended = {"status": run.ended_as} if run.ended_as else {}
        output.as_json({**output.outcome(state), **ended, **waits, "state": state.to_dict()})
    else:
        page = await page_of(holdfast, execution_id) if run.record is None else None
        output.whole(state, page, agent=run.agent, status=run.ended_as)
        pending_calls.print_waiting(below)
        for each in awaited:
            output.say(f"{each.tool} {each.line}")
        if limited is not None:
            output.say(f"the model call {limited.line}")
        if wait is not None:
            output.say(wait.line(datetime.now(UTC)))


async def _not_begun(run: RunSource, *, as_json: bool) -> None:
    """Print what a run waits for that has no state yet, or none that can be read: every view would be empty."""
    from holdfast.client.watch_events import to_dict
    from holdfast.connection.rpc_errors import paused

    if run.is_paused and run.listed is not None:
        output.as_json(output.json_line(run.listed)) if as_json else output.say(str(paused(run.execution_id)))
        return
    if run.ended_as:
        line = {"execution_id": run.execution_id, "status": run.ended_as}
        output.as_json(line) if as_json else output.say(f"{ENDED.format(run.ended_as)}: it had not begun yet")
        return
    wait = await run.model_wait()
    if as_json:
        waits: dict[str, object] = {} if wait is None else {"model_wait": to_dict(wait)}
        output.as_json({"execution_id": run.execution_id, "status": str(ExecutionStatus.PENDING), **waits})
        return
    output.say(f"run {run.execution_id} has not begun yet")
    output.say(wait.line(datetime.now(UTC)) if wait is not None else "it waits for the tools of its agent")


async def _run_of(holdfast: Holdfast, agent_id: str) -> str:
    """Return the run that the agent has under way, else its last one."""
    view = await holdfast.agent(agent_id).view()
    execution_id = view.running_id or view.last_id
    if execution_id is None:
        raise InvalidInput(f"agent {agent_id} has had no run yet; send it a message first")
    return execution_id


async def _transcript(run: RunSource, *, full: bool, as_json: bool) -> None:
    """Print the messages page by page, each as it comes."""
    from holdfast.view.report import message_data

    printed = run_views.Transcript(full=full)
    read = 0
    async with aclosing(run.pages(MESSAGES_ALONE)) as pages:
        async for page in pages:
            for message in page.messages:
                section = _section_at(read, [each.name for each in page.head.store.sections], page.sections)
                read += 1
                output.as_json(message_data(section, message)) if as_json else printed.show(section, message)
    if not as_json:
        printed.end()


def _section_at(place: int, names: list[str], lengths: tuple[int, ...]) -> str:
    """Return the section in which the message at this place of all of them stands."""
    for name, length in zip(names, lengths, strict=True):
        if place < length:
            return name
        place -= length
    return names[-1]


async def _steps(run: RunSource, *, as_json: bool) -> None:
    """Print a row per step page by page, the one under way last."""
    from holdfast.view.run_view import completed_step, current_step

    table = run_views.Steps()
    head = None
    async with aclosing(run.pages(STEPS_ALONE)) as pages:
        async for page in pages:
            head = head or page.head
            for done in page.steps:
                row = completed_step(done)
                output.as_json(row.model_dump(mode="json")) if as_json else table.show(row)
    under_way = current_step(head) if head is not None else None
    if under_way is not None:
        output.as_json(under_way.model_dump(mode="json")) if as_json else table.show(under_way)
    if not as_json and head is not None:
        table.end(run.at_end(head), status=run.ended_as)


async def _events(run: RunSource, *, as_json: bool) -> None:
    """Print the events page by page."""
    from holdfast.cli.screens.run_progress import EventLines
    from holdfast.client.watch_events import to_dict

    lines = EventLines()

    def show(event: AnyObserved) -> None:
        output.as_json(to_dict(event)) if as_json else lines.show(event)

    with busy("asking a worker"):
        available = await run.has_events()
    if not available:
        output.hint(RECONSTRUCTED)
        for event in await run.reconstructed_events():
            show(event)
        return
    async with aclosing(run.events()) as events:
        async for event in events:
            show(event)
