"""Options that several commands take, and the settings they add up to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import typer

from holdfast.client.settings import Settings
from holdfast.client.worker_settings import WorkerSettings

Address: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The Temporal server, HOST:PORT; else TEMPORAL_ADDRESS, else the embedded one.", metavar="HOST:PORT"
    ),
]
Namespace: TypeAlias = Annotated[str | None, typer.Option(help="The Temporal namespace; else TEMPORAL_NAMESPACE.")]
TaskQueue: TypeAlias = Annotated[
    str | None, typer.Option(help="The queue that workers serve; else HOLDFAST_TASK_QUEUE, else 'holdfast'.")
]
DataDir: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Where the embedded server keeps everything; else HOLDFAST_DATA_DIR, else .holdfast."),
]
AgentsDir: TypeAlias = Annotated[
    Path | None,
    typer.Option("--agents", help="The folder with agent definitions; else HOLDFAST_AGENTS_DIR, else agents."),
]
Storage: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Where large data is kept, a URL (file:///, s3://, gs://, az://); else HOLDFAST_STORAGE, else the data "
        "directory's folder 'objects'.",
        metavar="URL",
    ),
]
Import: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--import", help="A Python module whose @tool functions are served; may be repeated.", metavar="MODULE"
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")]
ExecutionId: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="The run's id, a UUID.")]

settings_from = Settings.from_environment


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
