"""What a worker offers by its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import AgentDefinition, Toolset
from holdfast.capabilities.web_pages import fetch_url
from holdfast.capabilities.worker_capabilities import HOSTS_VARIABLE, SKILLS_VARIABLE, with_configured
from holdfast.core.agent.registry import AgentRegistry
from holdfast.core.base.errors import DefinitionInvalid, InvalidInput


def offered(folder: Path, **environment: str) -> list[str]:
    whole = with_configured(Toolset(), environment, folder / "agents")
    return [each.name for each in whole.capabilities]


def skill(folder: Path) -> None:
    (folder / "letters").mkdir(parents=True)
    (folder / "letters" / "SKILL.md").write_text("---\nname: letters\ndescription: d\n---\nx")


def test_a_worker_offers_what_its_environment_configures_and_nothing_else(tmp_path: Path) -> None:
    assert offered(tmp_path) == []
    assert offered(tmp_path, HOLDFAST_FETCH_HOSTS="docs.example.com, *.example.org") == ["fetch_url"]
    skill(tmp_path / "elsewhere")
    assert offered(tmp_path, HOLDFAST_SKILLS=str(tmp_path / "elsewhere")) == ["skills"]
    skill(tmp_path / "skills")
    assert offered(tmp_path) == ["skills"]


def test_a_capability_of_the_users_own_counts_instead(tmp_path: Path) -> None:
    own = fetch_url(["a.example.com"])
    whole = with_configured(own, {"HOLDFAST_FETCH_HOSTS": "b.example.com"}, tmp_path / "agents")
    assert whole == own


@pytest.mark.parametrize(
    ("name", "value"), [("HOLDFAST_FETCH_HOSTS", "https://a.example.com"), ("HOLDFAST_SKILLS", "/nowhere")]
)
def test_what_is_configured_wrongly_is_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=value):
        offered(tmp_path, **{name: value})


@pytest.mark.parametrize(("name", "setting"), [("fetch_url", HOSTS_VARIABLE), ("skills", SKILLS_VARIABLE)])
def test_an_agent_without_what_it_names_is_told_the_setting(tmp_path: Path, name: str, setting: str) -> None:
    agent, worker = AgentDefinition(name="clerk", capabilities=(name,)), with_configured(Toolset(), {}, tmp_path / "x")
    with pytest.raises(DefinitionInvalid, match=f"'{name}', which is not there; a worker offers .* {setting} names"):
        worker.equip(agent)
    with pytest.raises(DefinitionInvalid, match=f"'{name}' is not there .*{setting}"):
        AgentRegistry.of(agent).check(capabilities=worker.capabilities)
