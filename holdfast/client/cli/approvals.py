"""`holdfast approve | deny`: deciding about tool calls that wait for a person."""

from __future__ import annotations

import asyncio
import getpass
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from pydantic import ValidationError

from holdfast.client.cli import render
from holdfast.client.cli.options import Address, AsJson, DataDir, ExecutionId, Namespace, settings_from
from holdfast.client.cli.runs import connected
from holdfast.client.settings import Settings
from holdfast.core.errors import InvalidInput
from holdfast.core.tools import told
from holdfast.core.verdicts import Decision, Verdict

if TYPE_CHECKING:
    from holdfast.client import Client

CallId: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="[CALL]", help="The call's id; not needed while one call waits.")
]
By: TypeAlias = Annotated[str | None, typer.Option(help="Who decides; your login name by default.")]


def approve(
    execution_id: ExecutionId,
    call_id: CallId = None,
    *,
    edit: Annotated[
        str | None, typer.Option(help="Other arguments that the call is to run with.", metavar="JSON")
    ] = None,
    by: By = None,
    as_json: AsJson = False,
    address: Address = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
) -> None:
    """Let a tool call run that waits for a person, with its own or with other arguments."""
    verdict = _verdict("approve" if edit is None else "edit", by, arguments=edit)
    settings = settings_from(address=address, namespace=namespace, data_dir=data_dir)
    asyncio.run(_decide(settings, execution_id, call_id, verdict, as_json=as_json))


def deny(
    execution_id: ExecutionId,
    call_id: CallId = None,
    *,
    reason: Annotated[str, typer.Option(help="Why; the model is told.")] = "",
    by: By = None,
    as_json: AsJson = False,
    address: Address = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
) -> None:
    """Keep a tool call from running that waits for a person; the model is told."""
    verdict = _verdict("deny", by, reason=reason)
    settings = settings_from(address=address, namespace=namespace, data_dir=data_dir)
    asyncio.run(_decide(settings, execution_id, call_id, verdict, as_json=as_json))


def _verdict(decision: Decision, by: str | None, *, reason: str = "", arguments: str | None = None) -> Verdict:
    try:
        given = None if arguments is None else json.loads(arguments)
        return Verdict(decision=decision, by=login() if by is None else by, reason=reason, arguments=given)
    except ValidationError as error:
        raise InvalidInput(f"the decision cannot be used: {told(error)}") from None
    except ValueError as error:
        raise InvalidInput(f"--edit is no JSON object: {error}") from None


def login() -> str:
    """Return the name under which one decides; empty where there is none."""
    with suppress(OSError, KeyError):  # there is no such name everywhere
        return getpass.getuser()
    return ""


async def _decide(
    settings: Settings, execution_id: str, call_id: str | None, verdict: Verdict, *, as_json: bool
) -> None:
    client = await connected(settings)
    chosen = await _waiting(client, execution_id, call_id)
    taken = await client.decide(execution_id, chosen, verdict)
    if as_json:
        render.as_json({"execution_id": execution_id, "call_id": chosen, "decision": verdict.decision, "taken": taken})
    else:
        done = f"{verdict.decision}: {chosen} of run {execution_id}"
        render.say(done if taken else f"run {execution_id} had ended already")


async def _waiting(client: Client, execution_id: str, call_id: str | None) -> str:
    """Return the id of the call that is meant; InvalidInput when it does not wait, or several do."""
    state = await client.state(execution_id)
    waiting = {each.call.id: each.call.name for each in state.waiting_calls}
    if state.status.is_terminal:
        raise InvalidInput(f"nothing waits; run {execution_id} has ended ({state.status})")
    listed = ", ".join(f"{id_} ({name})" for id_, name in waiting.items()) or "none"
    if call_id is not None and call_id in waiting:
        return call_id
    if call_id is None and len(waiting) == 1:
        return next(iter(waiting))
    what = "name the call" if call_id is None else f"no call {call_id[:80]!r} waits"
    raise InvalidInput(f"{what}; waiting in run {execution_id}: {listed}")
