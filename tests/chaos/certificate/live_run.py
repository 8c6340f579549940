"""One run of a scene on Temporal: its endpoint, its worker as a process, its people, and all that is seen of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, Self, TypeVar
from uuid import uuid4

from temporalio.client import WorkflowQueryFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError

from holdfast.client import Holdfast
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import (
    DecisionRefused,
    ExecutionExists,
    ExecutionFailed,
    ExecutionNotFound,
    ServerUnavailable,
    SessionRefused,
)
from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.contracts import STATE_QUERY, StatePage
from holdfast.core.wire.execution_events import AnyObserved, Observed
from holdfast.core.wire.session_contracts import Receipt
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.server.worker_process import WorkerProcess, worker_command, worker_environment
from holdfast.testing.openai_server import FakeOpenAI
from tests.chaos.certificate.deeds import PERSON, REASON, act
from tests.chaos.certificate.histories import Histories
from tests.chaos.certificate.scene import Scene
from tests.forked import WarmWorker
from tests.mcp.places import trial
from tests.tcp_proxy import Proxy

READY_SECONDS_MAX: Final = 120.0
QUERY_SECONDS: Final = timedelta(seconds=3)
PAUSE_SECONDS: Final = 0.1
OUT_OF_REACH: Final = (RPCError, WorkflowQueryFailedError, WorkflowUpdateRPCTimeoutOrCancelledError, ServerUnavailable)
"""What a client is told while no server or no worker answers."""

AnswerT = TypeVar("AnswerT")


async def persistently(ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
    """Return what was asked for, asking again for as long as nobody answers."""
    while True:
        with suppress(*OUT_OF_REACH):
            return await ask()
        await asyncio.sleep(PAUSE_SECONDS)


@dataclass
class LiveRun:
    """One run of `scene` on the server at `address`; enter it to have its worker serve. `proxied`: through a proxy."""

    scene: Scene
    client: Holdfast
    folder: Path
    proxied: bool = False
    agent_id: str = field(default_factory=lambda: str(uuid4()))
    execution_id: str = field(default_factory=lambda: str(uuid4()))
    said: list[str] = field(default_factory=list[str])
    """What the workers have printed."""
    events: dict[str, list[AnyObserved]] = field(default_factory=dict[str, list[AnyObserved]])
    """What a watcher was told, by execution."""

    def __post_init__(self) -> None:
        self.settings = replace(
            self.client.settings,
            task_queue=f"{self.scene.name}-{self.execution_id}",
            data_dir=self.folder / "data",
            agents_dir=self.folder / "agents",
            continue_events=self.scene.continue_events,
            mcp_file=self.folder / "mcp.json" if self.scene.mcp else None,
            workspaces=("folder",) if self.scene.workspace else (),
        )
        self.own_client = Holdfast(self.client.temporal, self.settings)
        self.endpoint = FakeOpenAI(self.scene.model)
        self.histories = Histories(self.client)
        self.proxy: Proxy | None = Proxy(self.client.address) if self.proxied else None
        self.worker: WorkerProcess | None = None
        self._closing = AsyncExitStack()
        self._acting: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def ledger(self) -> Path:
        """Where its tools note what they do."""
        return self.folder / "ledger.jsonl"

    @property
    def mcp_ledger(self) -> Path:
        """Where its MCP server does."""
        return self.folder / "mcp"

    @property
    def sink_file(self) -> Path:
        """Where its events are delivered, if the scene has a sink."""
        return self.folder / "events.jsonl"

    @property
    def workflow_id(self) -> str:
        """The workflow that all others of this run are below."""
        return session_workflow_id(self.agent_id) if self.scene.session else self.execution_id

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True)
        (self.folder / "data").mkdir()
        if self.scene.mcp:
            server = trial(self.mcp_ledger)
            entry = {"command": list(server.command or ()), "env": dict(server.env)}
            (self.folder / "mcp.json").write_text(json.dumps({"servers": {"till": entry}}))
        await self._closing.enter_async_context(self.endpoint)
        if self.proxy is not None:
            await self._closing.enter_async_context(self.proxy)
        try:
            await self.start_worker()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything."""
        tasks = [*self._tasks, *([self._acting] if self._acting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.histories.close()
        if self.proxy is not None:
            self.proxy.heal()
        if self.worker is not None:
            await asyncio.to_thread(self.worker.stop)
        await self._closing.aclose()

    async def start_worker(self) -> None:
        """Start a worker, in place of the last one."""
        before, self.worker = self.worker, None
        if before is not None:
            await asyncio.to_thread(before.stop)  # killed: what is left is its pipes
        here = replace(self.settings, address=self.proxy.own_address) if self.proxy else self.settings
        command = worker_command(here, self._modules(), sinks=self._sinks())
        environment = {
            **worker_environment(),
            "OPENAI_BASE_URL": self.endpoint.base_url,
            "HOLDFAST_MODEL": "scripted",
            "HOLDFAST_LEDGER": str(self.ledger),
        }
        self.worker = await asyncio.to_thread(WarmWorker, command, self.said.append, environment)
        ready = await asyncio.to_thread(self.worker.wait_until_ready, READY_SECONDS_MAX)
        assert ready, f"no worker starts: {self.said[-10:]}"

    def _modules(self) -> list[str]:
        return ["tests.chaos.certificate.served"]

    def _sinks(self) -> list[str]:
        return [f"sink{self.execution_id[:8]}=jsonl:{self.sink_file}"] if self.scene.sink else []

    # --- what happens in it

    def begin(self) -> asyncio.Task[tuple[AgentState, ...]]:
        """Begin it, follow it, and return the task whose result are the executions' final states."""
        self.histories.follow(self.workflow_id)
        self._acting = asyncio.create_task(act(self.scene, self, self.endpoint, self.ledger))
        if not self.scene.session:
            self._tasks.append(asyncio.create_task(self._watched(self.execution_id)))
        return asyncio.create_task(self._talked() if self.scene.session else self._ran())

    async def _ran(self) -> tuple[AgentState, ...]:
        scene = self.scene

        async def start() -> None:
            with suppress(ExecutionExists):  # our own start before, whose answer was lost
                await self.own_client.start(
                    scene.definition,
                    scene.asks[0],
                    agent_id=self.agent_id,
                    execution_id=self.execution_id,
                    subagents=scene.subagents,
                )

        await persistently(start)
        return (await self._result(self.execution_id),)

    async def _result(self, execution_id: str) -> AgentState:
        try:
            return await persistently(lambda: self.own_client.result(execution_id))
        except ExecutionFailed as failed:
            return AgentState.from_dict(failed.state or {})

    async def _talked(self) -> tuple[AgentState, ...]:
        agent = self.own_client.agent(self.agent_id, self.scene.definition, subagents=self.scene.subagents)
        states: list[AgentState] = []
        for ask in self.scene.asks:
            receipt: Receipt = await persistently(lambda ask=ask: agent.send(ask, message_id=ask))  # type: ignore[misc]
            states.append(await persistently(lambda receipt=receipt: agent.answer(receipt)))  # type: ignore[misc]
        return tuple(states)

    async def _watched(self, execution_id: str) -> None:
        """Watch a run to its end, going on from the last event that was told."""
        told = self.events.setdefault(execution_id, [])
        while True:
            try:
                async for each in self.own_client.watch(execution_id, start=len(told), subagents=False):
                    if isinstance(each, Observed):
                        told.append(each)
            except (ExecutionNotFound, *OUT_OF_REACH):
                await asyncio.sleep(PAUSE_SECONDS)
            except ExecutionFailed:
                return
            else:
                return

    async def watched_to_the_end(self) -> None:
        """Wait for the watcher; one that has met an error raises it, and so do people who have."""
        if self._acting is not None:
            if self._acting.done():
                self._acting.result()
            self._acting.cancel()
        await asyncio.gather(*self._tasks)

    # --- what people do in it

    async def waiting(self) -> Sequence[str]:
        with suppress(*OUT_OF_REACH, TimeoutError):
            handle = self.client.temporal.get_workflow_handle(self.execution_id)
            page: StatePage = await handle.query(STATE_QUERY, result_type=StatePage, rpc_timeout=QUERY_SECONDS)
            return [each.call.id for each in page.head.waiting_calls]
        return ()

    async def approve(self, call_id: str) -> bool:
        with suppress(DecisionRefused, *OUT_OF_REACH):  # it was taken before and the answer lost, or does not wait yet
            verdict = Verdict(decision="approve", by=PERSON)
            return await self.own_client.decide(self.execution_id, call_id, verdict)
        return False

    async def stop(self, mode: StopMode) -> None:
        await persistently(lambda: self.own_client.stop(self.execution_id, REASON, mode=mode, source="local"))

    async def inject(self, text: str) -> None:
        """Send it, and wait until the execution has it: the session acknowledges it before."""
        agent = self.own_client.agent(self.agent_id, self.scene.definition)
        with suppress(SessionRefused):
            await persistently(lambda: agent.send(text, message_id=text, while_running="inject"))
            await self.histories.has_message.wait()
