"""Options that several commands take, and the settings they add up to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from holdfast.client.settings import Settings

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
