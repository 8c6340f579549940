"""Agent definitions in files and folders; `client.definition_text` parses, `core.agent.definition` defines them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, Final

from holdfast.client.definition_text import SUFFIXES, load_text, to_json, to_markdown, to_yaml
from holdfast.client.validation import check_definition
from holdfast.connection.settings import Settings
from holdfast.core.agent.agent import Agent, AnyAgent, agents_in, distinct_agents, with_subagents
from holdfast.core.agent.assistants import assistant_names, reachable
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.bounds import DEFINITION_BYTES_MAX, REPORT_CHARS_MAX
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import DefinitionInvalid, InvalidInput, UnknownAgent
from holdfast.core.base.safe_text import clamped
from holdfast.runtime.imports import imported_module

__all__ = [
    "AGENTS_MAX",
    "definition_files",
    "find_agent",
    "find_subagents",
    "given_agents",
    "known_agents",
    "load_agents",
    "load_definition",
    "load_text",
    "to_json",
    "to_markdown",
    "to_yaml",
]

AGENTS_MAX: Final = 1_000
"""The most definitions of one folder."""


def load_definition(path: Path) -> AgentDefinition:
    """Return the agent in `path`; its name is the file's unless the file says otherwise.

    Raises DefinitionInvalid with every problem in one line.
    """
    text = _read(path)
    try:
        return load_text(text, path.suffix, path.stem)
    except DefinitionInvalid as error:
        raise DefinitionInvalid(f"{path}: {error}") from None


def load_agents(folder: Path) -> dict[str, AgentDefinition]:
    """Return every agent in `folder` by name; an absent folder has none.

    Raises DefinitionInvalid with every problem of every file in one line.
    """
    agents: dict[str, AgentDefinition] = {}
    problems: list[str] = []
    for path in definition_files(folder):
        try:
            definition = load_definition(path)
        except DefinitionInvalid as error:
            problems.append(error.message)
            continue
        if definition.name in agents:
            problems.append(f"{path}: another file of {folder} already defines {definition.name!r}; rename one")
        agents.setdefault(definition.name, definition)
    if problems:
        raise DefinitionInvalid(" ".join(clamped("; ".join(problems), REPORT_CHARS_MAX).split()))
    return agents


def known_agents(settings: Settings) -> dict[str, AgentDefinition]:
    """Return every agent of the agents folder and of the imported modules, by name. Raises DefinitionInvalid."""
    return _with_imported(load_agents(settings.agents_dir), settings)


def find_agent(agent: str, settings: Settings) -> AgentDefinition:
    """Return the agent called `agent` in the agents folder or the imported modules, or the one in the file."""
    path, folder = Path(agent), settings.agents_dir
    if path.suffix in SUFFIXES:
        return load_definition(path)
    by_stem = [each for each in definition_files(folder) if each.stem == agent]
    if len(by_stem) == 1 and (definition := load_definition(by_stem[0])).name == agent:
        _with_imported({agent: definition}, settings)  # refuses another one of that name
        return definition  # without reading the others: a broken neighbour does not matter
    agents = known_agents(settings)
    if agent in agents:
        return agents[agent]
    absent = "the folder does not exist; choose another one with --agents"
    hint = suggestion(agent, agents) if agents or folder.exists() else absent
    modules = f" and {', '.join(settings.modules)}" if settings.modules else ""
    code = "" if settings.modules else " (`--import MODULE` adds those of a module)"
    raise UnknownAgent(f"no agent is called {agent[:80]!r} in {folder}/{modules}; {hint}{code}")


def given_agents(
    agent: AnyAgent, subagents: Iterable[AgentDefinition | Agent[Any]], settings: Settings
) -> tuple[AgentDefinition, tuple[AgentDefinition, ...]]:
    """Return the definition of `agent`, found where it is only named, and those of the agents given with it.

    Raises UnknownAgent, DefinitionInvalid, InvalidInput.
    """
    return with_subagents(find_agent(agent, settings) if isinstance(agent, str) else agent, subagents)


def find_subagents(
    definition: AgentDefinition, extra: Iterable[AgentDefinition], settings: Settings
) -> tuple[AgentDefinition, ...]:
    """Return every agent that `definition` can call or hand over to, and those that these can.

    Those not given come from the agents folder and the modules.
    """
    if not definition.subagents and not definition.handoffs and not assistant_names(definition):
        return ()
    agents = {**known_agents(settings), **{each.name: each for each in extra}}
    return tuple(check_definition(each) for each in reachable(definition, agents.values()))


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


def _with_imported(definitions: dict[str, AgentDefinition], settings: Settings) -> dict[str, AgentDefinition]:
    """Return the agents found with those of the imported modules. Raises DefinitionInvalid for two of one name."""
    agents = agents_in(map(imported_module, settings.modules))
    imported = distinct_agents(each for agent in agents for each in (agent.definition, *agent.subagents))
    for each in imported:
        if definitions.setdefault(each.name, each) != each:
            text = f"two different agents are called {each.name!r}: one in {settings.agents_dir}/"
            raise DefinitionInvalid(f"{text} and one in {', '.join(settings.modules)}; rename one")
    return definitions


def _read(path: Path) -> str:
    try:
        info = path.stat()
        if not (S_ISREG(info.st_mode) or S_ISDIR(info.st_mode)):  # opening a pipe would wait for its writer
            raise DefinitionInvalid(f"{path}: cannot be read: it is not a file")
        if info.st_size > 4 * DEFINITION_BYTES_MAX:
            raise DefinitionInvalid(f"{path}: larger than any definition may be ({DEFINITION_BYTES_MAX:,} bytes)")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DefinitionInvalid(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DefinitionInvalid(f"{path}: is not UTF-8 text") from None
    except ValueError as error:
        raise DefinitionInvalid(f"{str(path)!r}: cannot be read: {error}") from None
