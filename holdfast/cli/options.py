"""Options that several commands take, and the settings made of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, cast

import typer

from holdfast.cli import shell_completion
from holdfast.cli.help_format import Command
from holdfast.connection.settings import Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.budget import ServerToolsPolicy, UnpricedPolicy
from holdfast.core.wire.session_contracts import WhileRunning
from holdfast.core.wire.workflow_ids import LAST
from holdfast.models.model_apis import APIS, OPENAI

Address: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The Temporal server, HOST:PORT; default: TEMPORAL_ADDRESS, else the embedded server.", metavar="HOST:PORT"
    ),
]
Namespace: TypeAlias = Annotated[str | None, typer.Option(help="The Temporal namespace; default: TEMPORAL_NAMESPACE.")]
TaskQueue: TypeAlias = Annotated[
    str | None, typer.Option(help="The workers' task queue; default: HOLDFAST_TASK_QUEUE, else 'holdfast'.")
]
DataDir: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="The embedded server's data directory; default: HOLDFAST_DATA_DIR, else .holdfast."),
]
AgentsDir: TypeAlias = Annotated[
    Path | None,
    typer.Option("--agents", help="The folder of agent definitions; default: HOLDFAST_AGENTS_DIR, else agents."),
]
Storage: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The URL where large data is stored (file:///, s3://, gs://, az://); default: HOLDFAST_STORAGE, else the "
        "data directory's folder 'objects'.",
        metavar="URL",
    ),
]
Import: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        help="A Python module with agents or @tool functions; repeatable; default: HOLDFAST_IMPORT (comma-separated).",
        metavar="MODULE",
    ),
]
Sinks: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--sink",
        help="A sink for the events of all runs: jsonl:FILE, webhook:URL, otlp or python:MODULE:NAME, optionally "
        "after NAME=; repeatable; default: HOLDFAST_SINKS.",
        metavar="SINK",
    ),
]
ModelApi: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        help=f"The model API: {', '.join(APIS)}, or python:MODULE:NAME for a model of your own; default: "
        f"HOLDFAST_MODEL_API, else {OPENAI.name}.",
        metavar="MODEL",
    ),
]
ModelsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--models",
        help="The file of routes to models; default: HOLDFAST_MODELS, else models.yaml if it is there.",
        metavar="FILE",
    ),
]
McpFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--mcp", help="The file of MCP servers; default: HOLDFAST_MCP, else mcp.yaml if it is there.", metavar="FILE"
    ),
]
McpInline: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--mcp-inline",
        help="Let agents' definitions describe MCP servers themselves: then whoever may start runs can run any command "
        "here; default: HOLDFAST_MCP_INLINE=1.",
    ),
]
WorkspaceBackends: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--workspace",
        help="Where agents' workspaces may live here: docker, or folder, which is no boundary: their commands run as "
        "the worker's user. Repeatable; default: HOLDFAST_WORKSPACES (comma-separated).",
        metavar="BACKEND",
    ),
]
WorkspaceQueue: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--workspace-queue",
        help="The task queue whose workers serve the tools of workspaces; default: HOLDFAST_WORKSPACE_QUEUE, else this "
        "worker's own.",
        metavar="QUEUE",
    ),
]
DeploymentName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--deployment",
        help="The deployment whose builds are meant; default: HOLDFAST_DEPLOYMENT, else the task queue's name.",
        metavar="NAME",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for errors too.")]
ExecutionId: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run: its id, the first digits of it, or an agent's name for the agent's latest run.",
        autocompletion=shell_completion.run_ids,
    ),
]
RunOrAgentId: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The run: its id, the first digits of it, or an agent's name for its latest run; or a session's id.",
        autocompletion=shell_completion.run_ids,
    ),
]
UnderWayId: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The run: its id, the first digits of it, or an agent's name for its latest run; or a session's id for "
        "its run under way.",
        autocompletion=shell_completion.ids_under_way,
    ),
]
AgentId: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The session: its id, the first digits of it, or its agent's name if only one session has it.",
        autocompletion=shell_completion.agent_ids,
    ),
]
WatchedId: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The run: its id, the first digits of it, or an agent's name for its latest run; or a session's id for "
        "all its runs from now on.",
        autocompletion=shell_completion.run_ids,
    ),
]
REFERENCES: Final = (ExecutionId, RunOrAgentId, UnderWayId, AgentId, WatchedId)
"""What a command's first argument can be that `--last` can stand for."""

Unpriced: TypeAlias = Annotated[
    UnpricedPolicy | None, typer.Option(help="Whether to call models that have no known price.")
]
ServerTools: TypeAlias = Annotated[
    ServerToolsPolicy | None,
    typer.Option(help="Whether tools that the provider runs are used under a limit of tokens or cost."),
]
Policy: TypeAlias = Annotated[
    WhileRunning | None,
    typer.Option("--while-running", help="What happens to a message sent during a run; default: the session's policy."),
]
Query: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Only what this Temporal visibility query matches.", metavar="QUERY"),
]
Metadata: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata",
        help="Metadata for the run's tools and hooks, as NAME=VALUE, JSON or text; repeatable. No secrets.",
        metavar="NAME=VALUE",
    ),
]
Attach: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--attach",
        help="A file that comes with it: PDF, picture, WAV, MP3 or text; repeatable, at most 16.",
        metavar="FILE",
    ),
]
Tenant: TypeAlias = Annotated[
    str, typer.Option(help="On whose account it works: tools, MCP credentials and fairness go by it.", metavar="NAME")
]
Limit: TypeAlias = Annotated[int, typer.Option(help="At most this many.")]

LATEST: Final = "--last"

Latest: TypeAlias = Annotated[bool, typer.Option(LATEST, help="Use the latest one instead of an id.")]


class WithLatest(Command):
    """A command whose first argument says which run or session is meant; `--last` stands in its place."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer names its type nowhere
        """Read the words; where the option stands among them, with what means the latest one in front."""
        end = args.index("--") if "--" in args else len(args)
        if LATEST in args[:end]:
            place = args.index(LATEST)
            args = [LAST, *args[:place], *args[place + 1 :]]
        return super().parse_args(ctx, args)


WHERE: Final[Mapping[str, Any]] = {
    "agents_dir": AgentsDir,
    "modules": Import,
    "address": Address,
    "namespace": Namespace,
    "task_queue": TaskQueue,
    "data_dir": DataDir,
}
"""The options that add up to settings."""

OPTIONAL: Final = ("agents_dir", "modules", "task_queue")
"""Those of them that only some commands need."""

settings_from = Settings.from_environment


def with_server(*more: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that say where the server is; it takes what they come to as `settings`.

    `more` are further ones that it needs: those of ELSE.
    """
    options = {name: each for name, each in WHERE.items() if name not in OPTIONAL or name in more}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in options.items()
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def at_server(**values: Any) -> None:  # noqa: ANN401  # of the command's own parameters
            values.pop("last", None)  # WithLatest has read it
            command(settings=settings_from(**{name: values.pop(name) for name in options}), **values)

        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.name != "settings"]
        if own and own[0].annotation in REFERENCES:
            own.append(inspect.Parameter("last", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Latest))
        cast("Any", at_server).__signature__ = signature.replace(parameters=[*own, *added])
        return at_server

    return decorate


def with_worker_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` an option for each of a worker's settings; they come by name, as text, or none."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    added = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_setting(each.metadata))
        for each in fields(WorkerSettings)
    ]
    cast("Any", command).__signature__ = signature.replace(parameters=[*own, *added])
    return command


def _setting(metadata: Mapping[str, Any]) -> Any:  # noqa: ANN401  # an annotation as typer reads it
    about = str(metadata["about"])
    return Annotated[str | None, typer.Option(help=f"{about[0].upper()}{about[1:]}.", metavar="N")]
