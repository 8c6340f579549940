"""A scenario in-process and on Temporal, both with the real client against the same fake endpoint."""

from __future__ import annotations

import asyncio
import warnings
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, count
from typing import Any, Protocol, assert_never
from uuid import UUID, uuid5

import pytest

from holdfast.client import Holdfast
from holdfast.core.agent.state import AgentState
from holdfast.core.base.call_digest import call_digest
from holdfast.core.base.errors import ExecutionFailed, InvalidArguments
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import CallStage
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.contracts import APPROVAL_SIGNAL, CHANGE_SIGNAL, ApprovalDecision, DefinitionChange
from holdfast.core.wire.execution_events import ApprovalRequested
from holdfast.local import LocalDriver
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.testing.comparison import TIMES
from holdfast.testing.openai_server import FakeOpenAI
from tests.scenarios.hooks import HOOKS
from tests.scenarios.scenario import MODEL, Approve, Change, Deed, Deny, Edit, Scenario, Stop, Tell
from tests.scenarios.tools import Gate, tools_at
from tests.serving import Served

SECONDS_MAX = 90
"""The longest a scenario may take, so that one that hangs is named instead of ending the whole session."""

UNEQUAL = TIMES | {"paused_seconds"}
"""What may differ: both drivers have a clock of their own, so times do, and the pauses between them.

Nothing else may: both runs are given the same agent id and execution id, from which all other ids follow, and both ask
the same endpoint, so that texts which name its address are equal, too.
"""

LOOK_SECONDS = 0.02
"""How long to wait before looking again for what nothing tells."""


class Outside(Protocol):
    """Who acts on a run from outside."""

    async def perform(self, deed: Deed) -> None:
        """Do it."""
        ...

    async def approval_asked(self, nth: int) -> None:
        """Return once the `nth` call of the run waits for a person."""
        ...


class InProcess:
    """Acts on a driver's run, and listens to it."""

    def __init__(self, driver: LocalDriver, scenario: Scenario) -> None:
        self._driver = driver
        self._scenario = scenario
        self._waiting: list[ToolCall] = []
        self._changed = asyncio.Event()
        self.observed: list[str] = []
        driver.wiretap(lambda event: self.observed.append(type(event).__name__)).on(ApprovalRequested, self._asked)

    def _asked(self, event: ApprovalRequested) -> None:
        self._waiting.append(event.call)
        self._changed.set()

    async def approval_asked(self, nth: int) -> None:
        while len(self._waiting) < nth:
            self._changed.clear()
            await self._changed.wait()

    async def perform(self, deed: Deed) -> None:
        match deed:
            case Stop():
                self._driver.stop(deed.reason, mode=deed.mode)
            case Tell():
                self._driver.say(deed.text)
            case Approve() | Deny() | Edit():
                call = self._waiting[deed.nth - 1]
                with refusal_of(deed):
                    self._driver.decide(call.id, verdict_of(deed, call))
            case Change():
                self._driver.change(self._scenario.changed(deed), budget=deed.budget)
            case _:
                assert_never(deed)


class OnTemporal:
    """Acts on a workflow through the client."""

    def __init__(self, client: Holdfast, execution_id: str, scenario: Scenario) -> None:
        self._client = client
        self._scenario = scenario
        self._execution_id = execution_id
        self._waiting: list[ToolCall] = []

    async def approval_asked(self, nth: int) -> None:
        while len(self._waiting) < nth:  # a client is not called back: it looks
            await asyncio.sleep(LOOK_SECONDS)
            execution = (await self._client.state(self._execution_id)).execution
            for each in execution.open_calls if execution else ():
                if each.stage is CallStage.APPROVAL and each.call not in self._waiting:
                    self._waiting.append(each.call)

    async def perform(self, deed: Deed) -> None:
        assert await self._performed(deed), "the run had already ended"

    async def _performed(self, deed: Deed) -> bool:
        client, id_ = self._client, self._execution_id
        match deed:
            case Stop():
                return await client.stop(id_, deed.reason, mode=deed.mode, source="local")
            case Tell():
                return await client.message(id_, deed.text)
            case Approve() | Deny() | Edit():
                call = self._waiting[deed.nth - 1]
                if isinstance(deed, Edit) and deed.refused:
                    with refusal_of(deed):
                        await client.decide(id_, call.id, verdict_of(deed, call))
                    return True
                return await self._decided(call.id, verdict_of(deed, call))
            case Change():  # a session's to send; it has no door in the client of executions
                definition = self._scenario.changed(deed)
                change = DefinitionChange(definition=definition, subagents=self._scenario.agents, budget=deed.budget)
                await client.temporal.get_workflow_handle(id_).signal(CHANGE_SIGNAL, change)
                return True
            case _:
                assert_never(deed)

    async def _decided(self, call_id: str, verdict: Verdict) -> bool:
        """Decide by signal, which takes everything, as an in-process driver does; the client would refuse some."""
        handle: Any = self._client.temporal.get_workflow_handle(self._execution_id)
        await handle.signal(APPROVAL_SIGNAL, ApprovalDecision(call_id=call_id, verdict=verdict))
        return True


def refusal_of(deed: Approve | Deny | Edit) -> AbstractContextManager[object]:
    """Return what a decision is brought within: an edit that does not fit is refused where it is brought."""
    refused = isinstance(deed, Edit) and deed.refused
    return pytest.raises(InvalidArguments, match="still waiting") if refused else nullcontext()


def verdict_of(deed: Approve | Deny | Edit, call: ToolCall) -> Verdict:
    """Return what the deed says of the `call` that waits."""
    digests = {None: None, "its own": call.digest, "of another call": call_digest(call.name, {"other": True})}
    digest = digests[deed.digest]
    match deed:
        case Approve():
            return Verdict(decision="approve", by="somebody", digest=digest)
        case Deny():
            return Verdict(decision="deny", by="somebody", reason=deed.reason, digest=digest)
        case Edit():
            return Verdict(decision="edit", by="somebody", arguments=deed.arguments, digest=digest)
        case _:
            assert_never(deed)


async def locally(
    scenario: Scenario, endpoint: FakeOpenAI, agent_id: str, execution_id: str
) -> tuple[AgentState, list[str]]:
    """Run `scenario` with the in-process driver; return its end and the names of the events it told."""
    gate, seen = Gate(), len(endpoint.requests)
    ids = chain((agent_id, execution_id), (str(uuid5(UUID(execution_id), f"child/{n}")) for n in count()))
    model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model=MODEL))
    with warnings.catch_warnings(action="ignore"):  # all tools and hooks are offered, whatever the agent takes
        driver = LocalDriver(
            scenario.agent,
            model=model,
            tools=tools_at(gate),
            hooks=HOOKS,
            agents=scenario.agents,
            new_id=lambda: next(ids),
        )
    outside = InProcess(driver, scenario)
    try:
        run = asyncio.create_task(driver.execute(scenario.question, budget=scenario.budget))
        return await _finished(scenario, run, gate, endpoint, seen, outside), outside.observed
    finally:
        await model.close()


async def on_temporal(scenario: Scenario, served: Served, gate: Gate, agent_id: str, execution_id: str) -> AgentState:
    """Run `scenario` on the worker that `served` holds, whose tools stand at `gate`."""
    client, seen = served.client, len(served.endpoint.requests)
    await client.start(
        scenario.agent,
        scenario.question,
        budget=scenario.budget,
        agent_id=agent_id,
        execution_id=execution_id,
        subagents=scenario.agents,
    )

    async def result() -> AgentState:
        try:
            return await client.result(execution_id)
        except ExecutionFailed as failed:
            return AgentState.from_dict(failed.state or {})

    run = asyncio.create_task(result())
    return await _finished(scenario, run, gate, served.endpoint, seen, OnTemporal(client, execution_id, scenario))


async def _finished(
    scenario: Scenario,
    run: asyncio.Task[AgentState],
    gate: Gate,
    endpoint: FakeOpenAI,
    seen: int,
    outside: Outside,
) -> AgentState:
    """Do what happens from outside, each deed at its moment and one after another, and wait for the end.

    `seen` requests were at the endpoint before. The gate opens once no deed is left that is done there.
    """
    async with asyncio.timeout(SECONDS_MAX):
        for index, deed in enumerate(scenario.outside):
            match deed.when:
                case "the model is asked":
                    await _asked(endpoint, seen + deed.nth)
                case "the gate is reached":
                    await asyncio.to_thread(gate.reached.wait, SECONDS_MAX)
                case "an approval is asked":
                    await outside.approval_asked(deed.nth)
            await outside.perform(deed)
            if not any(later.when == "the gate is reached" for later in scenario.outside[index + 1 :]):
                gate.opened.set()
        return await run


async def _asked(endpoint: FakeOpenAI, times: int) -> None:
    await endpoint.until(lambda requests: len(requests) >= times)
