"""Random definitions: any that the types allow."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.policies import (
    ApprovalRule,
    ContextPolicy,
    JsonObjectFormat,
    JsonSchemaFormat,
    SummaryPolicy,
    TextFormat,
    reachable_rules,
)
from holdfast.core.base.bounds import SECONDS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Prices
from holdfast.core.conversation.stop_reasons import StopReason
from tests.core.strategies import counts, json_maps, moments, texts

names = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
_plain = st.sampled_from(["word", "\n", "\n\n", " ", "  - item", "---", "key: value", "# title"])
_odd = st.sampled_from(
    ["--- ", "\r\n", "\r", "\u2028", "\x85", "\ufeff", "\t", "'", '"', "\x00", "\x1b[31m", "\U0001f600", "\xa0"]
)
_misread = st.sampled_from(["|", "- ", "null", "2020-01-01", "\\", "%", "*a", "&a", "!!int 1", "1e3", "0x1f", "yes"])
prose = st.lists(_plain, max_size=6).map("".join) | st.lists(_plain | _odd | _misread | texts, max_size=8).map("".join)
"""What a person may write: lines, blanks around them, and what means something to Markdown or YAML."""

costs = st.floats(min_value=0, max_value=1e6)
_words = st.text(min_size=1, max_size=20)
_budgets = st.builds(
    ExecutionBudget,
    max_steps=st.none() | counts,
    max_tokens=st.none() | counts,
    max_seconds=st.none() | st.floats(min_value=0, max_value=SECONDS_MAX),
    max_cost=st.none() | costs,
    deadline=st.none() | moments,
)
_llms = st.builds(
    LLM,
    model=st.none() | _words,
    temperature=st.none() | st.floats(0, 2),
    max_output_tokens=st.none() | st.integers(1, 10**6),
    prices=st.none() | st.builds(Prices, input_usd=costs, output_usd=costs),
)
_guarded = st.lists(names | st.just("*") | st.just("delete_?*"), min_size=1, max_size=2, unique=True).map(tuple)
_places = st.sampled_from(["to", "order.total", "a-b", "\U0001f600"])
_patterns = st.dictionaries(_places, st.sampled_from(["*", "", "?", "*@example.org", "[a]*", "\n"]), max_size=2)
_asking = st.builds(
    ApprovalRule,
    tools=_guarded,
    arguments=_patterns,
    cost_above=st.none() | st.floats(min_value=0, max_value=1e6),
    expires_seconds=st.none() | st.floats(min_value=0.001, max_value=SECONDS_MAX),
)
_exempting = st.builds(ApprovalRule, tools=_guarded, arguments=_patterns, when=st.just("never"))


def _meant(rules: list[ApprovalRule]) -> bool:
    try:
        reachable_rules(tuple(rules))
    except ValueError:
        return False
    return True


approval_rules = st.lists(_asking | _exempting, max_size=3).filter(_meant).map(tuple)
_formats = (
    st.just(TextFormat())
    | st.just(JsonObjectFormat())
    | st.builds(JsonSchemaFormat, name=names, json_schema=json_maps, strict=st.booleans())
)


def _several(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=3, unique=True).map(tuple)


def _summarising(policy: ContextPolicy, summary: SummaryPolicy | None) -> ContextPolicy:
    shows = policy.sections is None or {"summary", "buffer"} <= set(policy.sections)
    return replace(policy, summary=summary if shows else None)


_summaries = st.builds(SummaryPolicy, above_input_tokens=st.integers(1, 10**6), keep_messages=counts)
_shown = _several(names) | _several(names).map(lambda sections: tuple(dict.fromkeys((*sections, "summary", "buffer"))))
_contexts = st.builds(
    ContextPolicy,
    view=st.sampled_from(["current_trace", "all"]),
    sections=st.none() | _shown,
    tool_output_chars_max=st.none() | st.integers(100, 50_000),
    compiler=st.none() | names,
).flatmap(lambda policy: (st.none() | _summaries).map(lambda summary: _summarising(policy, summary)))


_choices = st.just("all") | _several(names.filter(lambda name: name != "all"))


@st.composite
def _definitions(draw: st.DrawFn) -> AgentDefinition:
    name = draw(names)
    tools = draw(_choices)
    return draw(
        st.builds(
            AgentDefinition,
            name=st.just(name),
            label=prose.map(lambda text: text[:200]),
            description=prose,
            system_prompt=prose,
            llm=_llms,
            tools=st.just(tools),
            tools_deny=_several(names.filter(lambda each: each not in (() if tools == "all" else tools))),
            sequential=st.booleans(),
            hooks=_choices,
            capabilities=_several(names),
            subagents=_several(names.filter(lambda each: each != name)),
            max_depth=st.integers(0, 10),
            budget=_budgets,
            budget_policy=st.sampled_from(["inherit", "own"]),
            pause_while_waiting=st.booleans(),
            approvals=approval_rules,
            errors=st.sampled_from(["recover", "fatal"]),
            overridable=_several(st.sampled_from(list(StopReason))),
            max_overrides=st.integers(0, 100),
            finish_reasons=_several(_words),
            response_format=_formats,
            reasks_max=st.integers(0, 10),
            context=_contexts,
            metadata=json_maps,
        )
    )


definitions = _definitions() | st.builds(AgentDefinition, name=names, system_prompt=prose)
"""Those with every field, and those with hardly any."""
