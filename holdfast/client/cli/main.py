"""The program `holdfast`: its commands, and what becomes of errors.

exit code   meaning
0           done; for `run`: the run completed
1           an error that should not happen
2           bad input: nothing was started
3           the run was stopped (by a budget or by somebody)
4           the run failed
5           no such run
6           the Temporal server, or a worker, does not answer
7           something else holds what we need (port, data directory, id)
8           an optional part is not installed
130         interrupted by Ctrl-C; a run goes on
"""

from __future__ import annotations

import json
import sys
from typing import Final, NoReturn

import typer

from holdfast.client.cli.dev import dev, worker
from holdfast.client.cli.runs import list_runs, run, show, stop
from holdfast.client.leaving import leave
from holdfast.core.errors import HoldfastError

INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

app = typer.Typer(
    name="holdfast",
    help="AI agents as Temporal workflows: a crash loses nothing, a stop stops, a budget holds.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(dev)
app.command()(worker)
app.command()(run)
app.command()(stop)
app.command()(show)
app.command("list")(list_runs)


def main() -> NoReturn:
    """Run the command line and end the process with the documented exit code."""
    leave(_code())


def _code() -> int:
    try:
        app()
    except HoldfastError as error:
        _tell(error)
        return error.exit_code
    except SystemExit as leaving:  # how typer ends, having told what is wrong with the command line
        return leaving.code if isinstance(leaving.code, int) else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
    return 0


def _tell(error: HoldfastError) -> None:
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({"error": error.to_dict()}) + "\n")
    else:
        sys.stderr.write(f"error: {error}\n")
