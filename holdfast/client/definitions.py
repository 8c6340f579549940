"""Reading agents from files: Markdown with YAML front matter, YAML or JSON. What they mean is `core.definition`'s."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, Final, cast

import yaml
from pydantic import BaseModel, ValidationError

from holdfast.client.requests import check_definition
from holdfast.core.definition import AgentDefinition
from holdfast.core.errors import DefinitionInvalid, InvalidInput, UnknownAgent
from holdfast.core.limits import DEFINITION_BYTES_MAX, ERROR_CHARS_MAX
from holdfast.core.registry import nearest
from holdfast.core.texts import clamped

SUFFIXES: Final = (".md", ".yaml", ".yml", ".json")
AGENTS_MAX: Final = 1_000
"""The most definitions of one folder."""


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases, which can make a small file expand without end, and without a field given twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401  # PyYAML's signature
        if self.check_event(yaml.AliasEvent):  # pyright: ignore[reportUnknownMemberType]  # untyped in the stubs
            raise yaml.YAMLError("aliases (*name) are not allowed")
        return super().compose_node(parent, index)  # pyright: ignore[reportUnknownMemberType]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002  # PyYAML's signature
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        _refuse_twice(names)
        return super().construct_mapping(node, deep)


def load_definition(path: Path) -> AgentDefinition:
    """Return the agent in `path`; its name is the file's unless the file says otherwise.

    Raises DefinitionInvalid with every problem in one line.
    """
    data = _read(path)
    data.setdefault("name", path.stem)
    try:
        return check_definition(AgentDefinition.model_validate(data))
    except ValidationError as error:
        raise DefinitionInvalid(f"{path}: {_told(error)}") from None
    except InvalidInput as error:
        raise DefinitionInvalid(f"{path}: {error}") from None


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
    hint = _hint(agent, known) if folder.exists() else "the folder does not exist; choose another one with --agents"
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
        found = path.stat()
        if not (S_ISREG(found.st_mode) or S_ISDIR(found.st_mode)):  # opening a pipe would wait for its writer
            raise DefinitionInvalid(f"{path}: cannot be read: it is not a file")
        if found.st_size > 4 * DEFINITION_BYTES_MAX:
            raise DefinitionInvalid(f"{path}: larger than any definition may be ({DEFINITION_BYTES_MAX:,} bytes)")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DefinitionInvalid(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DefinitionInvalid(f"{path}: is not UTF-8 text") from None
    except ValueError as error:
        raise DefinitionInvalid(f"{str(path)!r}: cannot be read: {error}") from None
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
        return _mapping(json.loads(text, object_pairs_hook=_once))
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


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    _refuse_twice([name for name, _ in pairs])
    return dict(pairs)


def _refuse_twice(names: Sequence[str]) -> None:
    """Raise ValueError for a field that is given twice: the parsers would keep one of the two and say nothing."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"the field {name[:80]!r} stands there twice; keep one")
        seen.add(name)


def _told(error: ValidationError) -> str:
    """Return every problem in one line, each with its field and, for an unknown one, the nearest known name."""
    problems: list[str] = []
    for problem in error.errors(include_url=False):
        field = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            problems.append(f"unknown field {field[:80]!r}, {_hint(str(problem['loc'][-1]), _fields(problem['loc']))}")
        else:
            said = problem["msg"].removeprefix("Value error, ")
            problems.append(f"{field[:80]}: {said} (it is {str(problem['input'])[:60]!r})")
    return " ".join(clamped("; ".join(problems), ERROR_CHARS_MAX).split())


def _fields(place: Sequence[int | str]) -> Collection[str]:
    """Return the fields there are where `place` names one."""
    model: type[BaseModel] = AgentDefinition
    for part in place[:-1]:
        inner = model.model_fields[str(part)].annotation if part in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return ()
        model = inner
    return model.model_fields


def _hint(name: str, known: Collection[str]) -> str:
    return nearest(name, known).removeprefix("which is not there; ")
