"""How commands reach the server, runs and agents. Prints nothing of what they ask for."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from holdfast.client.cli import render
from holdfast.client.cli.busy import ASKING, busy
from holdfast.client.embedded import running_server
from holdfast.client.settings import Settings
from holdfast.core.budget import ExecutionBudget
from holdfast.core.errors import ExecutionNotFound, InvalidInput
from holdfast.core.limits import QUESTION_BYTES_MAX
from holdfast.core.session_contracts import AGENT_SESSION
from holdfast.core.state import checked_id
from holdfast.core.tools import told

if TYPE_CHECKING:
    from holdfast.client import Agent, Client, Holdfast, SessionSummary

T = TypeVar("T")

SDK_LOGGER: Final = "temporalio.core"

RETRIED: Final = re.compile(r"gRPC call \w+ retried \d+ times")
"""What the SDK warns of several times a second while the server is away."""

RETRIES_HINT_SECONDS: Final = 60.0


class Retries(logging.Filter):
    """Tells once in a while, in our words, that the server is away, instead of each call that is tried again."""

    def __init__(self) -> None:
        super().__init__()
        self._told_at = -RETRIES_HINT_SECONDS

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be shown as it is."""
        if RETRIED.search(record.getMessage()) is None:
            return True
        if (now := time.monotonic()) - self._told_at >= RETRIES_HINT_SECONDS:
            self._told_at = now
            render.hint("the Temporal server does not answer; it is asked again and again (Ctrl-C leaves)")
        return False


def asked(settings: Settings, ask: Callable[[Holdfast], Awaitable[T]]) -> T:
    """Connect, ask, and return the answer; say so where it takes its time."""

    async def asking() -> T:
        with busy(ASKING):
            return await ask(await joined(settings))

    return asyncio.run(asking())


def asked_agent(settings: Settings, agent_id: str, ask: Callable[[Agent], Awaitable[T]]) -> T:
    """Ask one agent."""
    return asked(settings, lambda holdfast: ask(holdfast.agent(agent_id)))


async def joined(settings: Settings) -> Holdfast:
    """Return what reaches agents; says so when it is on another server than this folder's."""
    from holdfast.client import Holdfast

    return Holdfast(await connected(settings))


async def is_session(client: Client, given: str) -> bool:
    """Return whether the id is that of an agent with a session, and not a run's."""
    return await session_of(client, given) is not None


async def session_of(client: Client, given: str) -> SessionSummary | None:
    """Return what the server knows of an agent's session; none where the id is no agent's with one."""
    from holdfast.client.reading import ASK_TIMEOUT
    from holdfast.client.refusals import answered
    from holdfast.client.summaries import session_summary

    with suppress(ExecutionNotFound, ValueError):
        handle = client.temporal.get_workflow_handle(checked_id(given))
        described = await answered(handle.describe(rpc_timeout=ASK_TIMEOUT))
        return session_summary(described) if described.workflow_type == AGENT_SESSION else None
    return None


async def connected(settings: Settings) -> Client:
    """Return a client; say so when it is of another server than this folder's."""
    from holdfast.client import Client

    logging.getLogger(SDK_LOGGER).addFilter(Retries())
    client = await Client.connect(settings)
    with suppress(InvalidInput):  # of the data directory, which need not be ours
        ours_is_down = settings.data_dir.exists() and running_server(settings.data_dir) is None
        if ours_is_down and settings.address is None and "TEMPORAL_ADDRESS" not in os.environ:
            render.hint(
                f"this folder's server ({settings.data_dir}) is not running; this is the one at {client.address}"
            )
    return client


def page_of(client: Client, execution_id: str) -> str | None:
    """Return the run's page in the embedded server's Web UI, when that is the server in use."""
    with suppress(InvalidInput):  # of the data directory, which need not be ours
        server = running_server(client.settings.data_dir)
        if server is not None and server.address == client.address:
            return f"{server.ui}/namespaces/{quote(client.temporal.namespace, safe='')}/workflows/{execution_id}"
    return None


def budget_of(**limits: float | None) -> ExecutionBudget:
    """Return the limits that options name, those of none left out. Raises InvalidInput."""
    try:
        return ExecutionBudget.model_validate({name: each for name, each in limits.items() if each is not None})
    except ValidationError as error:
        raise InvalidInput(f"the limits cannot be used: {told(error)}") from None


def read(text: str) -> str:
    """Return `text`; where it is `-`, what standard input says, cut a little beyond what can be used."""
    return sys.stdin.read(QUESTION_BYTES_MAX + 1) if text == "-" else text
