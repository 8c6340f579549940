"""Writes the JSON Schemas of what people save, write and are sent: `make schema`. Says what every field means."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from holdfast.core.agent.budget import LIMITS, ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.state import AgentState
from holdfast.core.wire import event_envelope
from holdfast.core.wire.execution_events import KINDS
from holdfast.core.wire.session_events import SESSION_KINDS
from holdfast.view.report import RunExport

FOLDER: Final = Path(__file__).resolve().parent

SCHEMAS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "agent-state.json": AgentState.model_json_schema,
    "agent-definition.json": AgentDefinition.model_json_schema,
    "event.json": event_envelope.json_schema,
    "run-export.json": RunExport.model_json_schema,
}

WRITTEN: Final[Mapping[str, Mapping[str, str]]] = json.loads((FOLDER / "fields.json").read_text(encoding="utf-8"))
LIMITED: Final = {
    limit.field: f"At most this many {limit.unit}: {limit.counts}. None is unlimited." for limit in LIMITS
}
FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    **WRITTEN,
    ExecutionBudget.__name__: {**LIMITED, **WRITTEN[ExecutionBudget.__name__]},
}
"""What every field means, by model and name: as written, and those that are limits as their table says."""


ENVELOPES: Final[Mapping[str, str]] = {**dict.fromkeys(KINDS, "Event"), **dict.fromkeys(SESSION_KINDS, "SessionEvent")}
"""Under which name FIELDS has what is the same in every kind of an execution's events, and of a session's."""


def schema(name: str) -> dict[str, Any]:
    """Return a JSON Schema, every type and field described; ValueError names the fields without words."""
    whole = SCHEMAS[name]()
    missing: list[str] = []
    for model, part in {whole["title"]: whole, **whole.get("$defs", {})}.items():
        words = {**FIELDS.get(ENVELOPES.get(model, ""), {}), **FIELDS.get(model, {})}
        properties = cast("dict[str, dict[str, Any]]", part.get("properties", {}))
        for field, about in properties.items():
            if field in words:
                about["description"] = words[field]
            else:
                missing.append(f"{model}.{field}")
        if "description" in part:
            part["description"] = " ".join(str(part["description"]).split())
    if missing:
        raise ValueError(f"say in docs/schema/fields.json what these mean: {', '.join(missing)}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole}


def text(name: str) -> str:
    """Return the file's contents."""
    return json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write every schema beside this file."""
    for name in SCHEMAS:
        (FOLDER / name).write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
