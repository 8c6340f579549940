"""How commands about sessions and records reach them. Prints nothing of what they ask for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.client.cli.runs import connected
from holdfast.client.settings import Settings
from holdfast.core.limits import QUESTION_BYTES_MAX

if TYPE_CHECKING:
    from holdfast.client import Agent, Holdfast

T = TypeVar("T")


async def joined(settings: Settings) -> Holdfast:
    """Return a connection; says so when it is to another server than this folder's."""
    from holdfast.client import Holdfast

    return Holdfast(await connected(settings))


def asked(settings: Settings, ask: Callable[[Holdfast], Awaitable[T]]) -> T:
    """Connect, ask, and return the answer."""

    async def asking() -> T:
        return await ask(await joined(settings))

    return asyncio.run(asking())


def asked_agent(settings: Settings, agent_id: str, ask: Callable[[Agent], Awaitable[T]]) -> T:
    """Ask one agent."""
    return asked(settings, lambda holdfast: ask(holdfast.agent(agent_id)))


def read(text: str) -> str:
    """Return `text`; where it is `-`, what standard input says, cut a little beyond what can be used."""
    return sys.stdin.read(QUESTION_BYTES_MAX + 1) if text == "-" else text
