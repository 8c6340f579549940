"""Tools that are searched for: when, what is found, what a call through `call_tool` is; and what catalogs changed."""

from __future__ import annotations

import json

import pytest

from holdfast.core.base.bounds import TOOLS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.tools.mcp_catalog import McpCatalog, McpTool
from holdfast.core.tools.mcp_changes import CHANGED_NAMES_MAX, McpToolsChange, tool_changes
from holdfast.core.tools.tool_search import (
    CALL_TOOL,
    RESULT_BYTES_MAX,
    RESULTS_MAX,
    SEARCH_TOOL,
    called_tool,
    ranked,
    search_result,
    too_many,
    with_search,
)
from holdfast.core.tools.tool_traits import ToolSchema, ToolTraits

OWN = ToolTraits(name="add", described_bytes=100)
FOREIGN = ToolTraits(name="shop_pay", mcp="shop", described_bytes=400, at_most_once=True)


def schema(name: str, description: str = "", **properties: str) -> ToolSchema:
    parameters = {"type": "object", "properties": {key: {"type": each} for key, each in properties.items()}}
    return ToolSchema.model_validate({"name": name, "description": description, "parameters": parameters})


def many(count: int) -> tuple[ToolTraits, ...]:
    return tuple(replace(FOREIGN, name=f"shop_{number}") for number in range(count))


def test_the_window_and_the_count_decide_whether_tools_are_searched_for() -> None:
    assert not too_many((OWN, *many(TOOLS_MAX - 2)), 1, TOOLS_MAX, None)
    assert too_many((OWN, *many(TOOLS_MAX - 1)), 1, TOOLS_MAX, None)
    assert not too_many(tuple(replace(OWN, name=f"a{n}") for n in range(TOOLS_MAX + 1)), 0, TOOLS_MAX, 10)
    ten = many(10)  # 4,000 bytes, about 1,000 tokens
    assert not too_many(ten, 0, TOOLS_MAX, 10_000)
    assert too_many(ten, 0, TOOLS_MAX, 9_999)


def test_the_two_stand_behind_an_agents_own_tools_and_the_others_are_not_shown() -> None:
    tools, schemas = with_search((OWN, *many(2), replace(OWN, name="sub")))
    assert [(each.name, each.deferred) for each in tools] == [
        *(("add", False), ("sub", False), (SEARCH_TOOL, False), (CALL_TOOL, False)),
        *(("shop_0", True), ("shop_1", True)),
    ]
    assert [each.name for each in schemas] == [SEARCH_TOOL, CALL_TOOL]
    assert "2 further tools, of shop" in schemas[0].description


def test_names_count_more_than_descriptions_and_rare_words_more_than_common_ones() -> None:
    tools = [
        schema("list_orders", "List the orders of a customer."),
        schema("payInvoice", "Settle it."),
        schema("refund", "Give the money of an invoice back."),
        schema("customer_list", "All of them."),
    ]
    assert [each.name for each in ranked("invoice", tools)] == ["payInvoice", "refund"]
    assert ranked("pay an INVOICE, please", tools)[0].name == "payInvoice"
    assert ranked("customer orders", tools)[0].name == "list_orders"
    assert [each.name for each in ranked("custom", tools)] == ["customer_list", "list_orders"], "a word's beginning"
    assert ranked("customer_list", tools)[0].name == "customer_list"
    assert ranked("", tools) == ranked("zebra", tools) == ()


def test_a_search_answers_with_few_tools_and_their_schemas() -> None:
    answer = json.loads(search_result("tool", [schema(f"tool_{number}", a="string") for number in range(300)]))
    assert [each["name"] for each in answer["tools"]] == [f"tool_{number}" for number in range(RESULTS_MAX)]
    assert answer["more"] == 290
    assert answer["tools"][0]["parameters"]["properties"] == {"a": {"type": "string"}}
    long = [schema(f"tool_{number}", "x" * RESULT_BYTES_MAX) for number in range(3)]
    assert len(json.loads(search_result("tool", long))["tools"]) == 1
    assert "none of the 3 tools has a word of 'zebra'" in search_result("zebra", long)


def test_a_call_through_another_tool_is_that_tools_call() -> None:
    tools = {each.name: each for each in with_search((OWN, FOREIGN))[0]}
    through = ToolCall(id="a", name=CALL_TOOL, arguments={"name": "shop_pay", "arguments": {"amount": 5}})
    assert called_tool(through, tools) == ToolCall(id="a", name="shop_pay", arguments={"amount": 5})
    assert called_tool(replace(through, arguments={"name": "shop_pay"}), tools).arguments == {}
    assert called_tool(replace(through, malformed="bad"), tools).name == "shop_pay"
    assert called_tool(through, {"add": OWN}) == through, "an agent without a search has no such tool"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"name": "shop_pai"}, "did you mean 'shop_pay'"),
        ({"name": "add"}, "it names the tool 'add'"),
        ({"name": CALL_TOOL}, f"it names the tool '{CALL_TOOL}'"),
        ({"name": 5}, "give `name`, a text"),
        ({"name": "shop_pay", "arguments": "{}"}, "a JSON object"),
        ({"name": "shop_pay", "amount": 5}, "nothing else"),
        ({}, "give `name`"),
    ],
)
def test_a_call_that_names_no_tool_to_be_found_says_what_to_do(arguments: dict[str, object], problem: str) -> None:
    tools = {each.name: each for each in with_search((OWN, FOREIGN))[0]}
    call = ToolCall.model_validate({"id": "a", "name": CALL_TOOL, "arguments": arguments})
    assert problem in (called_tool(call, tools).malformed or "")


def catalog(**descriptions: str) -> McpCatalog:
    return McpCatalog(
        tools=tuple(
            McpTool(name=name, server=name.split("_")[0], tool=name, description=text, parameters={})
            for name, text in descriptions.items()
        )
    )


def test_catalogs_are_compared_by_server_within_a_bound() -> None:
    older = catalog(shop_a="one", shop_b="two", till_a="three")
    newer = catalog(shop_a="other", shop_c="new", till_a="three", desk_a="unknown before")
    assert tool_changes(older, newer, ("shop", "till", "desk")) == (
        McpToolsChange(server="shop", added=("shop_c",), removed=("shop_b",), changed=("shop_a",)),
    )
    assert tool_changes(older, newer, ("till",)) == ()
    grown = catalog(shop_a="one", shop_b="two", **{f"shop_{number}": "" for number in range(CHANGED_NAMES_MAX + 5)})
    [change] = tool_changes(older, grown, ("shop",))
    assert (len(change.added), change.more) == (CHANGED_NAMES_MAX, 5)
    assert change.line.startswith(f"{CHANGED_NAMES_MAX} added (shop_0, shop_1, ")
    assert change.line.endswith(", ...) and 5 more")
