"""Capabilities: what an agent gets by naming one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.agent.capability_bundles import Capability, hook_names, resolved, tool_names
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.bounds import DEFINITION_BYTES_MAX, HOOKS_MAX, TOOLS_MAX
from holdfast.core.base.errors import DefinitionInvalid
from tests.core.defining import definitions, names

REFUNDS = Capability(name="refunds", tools=("refund", "find_order"), hooks=("guard",), prompt="Refund with care.")
MAIL = Capability(name="mail", tools=("send",), prompt="Be polite.")
OFFERED = ("add", "refund", "find_order", "send")
bundles = st.lists(
    st.builds(
        Capability,
        name=names,
        tools=st.lists(names, max_size=2, unique=True).map(tuple),
        hooks=st.lists(names, max_size=2, unique=True).map(tuple),
        prompt=st.text(max_size=5),
    ),
    max_size=3,
    unique_by=lambda bundle: bundle.name,
)


def test_a_capability_adds_its_tools_hooks_and_prompt() -> None:
    definition = AgentDefinition(
        name="clerk",
        system_prompt="You help.",
        tools=("find_order", "add"),
        hooks=(),
        capabilities=("mail", "refunds"),
    )
    got = resolved(definition, [REFUNDS, MAIL])
    assert got.tools == ("find_order", "add", "send", "refund")
    assert got.hooks == ("guard",)
    assert got.system_prompt == "You help.\n\nBe polite.\n\nRefund with care."
    assert got.capabilities == ("mail", "refunds")


def test_without_a_prompt_of_its_own_an_agent_has_the_capability_s() -> None:
    assert resolved(AgentDefinition(name="a", capabilities=("mail",)), [MAIL]).system_prompt == "Be polite."


def test_an_agent_that_names_no_capability_stays_as_it_is() -> None:
    definition = AgentDefinition(name="a", tools=())
    assert resolved(definition, [REFUNDS]) is definition


def test_every_tool_stays_every_tool_and_gains_the_capability_s() -> None:
    definition = AgentDefinition(name="a", tools="all", hooks="all", capabilities=("mail",))
    got = resolved(definition, [REFUNDS, MAIL])
    assert (got.tools, got.hooks) == ("all", "all")
    assert tool_names(got, OFFERED, [REFUNDS, MAIL]) == ("add", "send")
    assert hook_names(got, ("log", "guard"), [REFUNDS, MAIL]) == ("log",)


def test_a_denied_tool_is_not_brought_back_by_a_capability() -> None:
    definition = AgentDefinition(name="a", tools=(), tools_deny=("refund",), capabilities=("refunds",))
    assert resolved(definition, [REFUNDS]).tools == ("find_order",)
    assert tool_names(definition, OFFERED, [REFUNDS]) == ("find_order",)


def test_an_unknown_capability_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        resolved(AgentDefinition(name="a", capabilities=("refund",)), [REFUNDS, MAIL])
    expected = "agent 'a' names the capability 'refund', which is not there; did you mean 'refunds'?"
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("bundle", "words"),
    [
        (Capability(name="much", tools=tuple(f"t{number}" for number in range(TOOLS_MAX + 1))), "129 tools"),
        (Capability(name="much", hooks=tuple(f"h{number}" for number in range(HOOKS_MAX + 1))), "65 hooks"),
        (Capability(name="much", prompt="x" * DEFINITION_BYTES_MAX), "bytes"),
    ],
    ids=["tools", "hooks", "bytes"],
)
def test_a_capability_cannot_bring_more_than_a_definition_may_hold(bundle: Capability, words: str) -> None:
    definition = AgentDefinition(name="a", tools=(), hooks=(), capabilities=("much",))
    with pytest.raises(DefinitionInvalid, match=f"{words} with its capabilities, at most"):
        resolved(definition, [bundle])


@given(definitions, bundles, st.lists(names, max_size=3, unique=True))
def test_what_is_written_out_is_a_definition_and_gives_the_same_tools_and_hooks(
    definition: AgentDefinition, offer: list[Capability], offered: list[str]
) -> None:
    asking = definition.model_copy(update={"capabilities": tuple(bundle.name for bundle in offer)})
    got = resolved(asking, offer)
    assert AgentDefinition.model_validate(got.model_dump()) == got
    assert tool_names(got, offered, offer) == tool_names(asking, offered, offer)
    assert hook_names(got, offered, offer) == hook_names(asking, offered, offer)
