"""What a watcher sees, event by event: a pure function, so lists of events are all it takes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from holdfast import Agent, AgentDefinition, ExecutionBudget, tool
from holdfast.client.watch_events import (
    AttemptFailed,
    RateLimitAwaited,
    TextDelta,
    ToolProgressed,
    Watched,
    WorkerAwaited,
)
from holdfast.core.agent.budget import BudgetUse
from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id, step_id
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import LIVE_TEXT_CHARS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.input_requests import InputRequest
from holdfast.core.conversation.steps import ErrorRecord, InferenceResponse, Outcome
from holdfast.core.conversation.stop_reasons import StopReason, StopSignal
from holdfast.core.wire.execution_events import (
    AgentExecutionCompleted,
    AgentExecutionFailed,
    ApprovalRequested,
    ApprovalResolved,
    InferenceResponseReceived,
    InputRequested,
    InputResolved,
    Observed,
    StopSignalReceived,
    SubagentCompleted,
    SubagentSpawned,
)
from holdfast.local import LocalDriver
from holdfast.testing import a_state
from holdfast.testing.script import Call, calls, say
from holdfast.testing.scripted_model import ScriptedModel
from holdfast.view import live_tree
from holdfast.view.budget_use import Share, shares, tightest
from holdfast.view.live_tree import LIVE_STEPS_MAX, LiveView, headed
from holdfast.view.run_view import RunView
from tests.view.stories import BEGAN, ROOT, Story, asked, forced, limited, moment, natural, seen


def whole(story: Story) -> RunView:
    """Return the story's run with what its step under way has used."""
    run = seen(story.told).run(ROOT)
    assert run is not None
    return run


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_nothing_has_happened_yet() -> None:
    assert (LiveView().root, LiveView().waiting) == (None, ())


def test_a_run_is_seen_step_by_step() -> None:
    one = asked("c1", path="a.py")
    story = Story().begins().asks()
    root = seen(story.told).root
    assert root is not None
    assert (root.agent, root.status, root.started_at, root.step_count) == ("clerk", "in_progress", BEGAN, 0)
    assert root.steps[0].asking

    story.answers("let me look", one).runs(one)
    [step] = seen(story.told).runs[ROOT].steps
    assert (step.asking, step.text, step.usage.total_tokens) == (False, "let me look", 100)
    assert [(each.id, each.digest, each.outcome, each.is_open) for each in step.calls] == [
        ("c1", one.digest, "running", True)
    ]
    assert whole(story).usage.total_tokens == 100

    story.ran(one, "12 lines").completes().asks().answers("done").completes()
    story.tell(AgentExecutionCompleted, **natural("done"))
    root = whole(story)
    assert (root.status, root.is_over, root.step_count, root.usage.total_tokens) == ("completed", True, 2, 200)
    assert (root.answer, root.completed_at) == ("done", moment(story.seconds - 1))
    [looked] = root.steps[0].calls
    assert (looked.outcome, looked.answer, looked.is_open) == (Outcome.SUCCEEDED, "12 lines", False)


def test_the_view_before_stays_as_it_was() -> None:
    story = Story().begins().asks()
    before = seen(story.told)
    told = len(story.told)
    seen(story.answers("x", asked("c1")).completes().told[told:], before)
    assert before == seen(story.told[:told])


def test_text_comes_piece_by_piece_and_begins_again_with_another_attempt() -> None:
    story = Story().begins().asks()
    story.told += [TextDelta(ROOT, 1, 1, "Long "), TextDelta(ROOT, 1, 1, "ago")]
    assert seen(story.told).runs[ROOT].steps[0].text == "Long ago"
    story.told += [AttemptFailed(ROOT, 1, 1, "cut off"), TextDelta(ROOT, 1, 2, "Once")]
    root = seen(story.told).runs[ROOT]
    assert (root.steps[0].text, root.steps[0].retry, root.steps[0].attempt, root.retries) == ("Once", "cut off", 2, 1)
    story.told.append(AttemptFailed(ROOT, 1, 4, "cut off"))  # two in between were too quick to be seen
    root = seen(story.told).runs[ROOT]
    assert (root.steps[0].attempt, root.retries) == (5, 4)
    story.told.append(TextDelta(ROOT, 1, 5, "…a time", skipped=9))
    assert seen(story.told).runs[ROOT].steps[0].text == "…a time"
    assert seen(story.answers("Once upon a time").told).runs[ROOT].steps[0].retry == ""


def test_a_call_shows_the_latest_of_what_its_tool_reports_until_it_ends() -> None:
    one = asked("c1")
    story = Story().begins().asks().answers("", one).runs(one)
    story.told += [
        ToolProgressed(ROOT, 1, "c1", "look", 1, text, share) for text, share in (("a", None), ("b\nc", 0.4))
    ]
    assert [each.progress for each in seen(story.told).runs[ROOT].steps[0].calls] == ["40% b c"]
    assert [each.progress for each in seen(story.ran(one).told).runs[ROOT].steps[0].calls] == [""]


def test_a_call_without_a_worker_shows_what_it_waits_for_until_one_has_taken_it() -> None:
    one = asked("c1")
    story = Story().begins().asks().answers("", one).runs(one)
    story.told.append(WorkerAwaited(ROOT, 1, "c1", "shell", "sandbox"))
    [call] = seen(story.told).runs[ROOT].steps[0].calls
    assert call.progress == "waits for a worker of the task queue 'sandbox': none has lately asked for work"
    story.told.append(WorkerAwaited(ROOT, 1, "c1", "shell", "sandbox", over=True))
    assert [each.progress for each in seen(story.told).runs[ROOT].steps[0].calls] == [""]


def test_a_model_call_shows_what_it_waits_for_until_it_does_no_more() -> None:
    story = Story().begins().asks()
    story.told.append(RateLimitAwaited(ROOT, 1, "the rate limit of the route 'large'"))
    [step] = seen(story.told).runs[ROOT].steps
    assert step.beside == ("waits for the rate limit of the route 'large'",)
    story.told.append(RateLimitAwaited(ROOT, 1, "the rate limit of the route 'large'", over=True))
    [step] = seen(story.told).runs[ROOT].steps
    assert step.beside == ()


def test_only_the_end_of_a_long_text_and_the_latest_steps_are_held() -> None:
    story = Story().begins().asks()
    story.told += [TextDelta(ROOT, 1, 1, "x" * LIVE_TEXT_CHARS_MAX), TextDelta(ROOT, 1, 1, "end")]
    [step] = seen(story.told).runs[ROOT].steps
    assert (len(step.text), step.text[-3:]) == (LIVE_TEXT_CHARS_MAX, "end")
    for _ in range(LIVE_STEPS_MAX + 5):
        story.answers().completes().asks()
    root = seen(story.told).runs[ROOT]
    assert (len(root.steps), root.step_count, root.steps[-1].number) == (LIVE_STEPS_MAX, 55, 56)


def test_a_call_that_waits_is_found_with_what_binds_a_decision_to_it() -> None:
    one, other = asked("c1", "refund", amount=30), asked("c2", "refund", amount=40)
    story = Story().begins().asks().answers("", one, other)
    for each in (one, other):
        story.tell(ApprovalRequested, call=each, expires_at=moment(60), digest=each.digest)
    view = seen(story.told)
    assert [(run.execution_id, each.id, each.digest) for run, each in view.waiting] == [
        (ROOT, "c1", one.digest),
        (ROOT, "c2", other.digest),
    ]
    decision = {"decision": "approve", "by": "ann", "reason": "", "digest": one.digest, "asked": None}
    story.tell(ApprovalResolved, call_id="c1", call=one, **decision)
    assert [each.id for _, each in seen(story.told).waiting] == ["c2"]
    story.runs(one).ran(one, "done").ran(other, "not so much", Outcome.DENIED)
    assert [each.outcome for each in seen(story.told).runs[ROOT].steps[0].calls] == [Outcome.SUCCEEDED, Outcome.DENIED]
    assert seen(story.told).waiting == ()


def test_a_call_whose_server_asks_waits_with_the_question_until_it_is_answered() -> None:
    one = asked("c1", "book", show="Hamlet")
    story = Story().begins().asks().answers("", one).runs(one)
    link = InputRequest(key="page", message="Allow it", url="https://example.com")
    about = {"server": "theatre", "request": link, "digest": "0" * 64}
    story.tell(InputRequested, call=one, round=1, expires_at=moment(60), **about)
    [(run, call)] = seen(story.told).waiting
    assert (run.execution_id, call.id, call.outcome, call.progress) == (ROOT, "c1", "input", "Allow it")
    story.tell(InputResolved, call_id="c1", action="accept", by="ann", **about)
    assert seen(story.told).waiting == ()
    assert [(each.outcome, each.progress) for each in seen(story.told).runs[ROOT].steps[0].calls] == [("running", "")]


def test_a_subagent_stands_below_the_call_that_has_started_it() -> None:
    spawn = asked("c1", "spawn", agent="clerk", task="one")
    story = Story().begins("lead").asks().answers("", spawn).runs(spawn)
    story.tell(SubagentSpawned, call_id="c1", index=0, agent="clerk", task="one")
    child_id = named_id(ROOT, call_name(1, 0))
    view = seen(story.told)
    assert view.runs[ROOT].steps[0].calls[0].execution_id == child_id
    assert (view.runs[child_id].agent, view.runs[child_id].parent, view.runs[child_id].status) == (
        "clerk",
        ROOT,
        "pending",
    )
    child = Story(child_id, parent_agent_id="a", seconds=story.seconds).begins("clerk").asks().answers("1").completes()
    view = seen(child.told, view)
    assert (view.roots, view.root and view.root.execution_id, view.root and view.root.steps_used) == ((ROOT,), ROOT, 1)
    child.tell(AgentExecutionCompleted, **natural("1"))
    view = seen(child.told[-1:], view)
    ended = {"call_id": "c1", "agent": "clerk", "status": ExecutionStatus.COMPLETED}
    story.tell(SubagentCompleted, **ended, usage=Usage(), cost=0.0)
    view = seen(story.ran(spawn, "1").completes(300).told[-4:], view)
    assert (view.runs[child_id].status, view.runs[child_id].parent) == ("completed", ROOT)
    assert (view.root and view.root.steps_used, view.runs[ROOT].usage.total_tokens) == (2, 300)


@pytest.mark.parametrize(
    ("kind", "fields", "status", "why"),
    [
        (AgentExecutionCompleted, forced(StopReason.COST_LIMIT, "spent"), "stopped", "cost_limit: spent"),
        (
            AgentExecutionFailed,
            {"error": ErrorRecord(type="ModelRefused", message="no key", source="model")},
            "failed",
            "ModelRefused: no key",
        ),
    ],
)
def test_a_run_that_ends_says_why_and_leaves_no_call_open(
    kind: type[Observed], fields: dict[str, object], status: str, why: str
) -> None:
    one = asked("c1")
    story = Story().begins().asks().answers("", one).runs(one)
    signal = StopSignal(reason=StopReason.USER_REQUESTED, message="enough", source="cli", at=moment(9))
    story.tell(StopSignalReceived, signal=signal)
    assert seen(story.told).runs[ROOT].why_stopped == "user_requested: enough"
    story.tell(kind, **fields)
    root = seen(story.told).runs[ROOT]
    assert (root.status, root.why_stopped, root.steps[0].calls[0].outcome) == (status, why, Outcome.CANCELLED)


def test_an_agents_next_run_is_a_root_of_its_own_with_limits_of_its_own() -> None:
    first, second = Story().begins(), Story("6f1c1d5e-0000-4000-8000-000000000002", seconds=9).begins()
    first.tell(AgentExecutionCompleted, **natural("1"))
    view = limited(seen(first.told), ExecutionBudget(max_steps=3), paused_seconds=2)
    view = seen(second.told, view)
    assert view.roots == (ROOT, second.execution_id)
    assert (view.root and (view.root.execution_id, view.root.budget, view.root.paused_seconds)) == (
        second.execution_id,
        ExecutionBudget(),
        0,
    )


def test_a_run_that_is_taken_up_again_goes_on_where_it_was() -> None:
    story = Story().begins().asks().answers("", asked("c1"))
    again = Story(seconds=story.seconds).begins(resumed=True)
    view = seen([*story.told, *again.told])
    assert (view.roots, len(view.runs[ROOT].steps), view.runs[ROOT].started_at) == ((ROOT,), 1, BEGAN)
    late = Story(step=4).begins(resumed=True)  # the step it is taken up in was begun before anybody watched
    assert [each.number for each in seen(late.answers("so").told).runs[ROOT].steps] == [4]


def test_runs_that_ended_first_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_tree, "LIVE_RUNS_MAX", 3)
    view = seen(Story().begins().told)
    for number in range(4):
        story = Story(f"6f1c1d5e-0000-4000-8000-00000000001{number}").begins()
        story.tell(AgentExecutionCompleted, **natural(""))
        view = seen(story.told, view)
    assert len(view.runs) == 3
    assert ROOT in view.runs, "it has not ended"


def test_the_run_that_ended_first_goes_whenever_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_tree, "LIVE_RUNS_MAX", 3)
    first, second = (Story(f"6f1c1d5e-0000-4000-8000-00000000001{number}").begins() for number in range(2))
    view = seen(Story().begins().told, seen([*first.told, *second.told]))
    first.seconds += 10
    for each in (second, first):
        each.tell(AgentExecutionCompleted, **natural(""))
    view = seen([second.told[-1], first.told[-1]], view)
    view = seen(Story("6f1c1d5e-0000-4000-8000-000000000019").begins().told, view)
    assert second.execution_id not in view.runs
    assert first.execution_id in view.runs, "it began first, and ended last"


def test_runs_that_go_on_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_tree, "LIVE_RUNS_MAX", 3)
    view = seen(Story().begins().told)
    for number in range(5):
        view = seen(Story(f"6f1c1d5e-0000-4000-8000-00000000001{number}").begins().told, view)
    assert len(view.runs) == 3
    assert view.root is not None


async def test_what_really_happens_is_seen_to_its_end() -> None:
    told: list[Any] = []
    model = ScriptedModel([calls(Call("add", {"a": 1, "b": 2}), Call("add", {"a": 1}), text="let me see"), say("3")])
    driver = LocalDriver(AgentDefinition(name="adder", tools="all"), model=model, tools=[add]).wiretap(told.append)
    state = await driver.execute("what is one and two?")
    root = seen(told).runs[state.running.execution_id]
    assert (root.status, root.answer, root.step_count) == ("completed", "3", 2)
    assert (root.usage.total_tokens, root.agent) == (state.usage.total_tokens, "adder")
    assert [each.outcome for each in root.steps[0].calls] == [Outcome.SUCCEEDED, Outcome.FAILED]
    assert root.steps[0].calls[0].answer == "3"


def test_a_bar_knows_how_much_of_each_limit_is_used() -> None:
    budget = ExecutionBudget(max_steps=4, max_tokens=1_000, max_seconds=60, max_cost=2.0, deadline=moment(100))
    found = shares(budget, BudgetUse(3, 100, 1.0, 30), started_at=BEGAN, now=moment(20))
    assert [(each.limit, each.fraction) for each in found] == [
        ("steps", 0.75),
        ("tokens", 0.1),
        ("cost", 0.5),
        ("seconds", 0.5),
        ("deadline", 0.2),
    ]
    assert tightest(found) == Share("steps", 3, 4)
    assert shares(ExecutionBudget(), BudgetUse(), started_at=BEGAN, now=BEGAN) == ()
    assert tightest(()) is None
    assert [Share("steps", used, most).fraction for used, most in ((0, 0), (5, 4), (-1, 4))] == [1, 1, 0]


def head(budget: ExecutionBudget, cost: float, execution_id: str = ROOT) -> AgentState:
    """What a worker says of a run under way."""
    told = a_state(steps=1, status="in_progress")
    return replace(told, execution=replace(told.running, execution_id=execution_id, budget=budget, cost=cost))


def test_limits_that_are_said_before_any_event_count_from_the_first_one_on() -> None:
    limits = ExecutionBudget(max_steps=4)
    assert headed(LiveView(), head(limits, 0.0)) == LiveView(), "there is nothing yet that they could limit"
    view = seen(Story().begins().told)
    assert headed(view, head(limits, 0.0)).runs[ROOT].budget == limits
    assert headed(view, head(limits, 0.0, step_id(ROOT, 1))) == view, "those of another run"


def test_what_an_answer_has_cost_counts_as_soon_as_anybody_says_so() -> None:
    story = Story().begins().asks().answers("let me look", asked("c1"))
    view = headed(seen(story.told), head(ExecutionBudget(), 0.25))
    assert view.root is not None
    assert (view.root.usage.total_tokens, view.root.cost) == (100, 0.25)
    older = headed(view, head(ExecutionBudget(), 0.2)).root
    assert older is not None
    assert older.cost == 0.25, "an older word"
    story.asks().tell(InferenceResponseReceived, response=InferenceResponse(text="so", cost=0.5))
    [*_, step] = seen(story.told).runs[ROOT].steps
    assert (step.cost, whole(story).cost) == (0.5, 0.5)


async def test_a_run_is_its_latest_agents() -> None:
    front = Agent(name="front", handoffs=[Agent(name="billing")])
    model = ScriptedModel([calls(Call("handoff", {"agent": "billing"})), say("It is paid.")])
    views = [LiveView()]
    driver = LocalDriver(front, model=model)
    driver.wiretap(lambda event: views.append(live_tree.after(views[-1], cast("Watched", event))))
    await driver.execute("Is it paid?")
    names = [view.root.agent for view in views if view.root is not None]
    assert (names[0], names[-1]) == ("front", "billing")
