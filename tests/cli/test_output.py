"""What the commands print of values, without any server."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import reduce
from typing import cast
from uuid import uuid4

import pytest

from holdfast import LLM, Agent, AgentDefinition, tool
from holdfast.cli.screens import output
from holdfast.cli.screens.chat_output import ChatOutput
from holdfast.cli.screens.progress_bars import FINE
from holdfast.cli.screens.run_progress import EventLines, Steps
from holdfast.cli.screens.tree_frame import Viewport
from holdfast.client.execution_summaries import ExecutionSummary
from holdfast.client.watch_events import AttemptFailed, RateLimitAwaited, TextDelta, Watched, WorkerAwaited
from holdfast.core.conversation.judgements import Judgement
from holdfast.core.conversation.steps_back import StepBack
from holdfast.core.conversation.stop_reasons import StopReason, StopSignal
from holdfast.core.conversation.todos import Todo
from holdfast.core.tools.code_mode import RUN_CODE, CodeMode
from holdfast.core.wire.execution_events import StopSignalReceived
from holdfast.events import AgentWentBack, AnswerJudged, InferenceResponseReceived, TodosChanged
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel, call, say
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, calls
from holdfast.view.live_tree import LiveView, after
from tests.view.stories import Story


def test_a_status_is_listed_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime.now(UTC)
    output.table([ExecutionSummary(str(uuid4()), "clerk", "in_progress", None, 1, 2, 0.5, at, None)])
    assert "  in progress  " in capsys.readouterr().out


@pytest.mark.parametrize("live", [True, False])
def test_why_an_attempt_failed_is_shown_whole_among_the_steps(
    capsys: pytest.CaptureFixture[str], *, live: bool
) -> None:
    why = "the OpenAI API cannot be reached (its name cannot be resolved); check this machine's network and proxy"
    failed = AttemptFailed(str(uuid4()), 1, 1, why)
    Steps(live=live).show(failed)
    assert why in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("shown_by", [ChatOutput("ada"), Steps(live=False), EventLines()])
def test_a_call_that_waits_for_a_worker_says_for_whose(
    shown_by: ChatOutput | Steps | EventLines, capsys: pytest.CaptureFixture[str]
) -> None:
    shown_by.show(WorkerAwaited(str(uuid4()), 1, "call_1", "shell", "sandbox"))
    printed = " ".join(capsys.readouterr().out.split())
    assert "shell" in printed
    assert "waits for a worker of the task queue 'sandbox': none has lately asked for work" in printed


@pytest.mark.parametrize("shown_by", [ChatOutput("ada"), Steps(live=False), EventLines()])
def test_a_call_that_waits_for_a_rate_limit_says_for_which(
    shown_by: ChatOutput | Steps | EventLines, capsys: pytest.CaptureFixture[str]
) -> None:
    shown_by.show(RateLimitAwaited(str(uuid4()), 1, "the rate limit of the route 'large'"))
    printed = " ".join(capsys.readouterr().out.split())
    assert "the model call waits for the rate limit of the route 'large'" in printed


async def test_a_step_whose_answer_streamed_names_its_route_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeOpenAI([say("Here.")]) as endpoint:
        route = {"api": "openai_chat", "model": "m", "base_url": endpoint.base_url}
        driver = LocalDriver(AgentDefinition(name="clerk", llm=LLM(model="small")), models={"small": route})
        steps = Steps(live=True)
        driver.on(InferenceResponseReceived, lambda each: steps.show(TextDelta(each.execution_id, 1, 1, "Here.")))
        driver.wiretap(lambda event: steps.show(cast("Watched", event)))
        await driver.execute("Where?")
    printed = capsys.readouterr().out
    assert printed.index("step 1\n") < printed.index("Here.") < printed.index("via small")


def test_a_stop_without_a_message_has_no_colon_behind_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime.now(UTC)
    signal = StopSignal(reason=StopReason.USER_REQUESTED, message="", source="ada", at=at)
    EventLines().show(StopSignalReceived(str(uuid4()), str(uuid4()), None, at, 1, signal=signal))
    assert capsys.readouterr().out.rstrip().endswith("StopSignalReceived user_requested")


async def test_a_handoff_stands_behind_its_step_now_and_later(capsys: pytest.CaptureFixture[str]) -> None:
    front = Agent(name="front", handoffs=[Agent(name="billing")])
    model = ScriptedModel([call("handoff", agent="billing", reason="a bill"), say("It is paid.")])
    events: list[Watched] = []
    driver = LocalDriver(front, model=model)
    driver.wiretap(lambda event: events.append(cast("Watched", event)))
    state = await driver.execute("Is it paid?")
    output.whole(state, None)
    later = capsys.readouterr().out
    steps, lines = Steps(live=False), EventLines()
    for each in events:
        steps.show(each)
    for printed in (later, capsys.readouterr().out):
        at_call, at_handoff = printed.index("handoff"), printed.index("front handed over to billing: a bill")
        assert at_call < at_handoff < printed.index("step 2 billing final answer")
        assert "step 1\n" in printed
    for each in events:
        lines.show(each)
    printed = capsys.readouterr().out
    assert "AgentHandedOff" in printed
    assert "front handed over to billing: a bill" in printed
    chat = ChatOutput(state.agent_id)
    for each in events:
        chat.show(each)
    printed = capsys.readouterr().out
    assert printed.index("billing goes on") < printed.index("It is paid.")
    assert output.outcome(state)["agent"] == "billing"


async def test_the_calls_of_a_script_stand_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    agent = AgentDefinition(name="coder", tools="all", code=CodeMode())
    code = "import asyncio\nawait asyncio.gather(add(1, 2), add(3, 4))"
    wanted = calls(Call(RUN_CODE, {"code": code}), Call("add", {"a": 5, "b": 6}))
    driver = LocalDriver(agent, model=ScriptedModel([wanted, say("done")]), tools=[add])
    events: list[Watched] = []
    driver.wiretap(lambda event: events.append(cast("Watched", event)))
    await driver.execute("go")
    lines = EventLines()
    for each in events:
        lines.show(each)
    of_add = [each for each in capsys.readouterr().out.splitlines() if " add " in each]
    indented = ["   ToolCall" in each for each in of_add]
    assert indented == [True] * 4 + [False] * 2, "those of the script, and then the model's own"
    view = reduce(after, events, LiveView())
    assert view.root is not None
    drawn = [each.plain for each in Viewport(view.root.started_at or datetime.now(UTC), 100, 30, FINE).last(view)]
    marked = [f"{FINE.succeeded} {name}(" for name in (RUN_CODE, "add")]
    at = [each.index(call) for each in drawn for call in marked if call in each]
    assert len(at) == 4
    assert at[1] == at[2] > at[0] == at[3]


def test_a_list_a_judgement_and_a_step_back_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime.now(UTC)
    story = Story().begins().asks().answers("the answer")
    todos = (Todo(text="look", status="done"), Todo(text="write", status="in_progress"))
    judgement = Judgement(judge="critic", outcome="refused", reasons=("too short",), started_at=at, completed_at=at)
    story.tell(TodosChanged, todos=todos)
    story.tell(AnswerJudged, judgement=judgement)
    story.tell(AgentWentBack, step_back=StepBack(from_step=1, to_step=1, note="look elsewhere", at=at))
    lines, steps = EventLines(), Steps(live=False)
    for each in story.told:
        lines.show(each)
    printed = capsys.readouterr().out
    assert "TodosChanged 1 of 2 done, [>] write" in printed
    seen = ("judged by critic: refused; too short", "went back to step 1; steps 1 to 1 are left out: look elsewhere")
    for each in story.told:
        steps.show(each)
    drawn = Viewport(at, 120, 30, FINE).last(reduce(after, story.told, LiveView()))
    for text in (printed, capsys.readouterr().out, "\n".join(each.plain for each in drawn)):
        assert all(line in text for line in seen)
    assert any("todo: 1 of 2 done" in each.plain for each in drawn)
