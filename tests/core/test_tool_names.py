"""Tools of several sources on one worker: other names, prefixes, and what is said of two tools of one name."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from holdfast.core.agent.agent import Agent
from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.hooks import Changes, HookContext, hook
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidInput, UnknownTool
from holdfast.core.base.frozen import canonical
from holdfast.core.tools.remote_tools import remote_tool
from holdfast.core.tools.tool_names import check_names
from holdfast.core.tools.tools import tool


@tool(timeout_seconds=7, idempotent=True)
def search(query: str) -> str:
    """Search."""
    return query


@tool
def fetch(url: str) -> str:
    """Fetch."""
    return url


far = remote_tool(name="far", description="d", parameters={"type": "object"}, task_queue="gpu")


@hook("before_tool", tools=["sea*"])
def guard(context: HookContext) -> Changes | None:
    """Block it."""
    return Changes(block=str(context.step_number))


web = Toolset(tools=(search, fetch), hooks=(guard,), capabilities=(Capability(name="finding", tools=("search",)),))


def names(toolset: Toolset) -> list[str]:
    return [each.name for each in toolset.tools]


def test_a_renamed_tool_is_the_same_tool_under_another_name() -> None:
    renamed = search.renamed("web_search")
    assert (renamed.name, renamed.traits.name, renamed("x")) == ("web_search", "web_search", "x")
    assert (renamed.schema.parameters, renamed.traits.timeout_seconds) == (search.schema.parameters, 7)
    assert renamed.traits.described_bytes == len(canonical(renamed.schema))
    assert search.name == "search"


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 65, "inference"])
def test_an_illegal_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"cannot name a tool|is a name of our own"):
        search.renamed(name)


def test_a_prefix_ends_with_one_sign() -> None:
    assert names(web.prefixed("web")) == ["web_search", "web_fetch"]
    assert names(web.prefixed("web_")) == ["web_search", "web_fetch"]
    assert names(web.prefixed("web-")) == ["web-search", "web-fetch"]
    with pytest.raises(InvalidInput, match="cannot name a tool"):
        web.prefixed("x" * 60)


def test_new_names_are_given_with_the_old_ones() -> None:
    assert names(web.renamed({"look_up": "search"})) == ["look_up", "fetch"]
    with pytest.raises(UnknownTool, match="names the tool 'serch', which is not there; did you mean 'search'"):
        web.renamed({"look_up": "serch"})


def test_a_guard_and_a_capability_follow_the_tool_that_they_name() -> None:
    renamed = web.renamed({"look_up": "search"})
    (hooked,) = renamed.hooks
    assert [hooked.traits.concerns(each) for each in ("look_up", "fetch", "search_more")] == [True, False, True]
    assert renamed.capabilities[0].tools == ("look_up",)
    assert set(renamed.equip(AgentDefinition(name="a", capabilities=("finding",))).tools) == {"look_up"}


def test_a_filter_keeps_the_tools_that_it_is_true_for() -> None:
    kept = web.filtered(lambda each: not each.traits.idempotent)
    assert names(kept) == ["fetch"]
    assert kept.capabilities[0].tools == ()


def test_a_remote_tool_keeps_the_name_that_its_worker_serves() -> None:
    with pytest.raises(InvalidInput, match="the remote tool 'far' cannot be called 'x_far' here: its worker serves it"):
        Toolset(tools=(far,)).prefixed("x")


def test_two_tools_of_one_name_are_refused_with_both_sources_and_the_remedy() -> None:
    def other(**arguments: Any) -> None:  # noqa: ANN401  # JSON
        del arguments

    taken = tool(name="far", schema={"type": "object"})(other)
    with pytest.raises(InvalidInput) as caught:
        check_names([search, taken, far])
    text = str(caught.value)
    assert text.startswith("two tools are called 'far': ")
    assert f"{other.__module__}.{other.__qualname__}" in text
    assert "a remote tool of the task queue 'gpu'" in text
    assert "`tool.renamed('far_2')`" in text
    assert "`toolset.prefixed(...)`" in text
    check_names([search, search, fetch])


def test_a_module_and_an_agent_can_hold_toolsets() -> None:
    module = ModuleType("mine")
    vars(module).update(one=web.prefixed("one"), two=web.prefixed("two"), three=fetch)
    assert set(names(Toolset.of_modules([module]))) == {"one_search", "one_fetch", "two_search", "two_fetch", "fetch"}
    agent = Agent(name="a", tools=[web.prefixed("one"), fetch, "ls"])
    assert agent.definition.tools == ("one_search", "one_fetch", "fetch", "ls")
    assert names(agent.toolset) == ["one_search", "one_fetch", "fetch"]
