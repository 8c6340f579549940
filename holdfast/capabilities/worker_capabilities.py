"""The capabilities that a worker offers by its environment: pages of allowed hosts, skills of a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.capabilities.skill_folders import skills
from holdfast.capabilities.web_pages import fetch_url
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidInput

HOSTS_VARIABLE: Final = "HOLDFAST_FETCH_HOSTS"
SKILLS_VARIABLE: Final = "HOLDFAST_SKILLS"

SKILLS_FOLDER: Final = "skills"
"""The folder of skills beside that of the agents, where no other is named."""


def with_configured(toolset: Toolset, environment: Mapping[str, str], agents_dir: Path) -> Toolset:
    """Return `toolset` with what the environment configures; a capability of that name in it stays, and counts instead.

    `fetch_url` is for the hosts of HOLDFAST_FETCH_HOSTS, with commas between. The skills are those of HOLDFAST_SKILLS,
    else of the folder `skills` beside `agents_dir` if that holds any. Raises InvalidInput, MissingPart.
    """
    there = {each.name for each in toolset.capabilities}
    hosts = [each.strip() for each in environment.get(HOSTS_VARIABLE, "").split(",") if each.strip()]
    if hosts and "fetch_url" not in there:
        try:
            toolset = toolset.joined(fetch_url(hosts))
        except InvalidInput as error:
            raise InvalidInput(f"{HOSTS_VARIABLE}: {error.message}") from None
    if "skills" in there:
        return toolset
    if named := environment.get(SKILLS_VARIABLE):
        return toolset.joined(skills(named))
    usual = agents_dir.parent / SKILLS_FOLDER
    return toolset.joined(skills(usual)) if any(usual.glob("*/SKILL.md")) else toolset
