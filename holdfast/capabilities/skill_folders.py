"""`skills`: folders of instructions that an agent lists, and loads when its task needs them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, Final

import yaml

from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.errors import InvalidArguments, InvalidInput
from holdfast.core.tools.tools import tool
from holdfast.runtime.plain_yaml import PlainLoader

NAME: Final = "skills"

SKILL_FILE: Final = "SKILL.md"

SKILLS_MAX: Final = 100
"""The most skills of one folder: the model reads the whole list."""

LIST_CHARS_MAX: Final = 16_000
"""The longest list of skills in a prompt, which every model call is sent."""

DESCRIPTION_CHARS_MAX: Final = 1_024
"""The longest description, as agentskills.io has it."""

SKILL_BYTES_MAX: Final = 64_000
"""The largest SKILL.md: a model reads it whole."""

FILE_BYTES_MAX: Final = 1_000_000
"""The largest file beside it that is read."""

FILES_LISTED_MAX: Final = 200
"""How many files of a skill are listed."""

ENTRIES_MAX: Final = 5_000
"""How many entries of a skill's folder are looked at for the list."""

DEPTH_MAX: Final = 8
"""How many folders deep a skill's files are listed."""

PROMPT: Final = (
    "You have skills: instructions for certain tasks. When a task fits one, call load_skill with its name before you "
    "begin, and follow it. Your skills:"
)

_SKILL_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill as its SKILL.md was when the folder was read; its other files are read when they are asked for."""

    name: str
    description: str
    text: str
    folder: Path


def skills(folder: str | Path, include: Iterable[str] | None = None) -> Toolset:
    """Return the capability `skills`: the skills of a folder, listed in the prompt, and the tools that read them.

        Agent(name="clerk", capabilities=["skills"], tools=[skills("skills")])

    A skill is a folder with a file `SKILL.md`: front matter with `name` (the folder's) and `description`, then its
    text. Files beside it are read with `read_skill_file`. SKILL.md is read now, other files when they are asked for.

    Args:
        folder: the folder that holds the skills' folders.
        include: the names of the skills to take; all by default.

    Raises InvalidInput with every problem of every skill, and for a folder without any.
    """
    every = load_skills(Path(folder))
    if include is not None:
        names = tuple(include)
        for name in names:
            if name not in every:
                raise InvalidInput(f"include names the skill {name!r}, {nearest(name, every)}")
        every = {name: every[name] for name in names}
    if not every:
        raise InvalidInput(f"{folder}/ has no skills; a skill is a folder in it with a file {SKILL_FILE}")
    listed = "\n".join((PROMPT, *(f"- {each.name}: {each.description}" for each in every.values())))
    if len(listed) > LIST_CHARS_MAX:
        text = f"the list of skills of {folder}/ has {len(listed):,} characters, at most {LIST_CHARS_MAX:,} are allowed"
        raise InvalidInput(f"{text}; shorten descriptions, or choose some with include=[...]")

    @tool(idempotent=True)
    def load_skill(name: str) -> str:
        """Read a skill's instructions, and which files it has.

        Args:
            name: the skill, as your list of skills names it.
        """
        return _loaded(_named(every, name))

    @tool(idempotent=True)
    def read_skill_file(name: str, path: str) -> str:
        """Read a file of a skill.

        Args:
            name: the skill.
            path: the file's path within it, as load_skill lists it.
        """
        return read_file(_named(every, name).folder, path)

    tools = (load_skill, read_skill_file)
    bundle = Capability(name=NAME, tools=tuple(each.name for each in tools), prompt=listed)
    return Toolset(tools=tools, capabilities=(bundle,))


def load_skills(folder: Path) -> dict[str, Skill]:
    """Return every skill of `folder` by name, in order. Raises InvalidInput with every problem, one line."""
    try:
        places = sorted(each for each in folder.iterdir() if (each / SKILL_FILE).exists())
    except OSError as error:
        raise InvalidInput(f"the folder of skills {folder} cannot be read: {error.strerror}") from None
    if len(places) > SKILLS_MAX:
        raise InvalidInput(f"the folder {folder} holds {len(places)} skills, at most {SKILLS_MAX} are allowed")
    found: dict[str, Skill] = {}
    problems: list[str] = []
    for place in places:
        try:
            found[place.name] = _skill(place)
        except InvalidArguments as error:
            problems.append(f"{place / SKILL_FILE}: {error.message}")
    if problems:
        raise InvalidInput("; ".join(problems))
    return found


def _skill(folder: Path) -> Skill:
    """Return the skill of a folder. Raises InvalidArguments for one that is not well formed."""
    text = read_file(folder, SKILL_FILE, SKILL_BYTES_MAX).removeprefix("\ufeff").replace("\r\n", "\n")
    head, closing, body = text.removeprefix("---\n").partition("\n---\n")
    if not text.startswith("---\n") or not closing:
        raise InvalidArguments("it does not begin with front matter: `---`, `name:` and `description:`, `---`")
    try:
        read: dict[Any, Any] | None = yaml.load(head, PlainLoader)  # noqa: S506  # a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidArguments(f"its front matter is no YAML: {' '.join(str(error).split())[:300]}") from None
    fields = read if isinstance(read, dict) else {}
    name, about = fields.get("name"), fields.get("description")
    if name != folder.name or _SKILL_NAME.fullmatch(folder.name) is None or len(folder.name) > 64:  # noqa: PLR2004  # as agentskills.io
        text = f"`name` is {str(name)[:80]!r}, the folder is called {folder.name[:80]!r}"
        raise InvalidArguments(f"{text}; both must be the same, of small letters, digits and hyphens, at most 64")
    if not isinstance(about, str) or not 0 < len(about.strip()) <= DESCRIPTION_CHARS_MAX:
        raise InvalidArguments(f"`description` must be a text of at most {DESCRIPTION_CHARS_MAX:,} characters")
    return Skill(folder.name, " ".join(about.split()), body.strip(), folder)


def _named(every: dict[str, Skill], name: str) -> Skill:
    if name not in every:
        raise InvalidArguments(f"the skill {name[:80]!r} is asked for, {nearest(name, every)}")
    return every[name]


def _loaded(skill: Skill) -> str:
    files = list(_files(skill.folder))
    if not files:
        return skill.text
    more = ["(there are more)"] if len(files) > FILES_LISTED_MAX else []
    listed = "\n".join([*(f"- {each}" for each in files[:FILES_LISTED_MAX]), *more])
    return f"{skill.text}\n\nFiles of this skill, for read_skill_file:\n{listed}"


def _files(folder: Path) -> Iterator[str]:
    """Yield the paths of a skill's other files, sorted, without links and what is hidden; bounded."""
    seen = listed = 0
    for place, folders, files in os.walk(folder):
        inner = Path(place).relative_to(folder)
        folders[:] = (
            sorted(each for each in folders if not each.startswith(".")) if len(inner.parts) < DEPTH_MAX else []
        )
        for name in sorted(files):
            seen += 1
            path = inner / name
            if not name.startswith(".") and str(path) != SKILL_FILE and not (folder / path).is_symlink():
                listed += 1
                yield path.as_posix()
            if seen >= ENTRIES_MAX or listed > FILES_LISTED_MAX:
                return


def read_file(folder: Path, path: str, bytes_max: int = FILE_BYTES_MAX) -> str:
    """Return a text file below `folder`. Raises InvalidArguments for a path that leads out, and what is no such file.

    Each part is opened relative to the one before it and never through a link, so that nothing can be exchanged between
    the check and the use. `folder` itself may be a link.
    """
    parts = path.split("/")
    if not path or "\0" in path or "\\" in path or any(part in ("", ".", "..") for part in parts):
        raise InvalidArguments(
            f"{path[:200]!r} is no path of a file here; write it as it is listed, such as 'docs/a.md'"
        )
    opened: list[int] = []
    try:
        opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
        for part in parts[:-1]:
            opened.append(os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[-1]))
        # without O_NONBLOCK, opening a pipe would wait for its writer
        opened.append(os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened[-1]))
        return _text(opened[-1], path, bytes_max)
    except OSError as error:
        raise InvalidArguments(f"{path[:200]!r} cannot be read: {error.strerror}") from None
    except ValueError:  # lone surrogates
        raise InvalidArguments(f"{path[:200]!r} is no path of a file here") from None
    finally:
        for descriptor in opened:
            with suppress(OSError):
                os.close(descriptor)


def _text(descriptor: int, path: str, bytes_max: int) -> str:
    info = os.fstat(descriptor)
    if not S_ISREG(info.st_mode):
        kind = "a folder" if S_ISDIR(info.st_mode) else "no file"
        raise InvalidArguments(f"{path[:200]!r} is {kind}")
    with os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise InvalidArguments(f"{path[:200]!r} has more than {bytes_max:,} bytes, which is too large to read")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidArguments(f"{path[:200]!r} is not UTF-8 text") from None
