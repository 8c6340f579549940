"""What commands share: the connection, ids, metadata, states from files. Prints no results."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast
from urllib.parse import quote

from pydantic import JsonValue

from holdfast.cli.busy_indicator import ASKING, busy
from holdfast.cli.screens import output
from holdfast.connection.data_directory import running_server
from holdfast.connection.settings import Settings
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.user_metadata import checked_metadata
from holdfast.core.base.bounds import QUESTION_BYTES_MAX, STATE_BYTES_MAX
from holdfast.core.base.errors import InvalidInput, StateInvalid
from holdfast.core.wire.workflow_ids import session_workflow_id

if TYPE_CHECKING:
    from holdfast.client import AgentHandle, Holdfast, SessionSummary
    from holdfast.core.wire.session_contracts import SessionView

T = TypeVar("T")

SDK_LOGGER: Final = "temporalio.core"

RETRIED: Final = re.compile(r"gRPC call \w+ retried \d+ times")
"""What the SDK warns of several times a second while the server is away."""

RETRIES_HINT_SECONDS: Final = 60.0

DETAILS_TAB: Final = "user-metadata"
"""The tab of the Web UI that shows a run's summary, its details and its current details."""


class Retries(logging.Filter):
    """Tells once in a while, in our words, that the server is away, instead of each call that is tried again."""

    def __init__(self) -> None:
        super().__init__()
        self._hinted_at = -RETRIES_HINT_SECONDS

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be shown as it is."""
        if RETRIED.search(record.getMessage()) is None:
            return True
        if (now := time.monotonic()) - self._hinted_at >= RETRIES_HINT_SECONDS:
            self._hinted_at = now
            output.hint("the Temporal server does not answer; trying again (Ctrl-C leaves)")
        return False


def ask_server(settings: Settings, ask: Callable[[Holdfast], Awaitable[T]]) -> T:
    """Connect, ask, and return the answer; say so where it takes its time."""

    async def connect_and_ask() -> T:
        with busy(ASKING):
            return await ask(await connected(settings))

    return asyncio.run(connect_and_ask())


def ask_agent(settings: Settings, reference: str, ask: Callable[[AgentHandle], Awaitable[T]]) -> T:
    """Ask the agent that is meant."""

    async def ask_one(holdfast: Holdfast) -> T:
        return await ask(holdfast.agent(await agent_id_of(holdfast, reference)))

    return ask_server(settings, ask_one)


async def run_id_of(client: Holdfast, reference: str) -> str:
    """Return the id of the run that is meant; a whole id of nothing that the server knows as it is."""
    from holdfast.client.id_lookup import look_up

    match = await look_up(client.temporal, reference, "run")
    return match if isinstance(match, str) else match.id


async def agent_id_of(client: Holdfast, reference: str) -> str:
    """Return the id of the agent that is meant, by its session; a whole id that the server does not know as it is."""
    from holdfast.client.id_lookup import look_up

    match = await look_up(client.temporal, reference, "session")
    return match if isinstance(match, str) else match.id


async def resolve_id(client: Holdfast, reference: str) -> tuple[str, bool]:
    """Return the id of the run or the agent that is meant, and whether it is an agent's."""
    from holdfast.client.id_lookup import look_up

    match = await look_up(client.temporal, reference, None)
    return (match, False) if isinstance(match, str) else (match.id, match.kind == "session")


async def session_of(client: Holdfast, agent_id: str) -> SessionSummary:
    """Return what the server knows of an agent's session."""
    from holdfast.client.execution_summaries import session_summary
    from holdfast.connection.executions import described
    from holdfast.connection.rpc_errors import answered
    from holdfast.connection.workflow_reader import ASK_TIMEOUT

    asked = described(client.temporal, session_workflow_id(agent_id), rpc_timeout=ASK_TIMEOUT)
    return session_summary(await answered(asked))


async def paused_text(client: Holdfast, id_: str, session: SessionSummary | None) -> str:
    """Return what to say of a run, or an agent's `session`, that an operator has paused; nothing of another one.

    Nor where the server does not say it.
    """
    from temporalio.service import RPCError

    from holdfast.client.execution_summaries import PAUSED
    from holdfast.connection.executions import described, is_paused
    from holdfast.connection.rpc_errors import paused
    from holdfast.connection.workflow_reader import ASK_TIMEOUT

    if session is not None:
        return str(paused(id_, what="session")) if session.status == PAUSED else ""
    with suppress(RPCError):
        return str(paused(id_)) if is_paused(await described(client.temporal, id_, rpc_timeout=ASK_TIMEOUT)) else ""
    return ""


async def connected(settings: Settings) -> Holdfast:
    """Return a client; say so when it is of another server than this folder's."""
    from holdfast.client import Holdfast
    from holdfast.connection.temporal_client import target

    logging.getLogger(SDK_LOGGER).addFilter(Retries())
    client = await Holdfast.connect(settings)
    with suppress(InvalidInput):  # of the data directory, which need not be ours
        if not (chosen := target(settings)).is_chosen:
            where = f"{client.address}, namespace {chosen.namespace!r}"
            output.hint(f"no server of this folder ({settings.data_dir}) is running; using the one at {where}")
    return client


async def page_of(client: Holdfast, execution_id: str) -> str | None:
    """Return where the embedded server's Web UI tells the run's story, when that is the server in use.

    The page of that tab needs the id of a Temporal run; where the server does not say it, it is the run's first page.
    """
    from temporalio.service import RPCError

    from holdfast.connection.executions import described
    from holdfast.connection.workflow_reader import ASK_TIMEOUT

    server = None
    with suppress(InvalidInput):  # of the data directory, which need not be ours
        server = running_server(client.settings.data_dir)
    if server is None or server.address != client.address:
        return None
    page = f"{server.ui}/namespaces/{quote(client.temporal.namespace, safe='')}/workflows/{execution_id}"
    with suppress(RPCError):
        latest = await described(client.temporal, execution_id, rpc_timeout=ASK_TIMEOUT)
        page += f"/{latest.run_id}/{DETAILS_TAB}"
    return page


def refuse_other_tenant(view: SessionView, tenant: str) -> None:
    """Raise InvalidInput where a `tenant` is named and the session works for another one."""
    if tenant and tenant != view.settings.tenant:
        whose = f"of the tenant {view.settings.tenant!r}" if view.settings.tenant else "without a tenant"
        text = f"the session of agent {view.agent_id} is {whose}, which stays as it began"
        raise InvalidInput(f"{text}; leave --tenant out, or begin a new session")


def metadata_of(options: list[str] | None) -> Mapping[str, JsonValue]:
    """Return the metadata that options name, values as JSON where they are that, else as text. Raises InvalidInput.

    The last of a name counts.
    """
    metadata = dict[str, JsonValue]()
    for each in options or ():
        name, is_there, value = each.partition("=")
        if not is_there:
            raise InvalidInput(f"--metadata {each[:80]!r} has no `=`; give NAME=VALUE")
        metadata[name.strip()] = _json_or_text(value)
    return checked_metadata(metadata)


def _json_or_text(value: str) -> JsonValue:
    try:
        parsed: JsonValue = json.loads(value, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return value
    return parsed


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def state_of(file: str) -> AgentState:
    """Return the state in a file, `-` for standard input: as `to_dict` writes it, or as `holdfast export` does.

    Raises InvalidInput, StateInvalid.
    """
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as opened:
            content = opened.read(STATE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidInput(f"the file {file!r} cannot be read: {error.strerror or error}") from None
    try:
        document: Any = json.loads(content) if len(content) <= STATE_BYTES_MAX else {}
        exported = cast("dict[str, Any]", document).get("state") if isinstance(document, dict) else None
        if isinstance(exported, dict):
            return AgentState.from_dict(cast("dict[str, Any]", exported))
        return AgentState.from_json(content)
    except (ValueError, RecursionError) as error:
        raise StateInvalid(f"{file!r} is not valid JSON: {error}") from None
    except StateInvalid as error:
        raise StateInvalid(f"{file!r} holds no state: {error}") from None


def read_text(text: str) -> str:
    """Return `text`; where it is `-`, what standard input says, cut a little beyond what can be used."""
    return sys.stdin.read(QUESTION_BYTES_MAX + 1) if text == "-" else text
