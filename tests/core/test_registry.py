"""Choosing an agent's tools from those on offer; the agents there are and the report on them."""

from __future__ import annotations

import pytest

from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.definition import SUBAGENTS_MAX, AgentDefinition
from holdfast.core.agent.policies import ApprovalRule, ContextPolicy
from holdfast.core.agent.registry import AgentRegistry, resolve
from holdfast.core.base.bounds import REPORT_CHARS_MAX, TOOLS_MAX
from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.errors import DefinitionInvalid, InvalidInput, UnknownAgent, UnknownTool
from holdfast.core.tools.tools import tool


@tool
def add() -> None:
    """Add."""


@tool
def echo() -> None:
    """Echo."""


@tool
def search_text() -> None:
    """Search."""


OFFERED = (add, echo, search_text)


def chosen(**fields: object) -> list[str]:
    definition = AgentDefinition.model_validate({"name": "agent", **fields})
    return [each.name for each in resolve(definition, OFFERED)]


def test_without_a_choice_an_agent_gets_no_tool() -> None:
    assert chosen() == []
    assert chosen(tools=()) == []


def test_all_is_every_tool_in_the_workers_order() -> None:
    assert chosen(tools="all") == ["add", "echo", "search_text"]


def test_a_choice_is_given_in_its_own_order() -> None:
    assert chosen(tools=("echo", "add")) == ["echo", "add"]


def test_a_denied_tool_is_left_out() -> None:
    assert chosen(tools="all", tools_deny=("echo",)) == ["add", "search_text"]


@pytest.mark.parametrize("field", ["tools", "tools_deny"])
def test_an_unknown_tool_is_refused_with_the_nearest_name(field: str) -> None:
    with pytest.raises(UnknownTool) as caught:
        chosen(**{field: ("search_txt",)})
    expected = "agent 'agent' names the tool 'search_txt', which is not there; did you mean 'search_text'?"
    assert str(caught.value) == expected


def test_without_a_near_name_all_are_listed() -> None:
    assert nearest("zzz", ["echo", "add"]) == "which is not there; there are: add, echo"
    assert nearest("zzz", []) == "which is not there; there are: none"


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two tools are called 'add'"):
        resolve(AgentDefinition(name="agent", tools="all"), (add, tool(name="add")(lambda: None)))


def test_too_many_tools_are_refused() -> None:
    many = [tool(name=f"t{number}")(lambda: None) for number in range(TOOLS_MAX + 1)]
    assert len(resolve(AgentDefinition(name="agent", tools="all"), many[1:])) == TOOLS_MAX
    with pytest.raises(InvalidInput, match=f"gets {TOOLS_MAX + 1} tools, at most {TOOLS_MAX}"):
        resolve(AgentDefinition(name="agent", tools="all"), many)


# --- tools that come with a capability

ECHOING = Capability(name="echoing", tools=("echo",))


def with_capabilities(**fields: object) -> list[str]:
    definition = AgentDefinition.model_validate({"name": "agent", **fields})
    return [each.name for each in resolve(definition, OFFERED, [ECHOING])]


def test_every_tool_leaves_out_what_belongs_to_a_capability() -> None:
    assert with_capabilities(tools="all") == ["add", "search_text"]


def test_a_capability_brings_its_tools_after_the_agents_own() -> None:
    assert with_capabilities(tools="all", capabilities=("echoing",)) == ["add", "search_text", "echo"]
    assert with_capabilities(capabilities=("echoing",)) == ["echo"]
    assert with_capabilities(tools=("echo", "add"), capabilities=("echoing",)) == ["echo", "add"]


def test_a_capabilitys_tool_can_be_had_by_name_and_denied() -> None:
    assert with_capabilities(tools=("echo",)) == ["echo"]
    assert with_capabilities(tools="all", tools_deny=("echo",), capabilities=("echoing",)) == ["add", "search_text"]


def test_a_capability_that_names_a_tool_nobody_offers_is_refused() -> None:
    definition = AgentDefinition(name="agent", capabilities=("echoing",))
    with pytest.raises(UnknownTool, match="names the tool 'echo'"):
        resolve(definition, (add,), [ECHOING])


# --- the agents there are

CLERK = AgentDefinition(name="clerk")
WRITER = AgentDefinition(name="writer", subagents=("clerk",))
AGENTS = AgentRegistry.of(CLERK, WRITER)


def test_a_registry_gives_its_agents_in_order_and_by_name() -> None:
    assert list(AGENTS) == [CLERK, WRITER]
    assert AGENTS.names == ("clerk", "writer")
    assert AGENTS.get("writer") is WRITER
    assert "clerk" in AGENTS
    assert "nobody" not in AGENTS
    assert len(AGENTS) == 2


def test_an_unknown_agent_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownAgent) as caught:
        AGENTS.get("clark")
    assert str(caught.value) == "no agent is called 'clark'; did you mean 'clerk'?"


def test_another_agent_makes_another_registry() -> None:
    more = AGENTS.with_(AgentDefinition(name="third"))
    assert more.names == ("clerk", "writer", "third")
    assert AGENTS.names == ("clerk", "writer")


def test_two_agents_of_one_name_are_refused() -> None:
    with pytest.raises(DefinitionInvalid, match="two agents are called 'clerk'; rename one"):
        AGENTS.with_(AgentDefinition(name="clerk", description="another"))
    with pytest.raises(DefinitionInvalid, match="two agents are called 'clerk'"):
        AgentRegistry.of(CLERK, CLERK)


# --- the report

BROKEN = AgentDefinition(
    name="broken",
    tools=("ad", "echo"),
    tools_deny=("search",),
    hooks=("guardian",),
    capabilities=("echoes",),
    subagents=("clark", "writer"),
    approvals=(ApprovalRule(tools=("ecco", "wri*", "spawn")),),
    context=ContextPolicy(compiler="shorten"),
)
PROBLEMS = (
    "agent 'broken', tools: 'ad' is not there (did you mean 'add'?)",
    "agent 'broken', tools_deny: 'search' is not there (did you mean 'search_text'?)",
    "agent 'broken', hooks: 'guardian' is not there (did you mean 'guard'?)",
    "agent 'broken', capabilities: 'echoes' is not there (did you mean 'echoing'?)",
    "agent 'broken', subagents: 'clark' is not there (did you mean 'clerk'?)",
    "agent 'broken', approvals.0.tools: 'ecco' is not there (did you mean 'echo'?)",
    "agent 'broken', context.compiler: 'shorten' is not there (did you mean 'short'?)",
)


def test_agents_that_fit_the_worker_give_no_problem() -> None:
    assert AGENTS.report(tools=OFFERED, hooks=["guard"], capabilities=[ECHOING], compilers=["short"]) == ()
    AGENTS.check(tools=OFFERED, hooks=["guard"], capabilities=[ECHOING], compilers=["short"])


def test_one_report_tells_every_problem_of_every_agent() -> None:
    lonely = AgentDefinition(name="lonely", tools=("zzz",))
    told = (
        AGENTS.with_(BROKEN)
        .with_(lonely)
        .report(tools=OFFERED, hooks=["guard"], capabilities=[ECHOING], compilers=["short"])
    )
    assert told == (*PROBLEMS, "agent 'lonely', tools: 'zzz' is not there (there are: add, echo, search_text)")


def test_what_each_agent_gets_is_told_beside_what_is_offered() -> None:
    taker = AgentDefinition(name="taker", tools="all", hooks=("guard",))
    bundled = AgentDefinition(name="bundled", capabilities=("echoing",))
    registry = AgentRegistry.of(CLERK, taker, bundled)
    assert registry.choices(tools=OFFERED, hooks=["guard"], capabilities=[ECHOING]) == (
        "agent 'clerk': tools: none (offered: add, search_text); hooks: none (offered: guard)",
        "agent 'taker': tools: add, search_text; hooks: guard",
        "agent 'bundled': tools: echo; hooks: none (offered: guard)",
    )
    assert AgentRegistry.of(CLERK).choices(tools=[])[0] == "agent 'clerk': tools: none; hooks: none"


def test_names_say_as_much_as_the_tools_themselves() -> None:
    registry = AGENTS.with_(BROKEN)
    assert registry.report(tools=["add", "echo", "search_text"]) == registry.report(tools=OFFERED)


def test_what_the_worker_offers_is_not_judged_while_it_is_unknown() -> None:
    assert AGENTS.with_(BROKEN).report() == (PROBLEMS[4],)
    assert AGENTS.with_(BROKEN).report(hooks=[])[0].endswith("hooks: 'guardian' is not there (there are: none)")


def test_a_capability_is_judged_too() -> None:
    bundle = Capability(name="bundle", tools=("ad",), hooks=("gard",))
    assert AGENTS.report(tools=OFFERED, hooks=["guard"], capabilities=[bundle]) == (
        "capability 'bundle', tools: 'ad' is not there (did you mean 'add'?)",
        "capability 'bundle', hooks: 'gard' is not there (did you mean 'guard'?)",
    )


def test_too_many_tools_count_with_capabilities_and_subagents() -> None:
    tools = [f"t{number}" for number in range(TOOLS_MAX - 1)]
    bundle = Capability(name="bundle", tools=("more",))
    agent = AgentDefinition(name="agent", tools="all", capabilities=("bundle", "unknown"), subagents=("clerk",))
    told = AgentRegistry.of(CLERK, agent).report(tools=[*tools, "more"], capabilities=[bundle])
    assert told[0] == (
        f"agent 'agent', tools: it gets {TOOLS_MAX + 1} tools, at most {TOOLS_MAX} are allowed (name the ones it needs)"
    )
    assert AgentRegistry.of(CLERK).report(tools=[*tools, "more"], capabilities=[bundle]) == ()


def test_the_check_tells_the_whole_report_in_one_line() -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        AGENTS.with_(BROKEN).check(tools=OFFERED, hooks=["guard"], capabilities=[ECHOING], compilers=["short"])
    assert str(caught.value) == "; ".join(PROBLEMS)


def test_the_check_stays_within_its_limit() -> None:
    agents = [
        AgentDefinition(name=f"agent{number}", subagents=tuple(f"nobody{each}" for each in range(SUBAGENTS_MAX)))
        for number in range(20)
    ]
    with pytest.raises(DefinitionInvalid, match=r"\[cut: the first") as caught:
        AgentRegistry.of(*agents).check()
    assert len(str(caught.value)) <= REPORT_CHARS_MAX
    assert "\n" not in str(caught.value)
