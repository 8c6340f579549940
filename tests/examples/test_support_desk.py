"""The support desk: refunds up to a limit are paid at once, larger ones when a person says so, each of them once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from examples.support_desk import scripted_model
from examples.support_desk.tools import look_up_order, refund
from holdfast import ToolContext
from holdfast.client import AgentHandle, Settings, WaitingCall
from holdfast.client.definition_files import load_definition
from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.execution_events import ApprovalRequested
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel
from holdfast.testing.script import Reply, call, say
from tests.server_credentials import CREDENTIALS
from tests.serving import Serve

ROOT = Path(__file__).resolve().parents[2]
DESK = ROOT / "examples" / "support_desk"
HOLDFAST = Path(sys.executable).with_name("holdfast")
TOOLS: tuple[AnyTool, ...] = (look_up_order, refund)
AGENT = load_definition(DESK / "agents" / "support_desk.md")
SECONDS_MAX = 90


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "desk"
    folder.mkdir()
    shutil.copy(DESK / "orders.csv", folder)
    monkeypatch.setenv("HOLDFAST_DESK", str(folder))
    return folder


def paid(desk: Path) -> list[tuple[int, int]]:
    lines = [line.split(",") for line in (desk / "refunds.csv").read_text().splitlines()]
    return [(int(number), int(cents)) for _, number, cents in lines]


def clerk(request: dict[str, Any]) -> Reply:
    """Play the model: look the order up that is named, pay back what is asked for, tell what came of it."""
    said = [each for each in request["messages"] if each["role"] != "system"]
    wish = next(each["content"] for each in reversed(said) if each["role"] == "user")
    results = [
        each["content"] for each in said[said.index({"role": "user", "content": wish}) :] if each["role"] == "tool"
    ]
    number, *cents = map(int, re.findall(r"\d+", wish))
    if not results:
        return call("look_up_order", number=number)
    if cents and len(results) == 1:
        return call("refund", number=number, cents=cents[0])
    return say(results[-1])


def context(key: str) -> ToolContext:
    return ToolContext(execution_id="e", idempotency_key=key, attempt=1)


def test_an_order_is_found_and_one_that_is_not_there_is_told_of(desk: Path) -> None:
    assert look_up_order(1002) == {
        "number": 1002,
        "item": "A drawing table",
        "cents": 48900,
        "status": "delivered",
        "ordered": "2026-10-20",
        "paid_back_cents": 0,
    }
    assert list(desk.iterdir()) != []
    with pytest.raises(InvalidInput, match="no order 7"):
        look_up_order(7)


def test_a_refund_is_paid_once_however_often_it_is_tried(desk: Path) -> None:
    for _ in range(3):
        assert refund(1001, 295, context=context("one")) == "295 cents of order 1001 are paid back to ada@example.com"
    refund(1001, 1000, context=context("two"))
    assert paid(desk) == [(1001, 295), (1001, 1000)]
    assert look_up_order(1001)["paid_back_cents"] == 1295


def test_no_more_is_paid_back_than_an_order_cost(desk: Path) -> None:
    refund(1004, 400, context=context("one"))
    with pytest.raises(InvalidInput, match="99 cents left to pay back, not 100"):
        refund(1004, 100, context=context("two"))
    assert paid(desk) == [(1004, 400)]


def test_without_a_desk_the_tools_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_DESK", raising=False)
    with pytest.raises(InvalidInput, match="HOLDFAST_DESK is not set"):
        look_up_order(1001)


@pytest.mark.parametrize(
    ("cents", "asked"), [(1, False), (9_999, False), (10_000, True), (48_900, True), ("1e99", False)]
)
def test_a_refund_of_a_hundred_or_more_is_asked_about(cents: int | str, *, asked: bool) -> None:
    rule = next(each for each in AGENT.approvals if each.concerns("refund", {"number": 1002, "cents": cents}, 0.0))
    assert (rule.when == "always") == asked


@pytest.mark.slow
@pytest.mark.temporal
async def test_each_customer_has_a_conversation_and_a_small_refund_needs_nobody(desk: Path, serve: Serve) -> None:
    async with serve(clerk, TOOLS) as served:
        holdfast = served.client
        ada, grace = holdfast.agent(definition=AGENT), holdfast.agent(definition=AGENT)
        answers = await asyncio.gather(ada.ask("Refund order 1001, 295 cents."), grace.ask("Where is order 1003?"))
        later = await ada.ask("And order 1001 now?")
    assert answers[0].output == "295 cents of order 1001 are paid back to ada@example.com"
    assert json.loads(answers[1].state.final_response)["status"] == "on its way"
    assert json.loads(later.state.final_response)["paid_back_cents"] == 295
    assert [each.text for each in later.messages if each.role == "user"] == [
        "Refund order 1001, 295 cents.",
        "And order 1001 now?",
    ]
    assert paid(desk) == [(1001, 295)]


async def asked_about(agent: AgentHandle) -> WaitingCall:
    """Wait for the call that a person is to decide about."""
    while True:
        for each in await agent.waiting():
            return each
        await asyncio.sleep(0.1)


async def command(environment: Mapping[str, str], *arguments: str, said: str = "") -> tuple[str, str]:
    """Run the program as somebody at the desk would, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        HOLDFAST,
        *arguments,
        cwd=DESK,
        env=dict(environment),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, errors = await asyncio.wait_for(process.communicate(said.encode()), SECONDS_MAX)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    return out.decode(), errors.decode()


@pytest.mark.slow
@pytest.mark.temporal
async def test_a_large_refund_waits_in_the_list_until_somebody_approves_it(
    desk: Path, serve: Serve, settings: Settings
) -> None:
    assert settings.address is not None
    assert settings.storage is not None
    own = {"TEMPORAL_ADDRESS": settings.address, "HOLDFAST_TASK_QUEUE": settings.task_queue}
    environment = {
        **CREDENTIALS,
        "PATH": os.environ["PATH"],
        **own,
        "HOLDFAST_STORAGE": settings.storage,
        "NO_COLOR": "1",
    }
    async with serve(clerk, TOOLS) as served:
        ada = served.client.agent(definition=AGENT)
        await ada.open()
        wish = "Refund order 1002, 48900 cents.\n"
        chatting = asyncio.create_task(command(environment, "chat", "--id", ada.agent_id, said=wish))
        wanted = await asked_about(ada)
        listed, _ = await command(environment, "waiting", "--json", "--limit", "1000")
        run = (await ada.view()).running_id
        assert run is not None
        (line,) = [each for each in json.loads(listed)["calls"] if each["execution_id"] == run]
        assert not (desk / "refunds.csv").read_text()
        await command(environment, "approve", run, "--by", "Grace", "--digest", wanted.digest[:16])
        answer, _ = await chatting
        state = await ada.state()
    assert (line["call_id"], line["tool"]) == (wanted.call_id, "refund")
    assert "48,900 cents of order 1002 are paid back" in answer
    assert paid(desk) == [(1002, 48_900)]
    assert state.final_response == "48,900 cents of order 1002 are paid back to ada@example.com"


@pytest.mark.temporal
async def test_a_refund_that_is_denied_is_not_paid_and_the_customer_is_told(desk: Path, serve: Serve) -> None:
    async with serve(clerk, TOOLS) as served:
        ada = served.client.agent(definition=AGENT)
        receipt = await ada.send("Refund order 1002, 48900 cents.")
        wanted = await asked_about(ada)
        await ada.deny(wanted.call_id, "send photos first", by="Grace")
        state = await ada.answer(receipt)
    assert "send photos first" in state.final_response
    assert not (desk / "refunds.csv").read_text()


async def test_the_script_of_the_page_asks_to_pay_a_broken_table_back(desk: Path) -> None:
    driver = LocalDriver(AGENT, model=ScriptedModel(scripted_model.turn), tools=TOOLS)
    driver.on(ApprovalRequested, lambda event: driver.decide(event.call.id, Verdict(decision="approve", by="Ada")))
    wish = "My drawing table, order 1002, arrived broken. May I have my money back?"
    state = await asyncio.wait_for(driver.execute(wish), SECONDS_MAX)
    assert [each.call.name for step in state.steps for each in step.tool_executions] == ["look_up_order", "refund"]
    assert (paid(desk), "paid back to ada" in state.final_response) == ([(1002, 48900)], True)
    asked = await asyncio.wait_for(driver.execute("Where are my pencils?"), SECONDS_MAX)
    assert "Which order" in asked.final_response
