"""The files of recorded histories: a compressed JSON line per run of a workflow. Records and replays nothing."""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from temporalio.client import WorkflowHistory

HISTORIES = Path(__file__).parent / "histories"

UNRELEASED = HISTORIES / "unreleased.jsonl.xz"
"""What `make histories` writes. A release renames it after its version; from then on that file never changes."""

SUFFIX = ".jsonl.xz"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One run of a workflow, as it stands in a file.

    `history` is the SDK's JSON, whose payloads have `text` in place of `data` where they are text (it compresses
    better). `objects` are the payloads that it refers to and that are kept outside of it, encoded, a character a byte.
    """

    name: str
    history: dict[str, Any]
    objects: Sequence[str] = ()

    @property
    def workflow_id(self) -> str:
        started = self.history["events"][0]["workflowExecutionStartedEventAttributes"]
        return cast("str", started["workflowId"])

    @property
    def replayable(self) -> WorkflowHistory:
        """The history as the SDK reads it."""
        return WorkflowHistory.from_json(self.workflow_id, each_object(self.history, _with_data))


def read(path: Path) -> list[Recorded]:
    """Return every run of the file, in order."""
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    return [Recorded(**json.loads(line)) for line in lines]


def write(path: Path, runs: Iterable[Recorded]) -> None:
    """Write the runs, sorted by their names."""
    path.parent.mkdir(exist_ok=True)
    lines = [
        json.dumps({"name": run.name, "history": run.history, "objects": run.objects}, sort_keys=True)
        for run in sorted(runs, key=lambda run: run.name)
    ]
    path.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode(), preset=9))


def files() -> Sequence[Path]:
    """Return the files of all releases and of what is not released yet."""
    return sorted(HISTORIES.glob(f"*{SUFFIX}"))


def readable(history: dict[str, Any]) -> dict[str, Any]:
    """Return the SDK's JSON of a history with text for data wherever that is UTF-8."""
    return cast("dict[str, Any]", each_object(history, _with_text))


def _with_text(fields: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(fields.get("data"), str) or "metadata" not in fields:
        return fields
    try:
        text = base64.b64decode(fields["data"]).decode()
    except UnicodeDecodeError:
        return fields
    return {name: value for name, value in fields.items() if name != "data"} | {"text": text}


def _with_data(fields: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(fields.get("text"), str) or "metadata" not in fields:
        return fields
    data = base64.b64encode(fields["text"].encode()).decode()
    return {name: value for name, value in fields.items() if name != "text"} | {"data": data}


def each_object(value: object, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:  # noqa: ANN401  # JSON
    """Return JSON with every object in it changed, the inner ones first."""
    if isinstance(value, list):
        return [each_object(each, change) for each in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, object]", value)
    return change({name: each_object(each, change) for name, each in fields.items()})
