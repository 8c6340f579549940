"""docs/agents.md shows agents that load, and tells every field with the default it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from holdfast.client.definition_files import load_text
from holdfast.client.definition_text import to_yaml
from holdfast.core.agent.definition import CAPABILITIES_MAX, SUBAGENTS_MAX, AgentDefinition
from holdfast.core.agent.policies import Critique, Plan
from holdfast.core.agent.registry import AgentRegistry
from holdfast.core.base.bounds import HOOKS_MAX, TOOLS_MAX
from holdfast.core.base.errors import DefinitionInvalid
from holdfast.core.tools.code_mode import CodeMode
from holdfast.core.tools.mcp_servers import InlineServer
from holdfast.core.tools.workspace_profile import WorkspaceProfile

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLE = (PAGE.parents[1] / "examples" / "every_field.yaml").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


def section(heading: str) -> str:
    return TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]


def rows() -> dict[str, str]:
    """Return the default that the table tells of each field."""
    lines = [line for line in section("Every field").splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert all(len(row) == 3 for row in cells)
    return {row[0].strip("`"): row[2] for row in cells}


TOLD_ELSEWHERE = (InlineServer, WorkspaceProfile, CodeMode, Critique, Plan)


def models(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401  # any type form
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models(inner)


def fields(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every field that holds no model, by its whole path; `[]` marks a list.

    What pages of their own tell of is one field here: a whole MCP server, a workspace, Code Mode, who judges or plans.
    """
    for name, field in model.model_fields.items():
        inner = [each for each in models(field.annotation) if each not in TOLD_ELSEWHERE]
        many = "[]" if field.default == () else ""
        if not inner:
            yield before + name, field
        for each in inner:
            yield from fields(each, f"{before}{name}{many}.")


def given(data: dict[str, Any], before: str = "") -> Iterator[str]:
    """Yield the paths of the fields that the example gives, down to what is no field any more."""
    known = {path for path, _ in fields(AgentDefinition)}
    for name, value in data.items():
        path = before + name
        if path in known:
            yield path
        elif isinstance(value, list):
            yield from given(value[0], f"{path}[].")  # pyright: ignore[reportUnknownArgumentType]
        else:
            yield from given(value, f"{path}.")


def python() -> dict[str, Any]:
    """Run the page's code on agents, and return what it names."""
    names: dict[str, Any] = {}
    for code in blocks("python")[:2]:
        exec(code, names)  # noqa: S102  # our own page
    return names


def test_the_same_agent_stands_there_in_every_form() -> None:
    (markdown,) = blocks("markdown")
    clerk = python()["clerk"].definition
    assert load_text(markdown, ".md", "clerk") == clerk
    assert load_text(to_yaml(clerk), ".yaml", "clerk") == clerk


def test_the_agents_of_the_page_fit_its_worker() -> None:
    names = python()
    agents = names["agents"]
    assert isinstance(agents, AgentRegistry)
    assert agents.names == ("clerk", "writer")
    with pytest.raises(DefinitionInvalid, match="'mail' is not there"):
        agents.check(capabilities=[])


def test_the_table_tells_every_field_and_no_other() -> None:
    assert list(rows()) == list(dict.fromkeys(path for path, _ in fields(AgentDefinition)))


def test_the_example_gives_every_field_and_loads() -> None:
    assert set(given(yaml.safe_load(EXAMPLE))) == set(rows())
    assert load_text(EXAMPLE, ".yaml", "x").name == "clerk"


def test_the_example_shows_other_values_than_the_defaults() -> None:
    shown = load_text(EXAMPLE, ".yaml", "x")
    same = {name for name, value in AgentDefinition(name="x") if getattr(shown, name) == value}
    assert same == set()


def test_the_defaults_are_the_real_ones() -> None:
    real: dict[str, Any] = {}
    for path, field in fields(AgentDefinition):
        default = None if field.is_required() else to_jsonable_python(field.get_default(call_default_factory=True))
        real.setdefault(path, default)
    told = {path: default for path, default in rows().items() if default.startswith("`")}
    assert {path: yaml.safe_load(default.strip("`")) for path, default in told.items()} == {
        path: real[path] for path in told
    }
    in_words = {path for path in rows() if path not in told}
    assert {path for path, default in real.items() if default is None} == in_words


def test_the_limits_are_the_real_ones() -> None:
    words = section("Every field")
    assert f"names of the worker's tools, at most {TOOLS_MAX}, or `all`" in words
    assert f"like tools, at most {SUBAGENTS_MAX} |" in words
    assert f"`@hook` functions, at most {HOOKS_MAX}, or `all`" in words
    assert f"that the worker offers, at most {CAPABILITIES_MAX} |" in words
