"""`holdfast answer`: what the server of a tool call asks a person for in the middle of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import JsonValue

from holdfast.cli.command_context import ask_server, resolve_id
from holdfast.cli.commands.approvals import By, CallId, is_terminal, login, run_under_way
from holdfast.cli.options import AsJson, UnderWayId, with_server
from holdfast.cli.screens import input_forms, output
from holdfast.cli.tool_arguments import typed_arguments
from holdfast.connection.settings import Settings
from holdfast.core.base.call_digest import SHORT_CHARS, short_digest
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import DecisionRefused, InvalidInput
from holdfast.core.conversation.input_requests import InputAction, InputAnswer, InputRequest
from holdfast.core.conversation.steps import OpenCall

if TYPE_CHECKING:
    from holdfast.client import Holdfast


@with_server()
def answer(
    execution_id: UnderWayId,
    call_id: CallId = None,
    *,
    pairs: Annotated[
        list[str] | None, typer.Option("--set", help="A field of the form; repeatable.", metavar="NAME=VALUE")
    ] = None,
    values: Annotated[str | None, typer.Option(help="All fields, as a JSON object.", metavar="JSON")] = None,
    opened: Annotated[bool, typer.Option("--opened", help="You have opened the link and done what it asks.")] = False,
    decline: Annotated[bool, typer.Option("--decline", help="Refuse; the server is told.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Leave without an answer; the server is told.")] = False,
    digest: Annotated[
        str | None,
        typer.Option(help="The request's digest, or its first digits; another request is left.", metavar="HEX"),
    ] = None,
    by: By = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Answer what a tool's server asks; without values, a terminal asks for one field after another."""
    forms = {"--set": pairs, "--values": values is not None}
    others = {"--opened": opened, "--decline": decline, "--cancel": cancel}
    given = [option for option, value in (forms | others).items() if value]
    if len(given) > 1:
        raise InvalidInput(f"{' and '.join(given)} exclude each other; give one of them")

    async def choose(holdfast: Holdfast) -> tuple[str, OpenCall, InputRequest]:
        id_, is_session = await resolve_id(holdfast, execution_id)
        id_ = await run_under_way(holdfast.agent(id_)) if is_session else id_
        return id_, *await _chosen(holdfast, id_, call_id, digest)

    run_id, waiting, request = ask_server(settings, choose)
    _check_fitting(request, takes_values=bool(pairs) or values is not None, opened=opened)
    action: InputAction = "decline" if decline else "cancel" if cancel else "accept"
    content: dict[str, JsonValue] | None = None
    ask = not (as_json or given) and is_terminal()
    if action == "accept" and request.form is not None:
        content = _content(run_id, waiting, request, pairs, values, ask=ask)
    elif action == "accept" and not opened:
        _open(run_id, waiting, request, ask=ask)
    person = login() if by is None else by
    problem = request.problem(InputAnswer(action=action, content=content))
    if problem is not None:
        raise InvalidInput(f"{problem}; the call is still waiting")

    async def send(holdfast: Holdfast) -> bool:
        return await holdfast.answer_question(
            run_id, waiting.call.id, content, action=action, by=person, digest=waiting.digest
        )

    accepted = ask_server(settings, send)
    if as_json:
        about = {"execution_id": run_id, "call_id": waiting.call.id, "digest": waiting.digest}
        output.as_json({**about, "action": action, "taken": accepted})
    else:
        summary = f"{action}: {waiting.call.name} {waiting.call.id} of run {run_id}"
        output.say(summary if accepted else f"run {run_id} had already ended")


def _check_fitting(request: InputRequest, *, takes_values: bool, opened: bool) -> None:
    """Raise InvalidInput for options that answer a form where a link is to be opened, and the other way round."""
    if request.form is not None and opened:
        raise InvalidInput("--opened is for links, and the call waits for a form; give each field with --set NAME=VALUE")
    if request.form is None and takes_values:
        raise InvalidInput(f"a link takes no values; open {request.url} and answer with --opened")


def _content(
    run_id: str, waiting: OpenCall, request: InputRequest, pairs: list[str] | None, values: str | None, *, ask: bool
) -> dict[str, JsonValue]:
    """Return the values for the form; InvalidInput where there are none and nobody is there to be asked."""
    if values is not None:
        try:
            return typed_arguments(values)
        except ValueError as error:
            raise InvalidInput(f"--values: {error}") from None
    if pairs:
        return dict(_pair(each, request) for each in pairs)
    about = input_forms.whole(run_id, waiting, request)
    if not ask:
        output.hint(about)
        needed = any(each.required for each in request.fields)
        empty = "" if needed else ", accept with none: --values '{}'"
        raise InvalidInput(f"nothing was answered; give each field with --set NAME=VALUE{empty}, or --decline")
    output.paged(about)
    if not request.fields:
        _confirm("accept?")
    return input_forms.asked_values(request)


def _pair(text: str, request: InputRequest) -> tuple[str, JsonValue]:
    name, equals, value = text.partition("=")
    fields = {each.name: each for each in request.fields}
    if not equals:
        raise InvalidInput(f"--set is {text[:80]!r}; write NAME=VALUE")
    if name not in fields:
        raise InvalidInput(f"the form has no field {name[:80]!r}; {suggestion(name, fields)}")
    try:
        return name, fields[name].read(value)
    except ValueError as error:
        raise InvalidInput(f"--set {error}") from None


def _open(run_id: str, waiting: OpenCall, request: InputRequest, *, ask: bool) -> None:
    """Show the link, and wait until it is done; InvalidInput where nobody is there to open it."""
    about = input_forms.whole(run_id, waiting, request)
    if not ask:
        output.hint(about)
        raise InvalidInput("nothing was answered; open the link above, then answer with --opened, or --decline")
    output.paged(about)
    _confirm("done?")


def _confirm(question: str) -> None:
    """Leave the command where the person does not say yes."""
    if not typer.confirm(question):
        output.hint("nothing was answered")
        raise typer.Exit(1)


async def _chosen(
    client: Holdfast, execution_id: str, call_id: str | None, digest: str | None
) -> tuple[OpenCall, InputRequest]:
    """Return the call that is meant. Raises DecisionRefused for none or another one, InvalidInput for several."""
    state = await client.state(execution_id)
    if state.status.is_terminal:
        raise DecisionRefused(f"nothing waits; run {execution_id} has ended ({state.status})")
    waiting = ", ".join(f"{each.call.id} ({each.call.name})" for each in state.input_calls) or "none"
    matches = [each for each in state.input_calls if call_id in (None, each.call.id)]
    listing = f"waiting for an answer in run {execution_id}: {waiting}"
    request = matches[0].input_request if matches else None
    if request is None:
        for each in (each for each in state.waiting_calls if call_id in (None, each.call.id)):
            decision = f"the call {each.call.id} ({each.call.name}) waits for a decision, and asks nothing"
            raise DecisionRefused(f"{decision}; look at it with: holdfast approve {execution_id} {each.call.id}")
        raise DecisionRefused(f"{'no call' if call_id is None else f'no call {call_id[:80]!r}'} waits; {listing}")
    if len(matches) > 1:
        raise InvalidInput(f"name the call; {listing}")
    actual = matches[0].digest or ""
    if digest is not None and (len(digest) < SHORT_CHARS or not actual.startswith(digest.lower())):
        about = f"the request has the digest {short_digest(actual)}, not {digest[:80]!r}"
        raise DecisionRefused(f"{about}: it is not the one that you looked at; nothing was answered")
    return matches[0], request
