"""A `Run` under a whole definition, whose hooks return at once what the test says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.hooks import Changes, Trigger
from holdfast.core.agent.initial_state import new_agent
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.loop.commands import Emit, RunHooks
from holdfast.core.loop.events import Event
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.execution_events import HookExecuted
from tests.core.building import AGENT_ID, DEFINITION, START, Run, hook_at

Returned = Changes | ErrorRecord | None


class Ruled(Run):
    """`commands` are what is left to do once the hooks have returned."""

    def __init__(
        self,
        definition: AgentDefinition = DEFINITION,
        *,
        budget: ExecutionBudget | None = None,
        hooks: Mapping[Trigger, Returned] | None = None,
        sequential: Iterable[str] = (),
        subagents: Iterable[AgentDefinition] = (),
        depth_left: int | None = None,
    ) -> None:
        self.returned = dict(hooks or {})
        super().__init__(
            budget or definition.budget,
            tools=[ToolTraits(name=name, sequential=name in set(sequential)) for name in ("add", "echo")],
            hooks=[hook_at(trigger) for trigger in self.returned],
            subagents=subagents,
            depth_left=depth_left,
            observed=True,
        )
        self.loop = dataclasses.replace(self.loop, definition=definition)
        self.state = new_agent(definition, agent_id=AGENT_ID, at=START)

    def feed(self, event: Event) -> None:
        super().feed(event)
        self.commands = tuple(each for each in self.commands if not isinstance(each, Emit | RunHooks))
        while self.hooks_asked:
            kept = self.commands
            self.hooked(self.returned[self.hooks_asked[0].context.trigger])
            self.commands = (*kept, *self.commands)


def triggered(run: Run) -> list[Trigger]:
    """Return the places where hooks have run."""
    return [event.trigger for event in run.events if isinstance(event, HookExecuted)]
