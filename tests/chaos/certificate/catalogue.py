"""The scenes of the certificate. Each is as short as what it is about allows: every event of it is struck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.base.usage import Prices
from holdfast.core.tools.workspace_profile import WorkspaceProfile
from holdfast.testing.script import Call, Reply, calls, say, turn_number
from tests.chaos.certificate.scene import AMPLE_TOKENS_MAX, SECONDS_MAX, Asked, Begun, Deed, Model, Scene, Waits
from tests.chaos.sessions import place_of

DELAY: Final = 0.1
DEADLINE_SECONDS: Final = 5.0
SCARCE_STEPS_MAX: Final = 2
SCARCE_TOKENS_MAX: Final = 1_300
PROMPT_TOKENS: Final = 300
"""Of each answer in `tokens`: fewer than the bytes of the first request, so that they are an upper bound."""

ANSWER_TOKENS: Final = 20
PRICED: Final = LLM(model="scripted", prices=Prices(input_usd=1, output_usd=2))
SPARING: Final = LLM(model="scripted", prices=PRICED.prices, max_output_tokens=ANSWER_TOKENS)
WORDS: Final = " ".join(f"word{number}" for number in range(40))


def agent(name: str, **fields: Any) -> AgentDefinition:  # noqa: ANN401  # a definition's fields
    """Return an agent whose prompt is its name, so that its requests are known by it."""
    return AgentDefinition.model_validate({"name": name, "system_prompt": name, "tools": (), "llm": PRICED, **fields})


def turns(*replies: Reply) -> Model:
    """Return the model that says these, turn by turn."""
    return lambda request: replies[min(turn_number(request), len(replies) - 1)]


def agents(**scripts: Sequence[Reply]) -> Model:
    """Return the model that says, turn by turn, what the agent that asks is to say."""
    return lambda request: turns(*scripts[asker(request)])(request)


def spending(request: dict[str, Any]) -> tuple[int, int]:
    """Return the prompt and completion tokens that an answer reports; the latter within the request's limit."""
    return PROMPT_TOKENS, min(ANSWER_TOKENS, int(request["max_completion_tokens"]))


def _notes_on(request: dict[str, Any]) -> Reply:
    """Call `note`, turn after turn; only a limit ends the run."""
    note = calls(_note(f"turn {turn_number(request)}"), delay_seconds=DELAY)
    return replace(note, usage=spending(request))


def asker(request: dict[str, Any]) -> str:
    """Return the name of the agent that asks."""
    return str(request["messages"][0]["content"]).split()[0]


def _call(name: str, **arguments: object) -> Reply:
    return calls(Call(name, arguments), delay_seconds=DELAY)


def _note(text: str) -> Call:
    return Call("note", {"text": text, "seconds": DELAY})


PAY: Final = Call("pay", {"amount": 5, "seconds": DELAY})
DONE: Final = say("done", delay_seconds=DELAY)
HANG: Final = Reply(hang=True)
SPAWN_HELPER: Final = _call("spawn", agent="helper", task="help")
HELPER: Final = agent("helper", tools=("note", "hold"))
APPROVED: Final = (ApprovalRule(tools=("sign",)),)


def _talk(request: dict[str, Any]) -> Reply:
    """Say what the session's agent says: `hold` is still waiting as `also` comes, unless it is given up before."""
    said = {
        ("go", 0): _call("hold", text="one"),
        ("go", 2): say("went alone", delay_seconds=DELAY),
        ("also", 0): calls(_note("two"), delay_seconds=DELAY),
        ("also", 2): say("went, also", delay_seconds=DELAY),
        ("and on", 0): calls(PAY, delay_seconds=DELAY),
        ("and on", 2): say("went on", delay_seconds=DELAY),
    }
    return said[place_of(request)]


def _scenes() -> tuple[Scene, ...]:
    once = frozenset({"pay"})
    noter = agent("noter", tools=("note", "pay"))
    signer = agent("signer", tools=("sign",), approvals=APPROVED)
    boss = agent("boss", subagents=("helper",))
    return (
        Scene(
            "plain",
            "two steps with a tool each, one of them at most once; the events go to a sink as well",
            noter,
            turns(calls(_note("one"), delay_seconds=DELAY), calls(PAY, delay_seconds=DELAY), DONE),
            once=once,
            sink=True,
        ),
        Scene(
            "parallel",
            "three tools at the same time, one of them at most once",
            noter,
            turns(calls(_note("one"), _note("two"), PAY, delay_seconds=DELAY), DONE),
            once=once,
            parallel=True,
        ),
        Scene(
            "approval",
            "a call that a person approves",
            signer,
            turns(_call("sign", text="two"), DONE),
            deeds=(Deed(Waits(), "approve"),),
        ),
        Scene(
            "subagents",
            "subagents two deep, the lower one with a tool",
            agent("boss", subagents=("lead",)),
            agents(
                boss=(_call("spawn", agent="lead", task="lead"), DONE),
                lead=(SPAWN_HELPER, say("led", delay_seconds=DELAY)),
                helper=(calls(_note("one"), delay_seconds=DELAY), say("helped", delay_seconds=DELAY)),
            ),
            subagents=(agent("lead", subagents=("helper",)), HELPER),
        ),
        Scene(
            "session",
            "two executions of a session, a message injected into the first; the events go to a sink as well",
            agent("friend", tools=("note", "hold", "pay")),
            _talk,
            asks=("go", "and on"),
            deeds=(Deed(Begun("hold"), "inject", "also"), Deed(Begun("hold"), "open")),
            once=once,
            sink=True,
        ),
        Scene(
            "continued",
            "a new Temporal run (continue-as-new) after each step",
            noter,
            turns(calls(_note("one"), delay_seconds=DELAY), calls(_note("two"), PAY, delay_seconds=DELAY), DONE),
            once=once,
            continue_events=1,
            parallel=True,
        ),
        Scene(
            "stream", "an answer that takes a second to stream", agent("speaker"), turns(say(WORDS, piece_seconds=0.03))
        ),
        Scene(
            "stop-model",
            "a stop during the second model call",
            noter,
            turns(calls(_note("one"), delay_seconds=DELAY), HANG),
            deeds=(Deed(Asked(1), "stop"),),
        ),
        Scene(
            "stop-tool",
            "a stop during a tool call",
            HELPER,
            turns(_call("hold"), DONE),
            deeds=(Deed(Begun("hold"), "stop"),),
        ),
        Scene(
            "stop-approval",
            "a stop while a call waits for a person",
            signer,
            turns(_call("sign", text="two"), DONE),
            deeds=(Deed(Waits(), "stop"),),
        ),
        Scene(
            "stop-subagent",
            "a stop during a subagent's tool call",
            boss,
            agents(boss=(SPAWN_HELPER, DONE), helper=(_call("hold"), DONE)),
            subagents=(HELPER,),
            deeds=(Deed(Begun("hold"), "stop"),),
        ),
        Scene(
            "stop-after-step",
            "a stop that lets the step's tool call end",
            HELPER,
            turns(_call("hold"), DONE),
            deeds=(Deed(Begun("hold"), "stop", mode="after_step"), Deed(Begun("hold"), "open")),
        ),
        Scene(
            "deadline",
            f"a time limit of {DEADLINE_SECONDS:g} s that ends a model call",
            noter,
            turns(calls(_note("one"), delay_seconds=DELAY), HANG),
            budget=ExecutionBudget(max_seconds=DEADLINE_SECONDS),
            timed=True,
        ),
        Scene(
            "steps",
            f"a limit of {SCARCE_STEPS_MAX} steps, which ends the run after the second step's tool",
            noter,
            turns(*(calls(_note(text), delay_seconds=DELAY) for text in ("one", "two", "three"))),
            budget=ExecutionBudget(max_steps=SCARCE_STEPS_MAX, max_tokens=AMPLE_TOKENS_MAX, max_seconds=SECONDS_MAX),
        ),
        Scene(
            "tokens",
            f"a limit of {SCARCE_TOKENS_MAX:,} tokens, which ends the run after three steps if no attempt is lost",
            agent("noter", tools=("note",), llm=SPARING),
            _notes_on,
            budget=ExecutionBudget(max_tokens=SCARCE_TOKENS_MAX, max_seconds=SECONDS_MAX),
            spent=True,
            reported=spending,
        ),
        Scene(
            "hooks",
            "hooks that change a call, the metadata and the answer, and have it go on once",
            agent("noter", tools=("note",), hooks="all"),
            turns(calls(_note("one"), delay_seconds=DELAY), say("a secret", delay_seconds=DELAY), DONE),
        ),
        Scene(
            "mcp",
            "calls of an MCP server's tools, at most once each",
            agent("clerk", mcp=("till",)),
            turns(_call("till_add", a=1, b=2), _call("till_pay", amount=5), DONE),
            once=frozenset({"till_add", "till_pay"}),
        ),
        Scene(
            "workspace",
            "files and a command (at most once) in a workspace",
            agent("coder", workspace=WorkspaceProfile(backend="folder")),
            turns(
                _call("write_file", path="a.txt", content="one\n"),
                _call("shell", command="echo two >> a.txt"),
                _call("read_file", path="a.txt"),
                DONE,
            ),
            once=frozenset({"shell"}),
        ),
    )


SCENES: Final = {scene.name: scene for scene in _scenes()}
