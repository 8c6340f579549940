"""The program `holdfast`: its commands, and how errors become messages and exit codes.

exit code   meaning
0           done; for `run` and `watch`: the run completed
1           an error that should not happen; `approve` and `answer`: you said no
2           bad input: nothing was started
3           the run was stopped (by a budget or by somebody)
4           the run failed
5           no such run, agent or record
6           the Temporal server, or a worker, does not answer
7           something else holds what we need (port, data directory, id)
8           an optional part is not installed
9           a model brought no answer: `models --check`, and programs that use the core
10          a compiler of messages failed; only programs that use the core meet it
11          an answer does not fit the type it is read as; only programs that ask for one meet it
12          large data could not be written or read
13          data is not encrypted as it should be, or not with a key that is here
14          `doctor` has found an error, `setup --check` something that is not registered
130         interrupted by Ctrl-C; a run goes on
141         whoever read our output has gone; a run goes on
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Final, NoReturn, cast

import typer

from holdfast import __version__
from holdfast.cli.commands.answers import answer
from holdfast.cli.commands.approvals import approve, deny, edit, waiting
from holdfast.cli.commands.chat import chat
from holdfast.cli.commands.codec import codec_key, codec_server
from holdfast.cli.commands.cost import cost
from holdfast.cli.commands.deploy import deploy
from holdfast.cli.commands.dev import dev, worker
from holdfast.cli.commands.doctor import doctor
from holdfast.cli.commands.export import export
from holdfast.cli.commands.mcp import mcp
from holdfast.cli.commands.mcp_serve import mcp_serve
from holdfast.cli.commands.models import models
from holdfast.cli.commands.records import fork, record, records, rewind, tree
from holdfast.cli.commands.runs import list_runs, run, stop
from holdfast.cli.commands.session import session
from holdfast.cli.commands.sessions import send, sessions
from holdfast.cli.commands.setup import setup
from holdfast.cli.commands.show import show
from holdfast.cli.commands.storage import storage
from holdfast.cli.commands.top import top
from holdfast.cli.commands.watch import watch
from holdfast.cli.commands.workspace import workspace
from holdfast.cli.help_format import Group, with_plain_flags
from holdfast.cli.options import WithLatest
from holdfast.cli.shell_completion import Shell, install_script, prepare_completion, print_script
from holdfast.core.base.errors import HoldfastError, InvalidInput
from holdfast.core.base.safe_text import printable
from holdfast.runtime.process_exit import leave

INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

_UsageError: Final = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
"""What is wrong with a command line; typer gives the class no public name."""

app = typer.Typer(
    name="holdfast",
    help="AI agents as Temporal workflows: a crash loses nothing, a stop stops, a budget holds.",
    no_args_is_help=True,
    add_completion=False,  # ours names the shell, where typer guesses it
    pretty_exceptions_enable=False,
    cls=Group,
)
app.command()(dev)
app.command()(worker)
app.command()(run)
app.command(cls=WithLatest)(watch)
app.command()(top)
app.command(cls=WithLatest)(stop)
app.command()(waiting)
app.command(cls=WithLatest)(approve)
app.command(cls=WithLatest)(deny)
app.command(cls=WithLatest)(edit)
app.command(cls=WithLatest)(answer)
app.command(cls=WithLatest)(show)
app.command(cls=WithLatest)(export)
app.command(cls=WithLatest)(cost)
app.command("list")(list_runs)
app.command()(chat)
app.command(cls=WithLatest)(send)
app.command()(sessions)
app.add_typer(session)
app.add_typer(deploy)
app.command(cls=WithLatest)(records)
app.command(cls=WithLatest)(record)
app.command(cls=WithLatest)(rewind)
app.command(cls=WithLatest)(fork)
app.command(cls=WithLatest)(tree)
app.command()(workspace)
app.command()(codec_key)
app.command()(codec_server)
app.command()(models)
app.command()(mcp)
app.command()(mcp_serve)
app.command()(setup)
app.command()(doctor)
app.add_typer(storage)
with_plain_flags(app, session, deploy, storage)


def _version(value: bool) -> None:  # noqa: FBT001  # typer's signature
    if value:
        sys.stdout.write(f"holdfast {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[  # its callback does it
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
    show_completion: Annotated[
        Shell | None,
        typer.Option(help="Print the completion script of a shell.", callback=print_script, is_eager=True),
    ] = None,
    install_completion: Annotated[
        Shell | None,
        typer.Option(
            help="Install completion for a shell; new shells have it.", callback=install_script, is_eager=True
        ),
    ] = None,
) -> None:
    """AI agents as Temporal workflows: a crash loses nothing, a stop stops, a budget holds."""


def main() -> NoReturn:
    """Run the command line and end the process with the documented exit code."""
    _open_closed_streams()
    prepare_completion()
    leave(_code())


def _code() -> int:
    try:
        return _run()
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
    except OSError as error:  # our output's disk is full, or this folder has been removed
        _to_stderr(f"{error.strerror or error}{f': {error.filename!r}' if error.filename else ''}")
        return HoldfastError.exit_code


def _run() -> int:
    if os.environ.get("NO_COLOR"):
        from typer import rich_utils  # only --help needs it

        rich_utils.COLOR_SYSTEM = None
    try:
        code: object = app(sys.argv[1:] or ["--help"], prog_name="holdfast", standalone_mode=False)
        sys.stdout.flush()
    except HoldfastError as error:
        return _report(error)
    except _UsageError as error:
        problem = " ".join(error.format_message().replace("Value error, ", "").split())  # a validator's word, not ours
        command = error.ctx.command_path if error.ctx else _command_typed()
        return _report(InvalidInput(f"{problem} (see `{command} --help`)"))
    except SystemExit as leaving:  # how typer ends for a broken pipe, with a code of its own
        if isinstance(leaving.__context__, BrokenPipeError):
            return BROKEN_PIPE
        return leaving.code if isinstance(leaving.code, int) else 0
    return code if isinstance(code, int) else 0


def _command_typed() -> str:
    """Return the command that was typed, as far as there is one."""
    path, command = ["holdfast"], typer.main.get_command(app)
    for word in sys.argv[1:]:
        below: Mapping[str, Any] = getattr(command, "commands", {})
        if word not in below:
            break
        path.append(word)
        command = below[word]
    return " ".join(path)


def _report(error: HoldfastError) -> int:
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({"error": error.to_dict()}) + "\n")
        sys.stdout.flush()
    else:
        _to_stderr(str(error))
    return error.exit_code


def _to_stderr(text: str) -> None:
    with suppress(OSError):  # there is nowhere else to say it
        # an error may repeat what a model, a tool or a file's name has in it
        sys.stderr.write(f"error: {printable(text)}\n")
        sys.stderr.flush()


def _open_closed_streams() -> None:
    """Put /dev/null where a standard stream is closed, or a file of ours would take its number and hear our answers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            opened = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115  # open for as long as we are
            os.set_inheritable(opened.fileno(), True)  # noqa: FBT003  # positional only
            setattr(sys, name, opened)
    # a plain locale shows an escape instead of failing
    cast("io.TextIOWrapper", sys.stdout).reconfigure(errors="backslashreplace")
