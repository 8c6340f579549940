"""`holdfast waiting | approve | deny | edit`: the tool calls that wait for a person, and deciding about them."""

from __future__ import annotations

import getpass
import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from pydantic import ValidationError

from holdfast.cli.command_context import ask_server, resolve_id
from holdfast.cli.options import AsJson, UnderWayId, with_server
from holdfast.cli.screens import output, pending_calls
from holdfast.cli.tool_arguments import typed_arguments
from holdfast.connection.settings import Settings
from holdfast.core.base.call_digest import SHORT_CHARS, short_digest
from holdfast.core.base.errors import DecisionRefused, ExecutionNotFound, InvalidInput, ServerUnavailable
from holdfast.core.base.frozen import replace
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.steps import OpenCall
from holdfast.core.conversation.verdicts import Decision, Verdict

if TYPE_CHECKING:
    from holdfast.client import AgentHandle, Holdfast

CallId: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="[CALL]", help="The call's id; not needed while one call waits.")
]
By: TypeAlias = Annotated[str | None, typer.Option(help="Who decides; your login name by default.")]
Digest: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help=f"The call's digest, or its first {SHORT_CHARS} digits; a call with another digest is left undecided.",
        metavar="HEX",
    ),
]


@with_server()
def waiting(
    *,
    limit: Annotated[int, typer.Option(help="At most this many.")] = 20,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """List the tool calls that wait for a person, in all runs, the longest wait first."""
    calls = ask_server(settings, lambda holdfast: holdfast.waiting(limit))
    if as_json:
        output.as_json({"calls": [output.json_line(each) for each in calls], "unread": list(calls.unread)})
        return
    pending_calls.table(calls)
    pending_calls.unread(calls)


@with_server()
def approve(
    execution_id: UnderWayId,
    call_id: CallId = None,
    *,
    digest: Digest = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve without showing the call first.")] = False,
    by: By = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Approve a waiting tool call; without `--digest` it is shown in full and you are asked to confirm."""
    verdict = _verdict("approve", by)
    look = None if yes or digest is not None else partial(_review, ask=not as_json and is_terminal())
    _decide(settings, execution_id, call_id, verdict, digest, as_json=as_json, look=look)


@with_server()
def edit(
    execution_id: UnderWayId,
    call_id: CallId = None,
    *,
    arguments: Annotated[str, typer.Option(help="All arguments of the call, as a JSON object.", metavar="JSON")],
    digest: Digest = None,
    by: By = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Run a waiting tool call with other arguments."""
    verdict = _verdict("edit", by, arguments=arguments)
    _decide(settings, execution_id, call_id, verdict, digest, as_json=as_json)


@with_server()
def deny(
    execution_id: UnderWayId,
    call_id: CallId = None,
    *,
    reason: Annotated[str, typer.Option(help="Why; the model is told.")] = "",
    digest: Digest = None,
    by: By = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Deny a waiting tool call; the model is told."""
    verdict = _verdict("deny", by, reason=reason)
    _decide(settings, execution_id, call_id, verdict, digest, as_json=as_json)


def _verdict(decision: Decision, by: str | None, *, reason: str = "", arguments: str | None = None) -> Verdict:
    try:
        edited = None if arguments is None else typed_arguments(arguments)
        return Verdict(decision=decision, by=login() if by is None else by, reason=reason, arguments=edited)
    except ValidationError as error:
        raise InvalidInput(f"the decision cannot be used: {problems_text(error)}") from None
    except ValueError as error:
        raise InvalidInput(f"--arguments: {error}") from None


def login() -> str:
    """Return the name under which one decides; empty where there is none."""
    with suppress(OSError, KeyError):  # there is no such name everywhere
        return getpass.getuser()
    return ""


def _decide(
    settings: Settings,
    reference: str,
    call_id: str | None,
    verdict: Verdict,
    digest: str | None,
    *,
    as_json: bool,
    look: Callable[[str, OpenCall], None] | None = None,
) -> None:
    """Decide about the call that is meant, once `look` has shown it."""

    async def choose(holdfast: Holdfast) -> tuple[str, OpenCall]:
        client = holdfast
        execution_id, is_session = await resolve_id(client, reference)
        if is_session:
            execution_id = await run_under_way(holdfast.agent(execution_id))
        return execution_id, await _chosen(client, execution_id, call_id, digest)

    execution_id, chosen = ask_server(settings, choose)
    if look is not None:
        look(execution_id, chosen)
    # bound to the call as it was read here: should another one wait under its id meanwhile, nothing is decided
    bound = replace(verdict, digest=chosen.call.digest, tool_digest=chosen.tool_digest)
    accepted = ask_server(settings, lambda holdfast: holdfast.decide(execution_id, chosen.call.id, bound))
    if as_json:
        about = {"execution_id": execution_id, "call_id": chosen.call.id, "digest": chosen.call.digest}
        output.as_json({**about, "decision": verdict.decision, "taken": accepted})
    else:
        ran = chosen.call if verdict.arguments is None else replace(chosen.call, arguments=verdict.arguments)
        summary = f"{verdict.decision}: {ran.name}({ran.arguments_text}) {ran.id} of run {execution_id}"
        output.say(summary if accepted else f"run {execution_id} had already ended")


def _review(execution_id: str, chosen: OpenCall, *, ask: bool) -> None:
    """Show a call whole before it is approved, and ask; InvalidInput where nobody is there to be asked."""
    call = chosen.call
    about = pending_calls.whole(execution_id, call)
    if ask:
        output.paged(about)
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before the call could be read decides nothing
        try:
            agreed = typer.confirm("approve this call?")
        except typer.Abort:  # Ctrl-C, or the end of the input
            output.say("")
            output.hint("nothing was decided")
            raise
        if not agreed:
            output.hint("nothing was decided")
            raise typer.Exit(1)
        return
    output.hint(about)
    remedy = f"check the call {call.id} ({call.name}) above and pass --digest {short_digest(call.digest)}"
    raise InvalidInput(f"nothing was decided; {remedy}, or approve it unseen with --yes")


def is_terminal() -> bool:
    """Return whether a person is there to be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


async def run_under_way(agent: AgentHandle) -> str:
    """Return the run that an agent has under way; DecisionRefused when there is none."""
    view = await agent.view()
    if view.running_id is None:
        raise DecisionRefused(f"nothing waits; agent {agent.agent_id} has no run under way ({view.status})")
    return view.running_id


async def _chosen(client: Holdfast, execution_id: str, call_id: str | None, digest: str | None) -> OpenCall:
    """Return the call that is meant. Raises DecisionRefused for none or another one, InvalidInput for several."""
    state = await client.state(execution_id)
    if state.status.is_terminal:
        raise DecisionRefused(f"nothing waits; run {execution_id} has ended ({state.status})")
    matches = [each for each in state.waiting_calls if call_id in (None, each.call.id)]
    if not matches:
        for each in (each for each in state.input_calls if call_id in (None, each.call.id)):
            question = f"the call {each.call.id} ({each.call.name}) waits for an answer, which no decision gives"
            raise DecisionRefused(f"{question}; fill its form in with: holdfast answer {execution_id} {each.call.id}")
        what = "no call waits" if call_id is None else f"no call {call_id[:80]!r} waits"
        below = (
            await _listing_below(client, execution_id) if state.execution and state.execution.subagents_started else ""
        )
        raise DecisionRefused(f"{what}; {_listing(execution_id, state.waiting_calls)}{below}")
    if len(matches) > 1:
        raise InvalidInput(f"name the call; {_listing(execution_id, state.waiting_calls)}")
    _check_digest(digest, matches[0])
    return matches[0]


def _check_digest(digest: str | None, chosen: OpenCall) -> None:
    if digest is None:
        return
    prefix, actual = digest.lower(), chosen.call.digest
    if len(prefix) < SHORT_CHARS or not set(prefix) <= set("0123456789abcdef"):
        raise InvalidInput(f"--digest is {digest[:80]!r}; give at least {SHORT_CHARS} hexadecimal digits")
    if not actual.startswith(prefix):
        mismatch = (
            f"the call {chosen.call.id} ({chosen.call.name}) has the digest {short_digest(actual)}, not {digest[:80]!r}"
        )
        raise DecisionRefused(f"{mismatch}: it is not the call that you looked at; nothing was decided")


def _listing(execution_id: str, calls: Sequence[OpenCall]) -> str:
    names = ", ".join(f"{each.call.id} ({each.call.name})" for each in calls) or "none"
    return f"waiting in run {execution_id}: {names}"


async def _listing_below(client: Holdfast, execution_id: str) -> str:
    """Return which calls of its subagents wait: each is decided by the subagent's own id."""
    from holdfast.client.waiting_calls import waiting_below

    with suppress(ServerUnavailable, ExecutionNotFound):
        calls = await waiting_below(client.temporal, execution_id)
        return "".join(f"; in its subagent {each.execution_id}: {each.call_id} ({each.tool})" for each in calls)
    return ""
