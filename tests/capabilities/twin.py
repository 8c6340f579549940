"""The same run in-process, to be held against the one of a real server: the same ids, and so the same state."""

from __future__ import annotations

from itertools import chain, count
from typing import Any
from uuid import uuid4

from holdfast import AgentDefinition
from holdfast.core.agent.state import AgentState
from holdfast.local import LocalDriver
from holdfast.testing import Script, ScriptedModel, assert_same_run


async def assert_same_in_process(
    agent: AgentDefinition,
    script: Script,
    state: AgentState,
    **options: Any,  # noqa: ANN401  # the driver's
) -> None:
    """Run `agent` with `script` in-process, with the ids of `state`, and compare all but the times."""
    ids = chain((state.agent_id, state.running.execution_id), (str(uuid4()) for _ in count()))
    driver = LocalDriver(agent, model=ScriptedModel(script), new_id=lambda: next(ids), **options)
    assert_same_run(await driver.execute("Go."), state)
