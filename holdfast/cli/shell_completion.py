"""Shell completion of agents' names and ids. It never prints an error and never hangs."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from holdfast.connection.settings import DEFAULT_AGENTS_DIR

if TYPE_CHECKING:
    from holdfast.client import Holdfast

COMPLETED_IDS_MAX: Final = 50
"""The most ids that the shell is offered to complete a word with."""

Candidates = list[tuple[str, str]]
"""What a word can become, each with a few words about it."""

PROGRAM: Final = "holdfast"

COMPLETE_VAR: Final = "_HOLDFAST_COMPLETE"
"""The variable by which a shell's script asks what a word can become."""

SERVER_SECONDS: Final = 0.5
"""How long a server may take to say which ids there are: somebody has pressed a key and waits."""

WHOLE_SECONDS: Final = 4.0
"""How long all of it may take, our own start on a busy machine included; then nothing is offered."""


class Shell(StrEnum):
    """The shells that complete our words."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def print_script(shell: Shell | None) -> None:
    """Print the script that makes the shell complete our words, and end."""
    if shell is not None:
        from typer.completion import get_completion_script  # type: ignore[attr-defined]  # no other name

        sys.stdout.write(get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VAR, shell=shell.value) + "\n")
        raise typer.Exit


def install_script(shell: Shell | None) -> None:
    """Put that script where the shell reads it when it starts, and end."""
    if shell is not None:
        from typer.completion import install  # type: ignore[attr-defined]  # no other name

        _, place = install(shell=shell.value, prog_name=PROGRAM, complete_var=COMPLETE_VAR)
        sys.stdout.write(f"installed completion for {shell} in {place}; start a new shell to use it\n")
        raise typer.Exit


def prepare_completion() -> None:
    """Where a shell asks, say nothing on standard error from now on, and end in time whatever happens."""
    if COMPLETE_VAR not in os.environ:
        return
    from typer.completion import completion_init  # type: ignore[attr-defined]  # no other name

    completion_init()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    late = threading.Timer(WHOLE_SECONDS, os._exit, [0])
    late.daemon = True
    late.start()


def agent_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the agents in the agents folder that begin with `incomplete`."""
    with suppress(Exception):  # a shell is told nothing rather than an error
        from holdfast.client.definition_files import definition_files

        folder = ctx.params.get("agents_dir") or os.environ.get("HOLDFAST_AGENTS_DIR") or DEFAULT_AGENTS_DIR
        names = [path.stem for path in definition_files(Path(str(folder)))]
        return [name for name in names if name.startswith(incomplete)]
    return []


def run_ids(ctx: typer.Context, incomplete: str) -> Candidates:
    """Return the ids of the latest runs, those under way first."""

    async def candidates(holdfast: Holdfast) -> Candidates:
        summaries = await holdfast.runs(COMPLETED_IDS_MAX)
        return [(each.execution_id, f"{each.agent or 'run'} {each.status}") for each in summaries]

    return _candidates(ctx, incomplete, candidates)


def ids_under_way(ctx: typer.Context, incomplete: str) -> Candidates:
    """Return the ids of runs that have not ended."""

    async def candidates(holdfast: Holdfast) -> Candidates:
        summaries = await holdfast.runs(COMPLETED_IDS_MAX)
        return [(each.execution_id, each.agent or "run") for each in summaries if each.closed_at is None]

    return _candidates(ctx, incomplete, candidates)


def agent_ids(ctx: typer.Context, incomplete: str) -> Candidates:
    """Return the ids of agents that live on."""

    async def candidates(holdfast: Holdfast) -> Candidates:
        summaries = await holdfast.sessions(COMPLETED_IDS_MAX)
        return [(each.agent_id, f"{each.agent or 'agent'} {each.status}") for each in summaries]

    return _candidates(ctx, incomplete, candidates)


def _candidates(ctx: typer.Context, incomplete: str, ask: Callable[[Holdfast], Awaitable[Candidates]]) -> Candidates:
    """Ask the server that the command line names, if it answers in time; nothing otherwise."""
    with suppress(Exception):  # as above: no server, another one's certificate, a folder that is none
        return [each for each in _from_server(ctx.params, ask) if each[0].startswith(incomplete.lower())]
    return []


def _from_server(params: dict[str, Any], ask: Callable[[Holdfast], Awaitable[Candidates]]) -> Candidates:
    from holdfast.client import Holdfast
    from holdfast.connection.settings import Settings

    data_dir = params.get("data_dir")
    settings = Settings.from_environment(
        address=params.get("address"),
        namespace=params.get("namespace"),
        data_dir=None if data_dir is None else Path(str(data_dir)),
    )

    async def asking() -> Candidates:
        async with asyncio.timeout(SERVER_SECONDS):
            return await ask(await Holdfast.connect(settings))

    return asyncio.run(asking())
