"""Reading agents from files: Markdown with YAML front matter, YAML or JSON. What they mean is `core.definition`'s."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, cast

import yaml
from pydantic import ValidationError

from holdfast.core.definition import AgentDefinition
from holdfast.core.errors import DefinitionInvalid, InvalidInput, UnknownAgent
from holdfast.core.frozen import canonical
from holdfast.core.limits import DEFINITION_BYTES_MAX

SUFFIXES: Final = (".md", ".yaml", ".yml", ".json")
AGENTS_MAX: Final = 1_000
"""The most definitions of one folder."""


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases: they can make a small file expand without end."""

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401  # PyYAML's signature
        if self.check_event(yaml.AliasEvent):  # pyright: ignore[reportUnknownMemberType]  # untyped in the stubs
            raise yaml.YAMLError("aliases (*name) are not allowed")
        return super().compose_node(parent, index)  # pyright: ignore[reportUnknownMemberType]


def load_definition(path: Path) -> AgentDefinition:
    """Return the agent in `path`; its name is the file's unless the file says otherwise.

    Raises DefinitionInvalid with every problem in one line.
    """
    data = _read(path)
    data.setdefault("name", path.stem)
    try:
        definition = AgentDefinition.model_validate(data)
    except ValidationError as error:
        raise DefinitionInvalid(f"{path}: {_told(error)}") from None
    size = len(canonical(definition))
    if size > DEFINITION_BYTES_MAX:
        raise DefinitionInvalid(
            f"{path}: the definition has {size:,} bytes, at most {DEFINITION_BYTES_MAX:,} are allowed"
        )
    return definition


def load_agents(folder: Path) -> dict[str, AgentDefinition]:
    """Return every agent in `folder` by name; an absent folder has none."""
    found: dict[str, AgentDefinition] = {}
    for path in definition_files(folder):
        definition = load_definition(path)
        if definition.name in found:
            raise DefinitionInvalid(f"{path}: another file of {folder} already defines {definition.name!r}; rename one")
        found[definition.name] = definition
    return found


def find_agent(agent: str, folder: Path) -> AgentDefinition:
    """Return the agent called `agent` in `folder`, or the one in the file of that path."""
    path = Path(agent)
    if path.suffix in SUFFIXES:
        return load_definition(path)
    by_stem = [each for each in definition_files(folder) if each.stem == agent]
    if len(by_stem) == 1 and (definition := load_definition(by_stem[0])).name == agent:
        return definition  # without reading the others: a broken neighbour does not matter
    known = load_agents(folder)
    if agent in known:
        return known[agent]
    near = get_close_matches(agent, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known)) or 'none'}"
    raise UnknownAgent(f"no agent is called {agent[:80]!r} in {folder}/; {hint}")


def definition_files(folder: Path) -> list[Path]:
    """Return the definition files of `folder` in order of name; README files are not definitions."""
    if not folder.exists():
        return []
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.stem.upper() != "README")
    except OSError as error:
        raise InvalidInput(f"the agents folder {folder} cannot be read: {error.strerror}") from None
    if len(files) > AGENTS_MAX:
        raise InvalidInput(
            f"the agents folder {folder} holds {len(files):,} definitions, at most {AGENTS_MAX:,} are allowed"
        )
    return files


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > 4 * DEFINITION_BYTES_MAX:
            raise DefinitionInvalid(f"{path}: larger than any definition may be ({DEFINITION_BYTES_MAX:,} bytes)")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DefinitionInvalid(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DefinitionInvalid(f"{path}: is not UTF-8 text") from None
    try:
        data = _parsed(text, path.suffix)
    except yaml.YAMLError as error:
        raise DefinitionInvalid(f"{path}: the YAML cannot be read: {' '.join(str(error).split())[:300]}") from None
    except (ValueError, RecursionError) as error:
        raise DefinitionInvalid(f"{path}: cannot be read: {error}") from None
    return data


def _parsed(text: str, suffix: str) -> dict[str, Any]:
    """Return the fields of a definition; the body of a Markdown file is the system prompt."""
    if suffix == ".json":
        return _mapping(json.loads(text))
    if suffix != ".md":
        return _mapping(yaml.load(text, _PlainLoader))  # noqa: S506  # a SafeLoader, stricter
    head, body = _front_matter(text)
    data = _mapping(yaml.load(head, _PlainLoader) or {})  # noqa: S506
    if body.strip():
        if data.get("system_prompt"):
            raise ValueError("it has both a system_prompt field and a text below the front matter; keep one")
        data["system_prompt"] = body.strip()
    return data


def _front_matter(text: str) -> tuple[str, str]:
    """Return what stands between the two `---` lines at the top, and what follows them."""
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    if not lines or lines[0].strip() != "---":
        return "", text
    for number, line in enumerate(lines[1:], start=1):
        if line.strip() == "---":
            return "".join(lines[1:number]), "".join(lines[number + 1 :])
    raise ValueError("the front matter has no closing `---` line")


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"a definition is a mapping of fields, this is a {type(value).__name__}")  # noqa: TRY004  # one except
    return {str(name): each for name, each in cast("dict[object, Any]", value).items()}


def _told(error: ValidationError) -> str:
    """Return every problem in one line, each with its field and, for an unknown one, the nearest known name."""
    problems: list[str] = []
    for problem in error.errors(include_url=False):
        field = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            near = get_close_matches(field.rpartition(".")[2], AgentDefinition.model_fields, n=1)
            problems.append(f"unknown field {field!r}" + (f", did you mean {near[0]!r}?" if near else ""))
        else:
            problems.append(f"{field}: {problem['msg']} (it is {str(problem['input'])[:60]!r})")
    return "; ".join(problems)
