"""A scenario is one file under `cases/`: an agent, what its model says, what happens from outside, what comes of it.

Every field is strict: an unknown one, one given twice, or one of the wrong type is refused with its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import BeforeValidator, Field, JsonValue, NonNegativeFloat, PositiveInt

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.frozen import Frozen
from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.testing.script import DEFAULT_USAGE, Call, Reply, Scripts
from tests.scenarios.expected import Expected

CASES = Path(__file__).parent / "cases"

MODEL = "scripted"
"""The worker's own model, which answers where a definition names none."""

QUESTION = "What is to be done? ü😀"

Moment = Literal["the model is asked", "the gate is reached", "an approval is asked"]
"""Where both drivers can be held: a request at the endpoint, the tool `wait`, a call that waits for a person."""


def _with_defaults(fields: object) -> object:
    """Return the agent's fields with those that few scenarios are about: it has every tool, and the hooks it names."""
    if not isinstance(fields, dict):
        return fields
    return {"name": "scenario", "system_prompt": "Be brief.", "tools": "all", **cast("dict[str, Any]", fields)}


class ScriptedCall(Frozen):
    """A tool call the model asks for, `repeat` times over; `arguments` as a string go out as they are, JSON or not."""

    tool: str
    arguments: Mapping[str, JsonValue] | str = Field(default_factory=dict[str, JsonValue])
    id: str | None = None
    repeat: PositiveInt = 1

    @property
    def calls(self) -> tuple[Call, ...]:
        return (Call(self.tool, self.arguments, self.id),) * self.repeat


class ScriptedTurn(Frozen):
    """One answer of the model, or the fault in its place: the fields of `holdfast.testing.script.Reply`."""

    text: str | None = None
    calls: tuple[ScriptedCall, ...] = ()
    usage: tuple[int, int] | None = DEFAULT_USAGE
    finish_reason: str | None = None
    delay_seconds: NonNegativeFloat = 0
    status: int = 200
    headers: Mapping[str, str] = Field(default_factory=dict[str, str])
    body: str | None = None
    pieces_max: int | None = None
    disconnect: bool = False
    hang: bool = False
    failures: tuple[ScriptedTurn, ...] = ()

    @property
    def turn(self) -> Reply:
        return Reply(
            text=self.text,
            calls=tuple(call for scripted in self.calls for call in scripted.calls),
            usage=self.usage,
            finish_reason=self.finish_reason,
            delay_seconds=self.delay_seconds,
            status=self.status,
            headers=self.headers,
            body=self.body,
            pieces_max=self.pieces_max,
            disconnect=self.disconnect,
            hang=self.hang,
            failures=tuple(failure.turn for failure in self.failures),
        )


class _Deed(Frozen):
    when: Moment
    nth: PositiveInt = 1
    """The first time this moment comes, the second, and so on; for approvals also which one is meant."""


class Stop(_Deed):
    """Somebody stops the run."""

    do: Literal["stop"]
    mode: StopMode = "now"
    reason: str = "enough"


class Tell(_Deed):
    """Somebody sends a message while the agent works."""

    do: Literal["message"]
    text: str


class _Decision(_Deed):
    digest: Literal["its own", "of another call"] | None = None
    """Which digest the decision names, if any."""


class Approve(_Decision):
    """Somebody lets the waiting call run."""

    do: Literal["approve"]


class Deny(_Decision):
    """Somebody refuses the waiting call; the reason goes to the model."""

    do: Literal["deny"]
    reason: str


class Edit(_Decision):
    """Somebody lets the waiting call run with other arguments; `refused` ones break the tool's schema."""

    do: Literal["edit"]
    arguments: Mapping[str, JsonValue]
    refused: bool = False


class Change(_Deed):
    """Somebody makes the agent another one; `agent` has the fields that are to be different."""

    do: Literal["change"]
    agent: Mapping[str, JsonValue]
    budget: ExecutionBudget | None = None


Deed = Annotated[Stop | Tell | Approve | Deny | Edit | Change, Field(discriminator="do")]

Agent = Annotated[AgentDefinition, BeforeValidator(_with_defaults)]
Turns = tuple[ScriptedTurn, ...]


class Scenario(Frozen):
    """One run. `agents` are further definitions (subagents); `scripts` holds, by its model's name, what each says.

    `covers` names sections of docs/spec.md: `SPEC 4` is section 4.
    """

    name: str = Field(min_length=10)
    covers: tuple[Literal["SPEC 1", "SPEC 2", "SPEC 3", "SPEC 4", "SPEC 5", "SPEC 6", "SPEC 7", "SPEC 8"], ...] = Field(
        min_length=1
    )
    agent: Agent = Field(default=cast("Any", {}), validate_default=True)
    agents: tuple[Agent, ...] = ()
    budget: ExecutionBudget = ExecutionBudget()
    question: str = QUESTION
    script: Turns = Field(min_length=1)
    turn_by_turn: bool = False
    """Each request gets the next turn, whatever its conversation; for runs that take messages out of it."""
    scripts: Mapping[str, Turns] = Field(default_factory=dict[str, Turns])
    outside: tuple[Deed, ...] = ()
    expect: Expected

    def changed(self, change: Change) -> AgentDefinition:
        """Return what `change` makes of the agent."""
        return AgentDefinition.model_validate({**dict(self.agent), **change.agent})

    @property
    def goes_on(self) -> bool:
        """Whether it may come to a second step, its own or a subagent's."""
        return len(self.script) > 1 or bool(self.scripts) or bool(self.agents)

    @property
    def turns(self) -> tuple[Reply, ...]:
        """What the model says, turn by turn."""
        return _turns(self.script)

    @property
    def plays(self) -> Scripts:
        """What the endpoint plays: the turns alone, or all scripts by the names of their models."""
        if self.turn_by_turn:
            turns = cycle(self.turns)  # once around for each driver
            return lambda _: next(turns)
        if not self.scripts:
            return self.turns
        return {MODEL: self.turns, **{model: _turns(script) for model, script in self.scripts.items()}}


def _turns(script: Turns) -> tuple[Reply, ...]:
    return tuple(scripted.turn for scripted in script)


class _Loader(yaml.SafeLoader):
    """YAML without a field given twice, and with `!repeat [text, times]` for texts too long to write down."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002  # PyYAML's signature
        names = [key.value for key, _ in node.value]
        if len(set(names)) < len(names):
            raise yaml.YAMLError(f"a field stands there twice: {names} {node.start_mark}")
        return super().construct_mapping(node, deep)


def _repeated(loader: yaml.SafeLoader, node: yaml.Node) -> str:
    if not isinstance(node, yaml.SequenceNode):
        raise yaml.YAMLError(f"write !repeat [text, times] {node.start_mark}")
    text, times = cast("tuple[str, int]", loader.construct_sequence(node))
    return text * times


_Loader.add_constructor("!repeat", _repeated)


def load(path: Path) -> Scenario:
    """Return the scenario in the file; ValueError or YAMLError naming the place of whatever is wrong with it."""
    return Scenario.model_validate(yaml.load(path.read_text(encoding="utf-8"), _Loader))  # noqa: S506  # a SafeLoader
