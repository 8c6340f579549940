"""A `Run` under any definition, with hooks, subagents and listeners. Its hooks do what the test says they return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.core.budget import ExecutionBudget
from holdfast.core.commands import Emit, RunHooks
from holdfast.core.definition import AgentDefinition
from holdfast.core.events import Event, HooksReturned
from holdfast.core.hooks import Changes, HookRun, HookTraits, Trigger
from holdfast.core.loop import AgentLoop, new_agent
from holdfast.core.observed import Observed
from holdfast.core.steps import ErrorRecord
from holdfast.core.tools import ToolTraits
from tests.core.building import AGENT_ID, DEFINITION, START, Run

Returned = Changes | ErrorRecord | None


class Ruled(Run):
    """Every verb of `Run`; what the commands ask of hooks is answered at once, by the hooks' names.

    `told` is what listeners heard, `triggered` the places of the hooks that ran, `asked` how often the model was.
    """

    def __init__(
        self,
        definition: AgentDefinition = DEFINITION,
        *,
        budget: ExecutionBudget | None = None,
        hooks: Mapping[Trigger, Returned] | None = None,
        tools: Iterable[str] = ("add", "echo"),
        sequential: Iterable[str] = (),
        subagents: Iterable[AgentDefinition] = (),
        depth_left: int | None = None,
    ) -> None:
        super().__init__(budget)
        self.returned = dict(hooks or {})
        self.loop = AgentLoop(
            definition,
            tools={name: ToolTraits(name=name, sequential=name in set(sequential)) for name in tools},
            hooks=tuple(HookTraits(name=f"the_{trigger}_hook", trigger=trigger) for trigger in self.returned),
            subagents={each.name: each for each in subagents},
            depth_left=depth_left,
            observed=True,
        )
        self.budget = budget or definition.budget
        self.state = new_agent(definition, agent_id=AGENT_ID, at=START)
        self.told: list[Observed] = []
        self.triggered: list[Trigger] = []

    def feed(self, event: Event) -> None:
        self.state, commands = self.loop.step(self.state, event)
        self.told += [command.event for command in commands if isinstance(command, Emit)]
        self.commands = tuple(command for command in commands if not isinstance(command, Emit))
        for command in self.wanted(RunHooks):
            kept = tuple(each for each in self.commands if each is not command)
            self._run(command)
            self.commands = (*kept, *self.commands)

    def _run(self, command: RunHooks) -> None:
        trigger, call = command.context.trigger, command.context.call
        self.triggered.append(trigger)
        returned = self.returned[trigger]
        name = command.hooks[0].name
        failed = returned if isinstance(returned, ErrorRecord) else None
        changes = returned if isinstance(returned, Changes) else None
        run = HookRun(name=name, changes=changes, error=failed)
        self.feed(HooksReturned(trigger, call.id if call else None, (run,), self.tick(0)))

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.told]

    @property
    def reasons(self) -> list[str]:
        return [signal.reason.value for signal in self.state.running.continuation.stop_signals]
