"""`Holdfast.approvals`: every call that waits for a person comes once, those of later runs too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

import pytest
from temporalio.client import Client as TemporalClient

from holdfast import Agent, ApprovalRule, Verdict, tool
from holdfast.client import waiting_calls
from holdfast.client.waiting_calls import WaitingCall, WaitingCalls, each_waiting_call
from holdfast.core.base.errors import InvalidInput, ServerUnavailable
from holdfast.testing.script import Reply, call, say
from tests.serving import Serve

CALL = WaitingCall("run", "payer", "agent", None, "call", "pay", {}, "digest", None, None)


@tool(at_most_once=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


PAYER = Agent(name="payer", tools=[pay], approvals=[ApprovalRule(tools=("pay",))])


def paying(request: dict[str, Any]) -> Reply:
    """Pay twice, one after the other."""
    results = sum(each["role"] == "tool" for each in request["messages"])
    return say("done") if results == 2 else call("pay", amount=results)


@pytest.mark.slow
@pytest.mark.temporal
@pytest.mark.timeout(150)
async def test_every_call_comes_once_and_later_ones_as_they_come(serve: Serve) -> None:
    seen: list[WaitingCall] = []
    async with serve(paying, [pay]) as served:
        ids = {await served.client.start(PAYER, "pay")}
        async with asyncio.timeout(120), aclosing(served.client.approvals(1_000)) as approvals:
            async for each in approvals:
                if each.execution_id not in ids:
                    continue  # another test's, on the same server
                seen.append(each)
                if len(seen) == 1:
                    ids.add(await served.client.start(PAYER, "pay"))
                verdict = Verdict(decision="approve", digest=each.digest)
                assert await served.client.decide(each.execution_id, each.call_id, verdict)
                if len(seen) == 4:
                    break
        answers = [(await served.client.result(id_)).final_response for id_ in ids]
    assert answers == ["done", "done"]
    assert {(each.execution_id, each.arguments["amount"]) for each in seen} == {(id_, n) for id_ in ids for n in (0, 1)}


def looks(monkeypatch: pytest.MonkeyPatch, *found: WaitingCalls | Exception) -> AsyncGenerator[WaitingCall, None]:
    """Return the calls of a server that gives these lists one after the other."""
    given = iter(found)

    async def listed(*_: object) -> WaitingCalls:
        each = next(given)
        if isinstance(each, Exception):
            raise each
        return each

    monkeypatch.setattr(waiting_calls, "waiting_calls", listed)
    monkeypatch.setattr(waiting_calls, "LOOK_SECONDS", 0)
    return each_waiting_call(cast("TemporalClient", None), 10)


async def some(calls: AsyncGenerator[WaitingCall, None], number: int) -> list[WaitingCall]:
    async with aclosing(calls):
        return [await anext(calls) for _ in range(number)]


async def test_one_that_its_worker_does_not_tell_of_for_a_while_is_no_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(CALL, execution_id="other")
    lists = (WaitingCalls((CALL,)), WaitingCalls(unread=("run",)), WaitingCalls((CALL, other)))
    assert await some(looks(monkeypatch, *lists), 2) == [CALL, other]


async def test_the_same_call_with_other_arguments_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    edited = replace(CALL, digest="other")
    assert await some(looks(monkeypatch, WaitingCalls((CALL,)), WaitingCalls((edited,))), 2) == [CALL, edited]


async def test_a_server_that_is_away_is_waited_for_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    away = ServerUnavailable("away")
    assert await some(looks(monkeypatch, away, WaitingCalls((CALL,))), 1) == [CALL]
    monkeypatch.setattr(waiting_calls, "SILENCE_SECONDS_MAX", -1)
    with pytest.raises(ServerUnavailable, match="away"):
        await some(looks(monkeypatch, away), 1)


async def test_a_slow_reader_is_no_silence_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    away, other = ServerUnavailable("away"), replace(CALL, execution_id="other")
    now = 0.0
    monkeypatch.setattr(waiting_calls, "monotonic", lambda: now)
    async with aclosing(looks(monkeypatch, WaitingCalls((CALL,)), away, WaitingCalls((CALL, other)))) as calls:
        assert await anext(calls) == CALL
        now = 1_000.0
        assert await anext(calls) == other


async def test_a_limit_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidInput):
        await anext(each_waiting_call(cast("TemporalClient", None), 0))
