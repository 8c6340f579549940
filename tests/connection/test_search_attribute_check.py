"""What to do about search attributes, as judged without a server; and the same list wherever it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.connection.search_attribute_check import Registration, compared, complete, remedies, shortcomings
from holdfast.connection.search_attribute_setup import attributes, kind_name, register
from holdfast.core.wire.search_attributes import SEARCH_ATTRIBUTES

SCRIPT = Path(__file__).parents[2] / "deploy" / "temporal" / "namespace.sh"


class Cloud:
    """A server that answers as Temporal Cloud does: its API registers nothing, and queries take what is `known`."""

    def __init__(self, known: dict[str, str], *, lists: bool) -> None:
        self.namespace = "shop.a1b2c"
        self.operator_service = self
        self._known = known
        self._lists = lists

    async def list_search_attributes(self, *_: object, **__: object) -> object:
        if not self._lists:
            raise refused(RPCStatusCode.PERMISSION_DENIED)
        numbers = {"Keyword": 2, "Int": 3, "Double": 4}
        return type("Listed", (), {"custom_attributes": {name: numbers[kind] for name, kind in self._known.items()}})

    async def add_search_attributes(self, *_: object, **__: object) -> None:
        raise refused(RPCStatusCode.UNIMPLEMENTED)

    async def count_workflows(self, query: str, **_: object) -> int:
        if set(re.findall(r"\w+(?= =)", query)) <= set(self._known):
            return 0
        raise refused(RPCStatusCode.INVALID_ARGUMENT)

    @property
    def client(self) -> Client:
        return cast("Client", cast("Any", self))


def refused(status: RPCStatusCode) -> RPCError:
    return RPCError("not here", status, b"")


@pytest.mark.parametrize("lists", [True, False])
async def test_a_server_that_registers_nothing_is_told_with_the_way_that_does(lists: bool) -> None:  # noqa: FBT001
    known = {name: kind for name, kind in SEARCH_ATTRIBUTES.items() if name != "HoldfastCost"}
    cloud = Cloud(known, lists=lists).client
    found = await attributes(cloud)
    assert shortcomings(found) == "missing: HoldfastCost"
    after = await register(cloud, found)
    assert shortcomings(after) == "refused: HoldfastCost"
    [remedy] = remedies(after, cloud.namespace)
    assert "tcld namespace search-attributes add --namespace shop.a1b2c --sa HoldfastCost=Double`" in remedy
    assert "cloud.temporal.io" in remedy


@pytest.mark.parametrize("lists", [True, False])
async def test_what_was_registered_otherwise_counts_even_where_nobody_may_list_it(lists: bool) -> None:  # noqa: FBT001
    assert complete(await attributes(Cloud(dict(SEARCH_ATTRIBUTES), lists=lists).client))


async def test_each_attribute_is_refused_by_name() -> None:
    cloud = Cloud({}, lists=True).client
    after = await register(cloud, await attributes(cloud))
    assert {each.state for each in after} == {Registration.REFUSED}
    [remedy] = remedies(after, "default")
    assert all(f"--sa {name}={kind}" in remedy for name, kind in SEARCH_ATTRIBUTES.items())


def test_another_type_is_not_ours() -> None:
    found = compared({**SEARCH_ATTRIBUTES, "HoldfastSteps": "Keyword"})
    assert shortcomings(found) == "of another type: HoldfastSteps"
    assert not complete(found)


def test_types_have_the_names_that_temporal_shows() -> None:
    assert [kind_name(number) for number in (2, 3, 7, 99)] == ["Keyword", "Int", "KeywordList", "type 99"]


def test_the_script_without_python_registers_and_awaits_the_same_attributes() -> None:
    text = SCRIPT.read_text()
    told = re.findall(r"\b(Holdfast\w+)=(\w+)", text)
    assert dict(told) == SEARCH_ATTRIBUTES
    assert len(told) == len(SEARCH_ATTRIBUTES)
    [query] = re.findall(r"--query '(.+)'", text)
    assert re.findall(r"(\w+) =", query) == list(SEARCH_ATTRIBUTES)
