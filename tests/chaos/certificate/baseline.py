"""A scene in this process, undisturbed: what every disturbed run of it is compared with."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from unittest.mock import patch

from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.execution_events import AnyObserved, ApprovalRequested, Observed
from holdfast.local import LocalDriver
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.storage.object_store import Objects
from holdfast.storage.records import Records
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI, RequestRecord
from holdfast.workspace.calls import WorkspaceCalls
from holdfast.workspace.folder import FolderBackend
from holdfast.workspace.tools import WorkspaceTools
from tests.chaos.certificate.deeds import PERSON, REASON, act
from tests.chaos.certificate.scene import Scene
from tests.chaos.certificate.served import HOOKS, TOOLS, hold
from tests.mcp.places import trial


@dataclass(frozen=True, slots=True)
class Baseline:
    """What an undisturbed run leaves: a state per execution, the names of their events, what the tools noted."""

    states: tuple[AgentState, ...]
    events: tuple[tuple[str, ...], ...]
    effects: frozenset[str]
    """What tools have finished, by their texts."""
    observed: tuple[AnyObserved, ...]
    requests: tuple[RequestRecord, ...]


class _InProcess:
    """Acts on a driver's run."""

    def __init__(self, driver: LocalDriver) -> None:
        self._driver = driver
        self._waiting: list[str] = []
        self.observed: list[AnyObserved] = []
        driver.wiretap(self._seen)

    def _seen(self, event: Observed) -> None:
        self.observed.append(cast("AnyObserved", event))
        if isinstance(event, ApprovalRequested):
            self._waiting.append(event.call.id)

    async def waiting(self) -> Sequence[str]:
        return tuple(self._waiting)

    async def approve(self, call_id: str) -> bool:
        self._driver.decide(call_id, Verdict(decision="approve", by=PERSON))
        return True

    async def stop(self, mode: StopMode) -> None:
        self._driver.stop(REASON, mode=mode)

    async def inject(self, text: str) -> None:
        self._driver.say(text)


async def baseline_of(scene: Scene, folder: Path) -> Baseline:
    """Run the scene in this process. One at a time: its tools are told of their ledger by the environment."""
    await asyncio.to_thread(folder.mkdir)
    ledger = folder / "ledger.jsonl"
    with patch.dict(os.environ, HOLDFAST_LEDGER=str(ledger)):
        return await _alone(scene, folder, ledger)


async def _alone(scene: Scene, folder: Path, ledger: Path) -> Baseline:
    async with FakeOpenAI(scene.model) as endpoint:
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="test-key", model="scripted"))
        try:
            with warnings.catch_warnings(action="ignore"):  # all tools are offered, whatever the agent takes
                driver = LocalDriver(
                    scene.definition,
                    model=model,
                    tools=(*TOOLS, hold) if not scene.workspace else (),
                    hooks=HOOKS if scene.agent.hooks else (),
                    agents=scene.subagents,
                    mcp={"till": trial(folder / "mcp")} if scene.mcp else {},
                    offer=_workspace(folder) if scene.workspace else Toolset(),
                )
            return await _run(scene, driver, endpoint, ledger)
        finally:
            await model.close()


async def _run(scene: Scene, driver: LocalDriver, endpoint: FakeOpenAI, ledger: Path) -> Baseline:
    actor = _InProcess(driver)
    acting = asyncio.create_task(act(scene, actor, endpoint, ledger))
    states: list[AgentState] = []
    for ask in scene.asks:
        states.append(await driver.execute(ask, state=states[-1] if states else None))
    await acting
    return Baseline(
        states=tuple(states),
        events=tuple(names_of(actor.observed, state.running.execution_id) for state in states),
        effects=effects(ledger),
        observed=tuple(actor.observed),
        requests=endpoint.requests,
    )


def names_of(events: Sequence[AnyObserved], execution_id: str) -> tuple[str, ...]:
    """Return the names of an execution's own events, in their order."""
    return tuple(type(each).__name__ for each in events if each.execution_id == execution_id)


def effects(ledger: Path) -> frozenset[str]:
    """Return what the tools have finished, by their texts."""
    return frozenset(str(each.detail["text"]) for each in Ledger(ledger).entries(phase="finished"))


def _workspace(folder: Path) -> Toolset:
    records = Records(Objects((folder / "objects").as_uri()))
    return WorkspaceTools(WorkspaceCalls({"folder": FolderBackend(folder / "workspaces")}, records)).toolset()
