"""What the commands print of values, without any server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast
from uuid import uuid4

import pytest

from holdfast import Agent
from holdfast.cli.screens import output
from holdfast.cli.screens.chat_output import ChatOutput
from holdfast.cli.screens.run_progress import EventLines, Steps
from holdfast.client.execution_summaries import ExecutionSummary
from holdfast.client.watch_events import AttemptFailed, Watched, WorkerAwaited
from holdfast.core.conversation.stop_reasons import StopReason, StopSignal
from holdfast.core.wire.execution_events import StopSignalReceived
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel, call, say


def test_a_status_is_listed_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime.now(UTC)
    output.table([ExecutionSummary(str(uuid4()), "clerk", "in_progress", None, 1, 2, 0.5, at, None)])
    assert "  in progress  " in capsys.readouterr().out


def test_why_an_attempt_failed_is_shown_whole_among_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    why = "the model endpoint the OpenAI API cannot be reached (its name cannot be resolved); is OPENAI_BASE_URL right?"
    failed = AttemptFailed(str(uuid4()), 1, 1, why)
    Steps(live=True).show(failed)
    assert why in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("shown_by", [ChatOutput("ada"), Steps(live=False), EventLines()])
def test_a_call_that_waits_for_a_worker_says_for_whose(
    shown_by: ChatOutput | Steps | EventLines, capsys: pytest.CaptureFixture[str]
) -> None:
    shown_by.show(WorkerAwaited(str(uuid4()), 1, "call_1", "shell", "sandbox"))
    printed = " ".join(capsys.readouterr().out.split())
    assert "shell" in printed
    assert "waits for a worker of the task queue 'sandbox': none has lately asked for work" in printed


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
