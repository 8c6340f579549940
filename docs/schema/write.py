"""Writes the JSON Schemas of what people save and write by hand: `make schema`. Says what every field means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from pydantic import BaseModel

from holdfast.client.report.document import RunExport
from holdfast.core.definition import AgentDefinition
from holdfast.core.state import AgentState

FOLDER: Final = Path(__file__).resolve().parent

MODELS: Final[Mapping[str, type[BaseModel]]] = {
    "agent-state.json": AgentState,
    "agent-definition.json": AgentDefinition,
    "run-export.json": RunExport,
}

FIELDS: Final[Mapping[str, Mapping[str, str]]] = json.loads((FOLDER / "fields.json").read_text(encoding="utf-8"))
"""What every field means, by model and name."""


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of `model`, every type and field described; ValueError names the fields without words."""
    whole = model.model_json_schema()
    missing: list[str] = []
    for name, part in {model.__name__: whole, **whole.get("$defs", {})}.items():
        properties = cast("dict[str, dict[str, Any]]", part.get("properties", {}))
        for field, about in properties.items():
            if field in FIELDS.get(name, {}):
                about["description"] = FIELDS[name][field]
            else:
                missing.append(f"{name}.{field}")
        if "description" in part:
            part["description"] = " ".join(str(part["description"]).split())
    if missing:
        raise ValueError(f"say in docs/schema/fields.json what these mean: {', '.join(missing)}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole}


def text(model: type[BaseModel]) -> str:
    """Return the file's contents."""
    return json.dumps(schema(model), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write every schema beside this file."""
    for name, model in MODELS.items():
        (FOLDER / name).write_text(text(model), encoding="utf-8")


if __name__ == "__main__":
    main()
