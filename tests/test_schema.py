"""The published JSON Schemas are those of the models, and say what every field means."""

from __future__ import annotations

from typing import Any

import pytest

from docs.schema.write import ENVELOPES, FIELDS, FOLDER, SCHEMAS, schema, text


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_published_schema_is_the_models_own(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == text(name), "run `make schema`"


def parts(name: str) -> dict[str, dict[str, Any]]:
    whole = schema(name)
    return {whole["title"]: whole, **whole["$defs"]}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_has_titles_and_descriptions_and_no_address_of_its_own(name: str) -> None:
    for model, part in parts(name).items():
        assert "$id" not in part
        if model != "JsonValue":
            assert part["title"], model
            assert part["description"], model
        for field, about in part.get("properties", {}).items():
            assert about["description"], f"{model}.{field}"
            assert about.get("title") or "$ref" in about or "anyOf" in about, f"{model}.{field}"


def test_only_fields_that_exist_are_described() -> None:
    known = {model: set(part.get("properties", {})) for name in SCHEMAS for model, part in parts(name).items()}
    for envelope in sorted(set(ENVELOPES.values())):
        kinds = [kind for kind, each in ENVELOPES.items() if each == envelope]
        common = set[str].intersection(*(known[kind] for kind in kinds))
        known.update({kind: known[kind] - common for kind in kinds})
        known[envelope] = common
    described = {model: set(fields) for model, fields in FIELDS.items()}
    assert described == {model: fields for model, fields in known.items() if fields}
