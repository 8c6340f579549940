"""The picture of a watched run: what it says, that it fits any terminal, and that nothing in it steers one."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from holdfast import ExecutionBudget
from holdfast.cli.screens.progress_bars import FINE, PLAIN, Glyphs, bar, figures
from holdfast.cli.screens.tree_frame import Viewport
from holdfast.cli.screens.tree_screen import without_end
from holdfast.client.watch_events import AttemptFailed, TextDelta, ToolProgressed
from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.base.call_digest import short_digest
from holdfast.core.conversation.steps import ErrorRecord, Outcome
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.execution_events import (
    AgentExecutionCompleted,
    AgentExecutionFailed,
    ApprovalRequested,
    SubagentSpawned,
)
from holdfast.view.budget_use import Share
from holdfast.view.live_tree import LiveView
from tests.view.stories import ROOT, Story, asked, forced, limited, moment, natural, seen

STEERING = "\x1b[2J\x1b]0;title\x07\u202eevil\u200b"
"""What would clear a screen, name a window and turn a line round."""


def picture(
    view: LiveView, *, width: int = 100, height: int = 30, notice: str = "", glyphs: Glyphs = FINE
) -> list[str]:
    return [line.plain for line in Viewport(moment(60), width, height, glyphs).frame(view, notice)]


def at_work() -> LiveView:
    """A lead whose second step has a call that ran, one that waits, and a subagent that answers."""
    look, refund = asked("c1", path="a.py"), asked("c2", "refund", amount=30, to="每个人")
    spawn = asked("c3", "spawn", agent="clerk", task="one")
    story = Story().begins("lead").asks().answers("let me look", look).runs(look).ran(look, "12 lines").completes()
    story.asks().answers("", look, refund, spawn).runs(look).ran(look, "no such file", Outcome.FAILED)
    story.tell(ApprovalRequested, call=refund, expires_at=moment(600), digest=refund.digest)
    story.runs(spawn)
    story.tell(SubagentSpawned, call_id="c3", index=2, agent="clerk", task="one")
    child = Story(named_id(ROOT, call_name(2, 2)), parent_agent_id="a", seconds=story.seconds).begins("clerk").asks()
    child.told += [
        AttemptFailed(child.execution_id, 1, 1, "429"),
        TextDelta(child.execution_id, 1, 2, "the first line\nand a second"),
    ]
    return limited(seen([*story.told, *child.told]), ExecutionBudget(max_steps=2, max_tokens=1_000, max_seconds=600))


def many() -> LiveView:
    """A run of thirty steps with eight calls each, the last of them open, and text without end."""
    story = Story().begins("busy")
    for _ in range(30):
        wanted = [asked(f"c{number}", "look", path="x" * 300) for number in range(8)]
        story.asks().answers("words " * 400, *wanted)
        for each in wanted[:7]:
            story.runs(each).ran(each, STEERING * 20)
        story.runs(wanted[7])
    return limited(seen(story.told), ExecutionBudget(max_steps=30))


def test_the_tree_says_who_does_what() -> None:
    shown = "\n".join(picture(at_work()))
    for words in (
        "lead 6f1c1d5e in progress  1 step, 200 tokens, 1 min",
        "├ step 1  ",
        '✓ look(path="a.py") 1 s  12 lines',
        '✗ look(path="a.py") 1 s failed  no such file',
        '? refund(amount=30, to="每个人") ',
        "waits for approval",
        "clerk ",
        "1 attempt failed",
        "attempt 1 failed, asking again: 429",
        "answering",
        "the first line",
        "and a second",
    ):
        assert words in shown, f"{words!r} is not in\n{shown}"


def test_what_waits_is_told_with_the_command_that_decides() -> None:
    digest = short_digest(asked("c2", "refund", amount=30, to="每个人").digest)
    whole = f"holdfast approve {ROOT} c2 --digest {digest}"
    lines = picture(at_work())
    assert f"  {whole}" in lines
    narrow = picture(at_work(), width=40)
    assert whole in " ".join(" ".join(line.split()) for line in narrow), "folded, never cut"


def test_each_limit_has_a_bar() -> None:
    lines = picture(at_work())
    assert f"steps    {'█' * 10}{'░' * 10} 1 / 2" in lines
    assert f"tokens   {'█' * 4}{'░' * 16} 200 / 1,000" in lines
    assert f"seconds  {'█' * 2}{'░' * 18} 1 min / 10 min" in lines
    low = picture(at_work(), height=13)
    assert [line for line in low if "█" in line] == [lines[0]], "in a low terminal the scarcest one alone"


@pytest.mark.parametrize("view", [LiveView(), at_work(), many()], ids=["nothing", "at work", "many"])
@pytest.mark.parametrize(("width", "height"), [(200, 60), (100, 30), (80, 24), (40, 24), (40, 10), (20, 5), (10, 1)])
def test_the_picture_fits_the_terminal(view: LiveView, width: int, height: int) -> None:
    lines = picture(view, width=width, height=height, notice="no worker answers")
    assert 0 < len(lines) <= height
    assert max(map(cell_len, lines)) <= width
    if height >= 24 and view.root is not None:
        assert any("in progress" in line or view.root.execution_id[:8] in line for line in lines)


def test_what_is_open_is_shown_rather_than_what_is_over() -> None:
    lines = picture(many(), height=14)
    spinning = [line for line in lines if "look(" in line and line.lstrip(" │├└")[0] in FINE.spinner]
    assert spinning, "\n".join(lines)
    assert any("earlier steps" in line for line in lines)


def test_nothing_that_was_said_steers_the_terminal() -> None:
    call = asked("c1", "look", path=STEERING)
    story = Story().begins("agent" + STEERING).asks().answers(STEERING, call).runs(call).ran(call, STEERING)
    story.completes().asks()
    story.told += [AttemptFailed(ROOT, 2, 1, STEERING), TextDelta(ROOT, 2, 2, STEERING)]
    story.tell(ApprovalRequested, call=asked("c9", "x" + STEERING), expires_at=None, digest="0" * 64)
    shown = "".join(picture(seen(story.told), notice=STEERING))
    assert "evil" in shown
    assert not set(shown) & {"\x1b", "\x07", "\u202e", "\u200b"}
    stopped = Story().begins()
    stopped.tell(AgentExecutionCompleted, **forced(StopReason.STOP_REQUESTED, STEERING))
    assert "\x1b" not in "".join(picture(seen(stopped.told)))


def test_what_is_amiss_stands_on_top() -> None:
    assert picture(at_work(), notice="no worker answers for run 1; start one")[0].startswith("! no worker answers")


def test_an_agents_earlier_runs_are_a_line_each() -> None:
    first, second = Story().begins(), Story("6f1c1d5e-0000-4000-8000-000000000002", seconds=9).begins().asks()
    first.tell(AgentExecutionCompleted, **natural("1"))
    lines = picture(seen([*first.told, *second.told]))
    assert [line.split()[0] for line in lines[:1]] == ["✓"]
    assert "step 1" in lines[-1]


def test_a_terminal_that_knows_ascii_alone_is_shown_nothing_else() -> None:
    story = Story().begins().asks().answers("so", asked("c1")).runs(asked("c1")).ran(asked("c1"), "1")
    view = limited(seen(story.told), ExecutionBudget(max_steps=3))
    for height in (30, 3):
        assert "".join(picture(view, glyphs=PLAIN, height=height, width=30)).isascii()


def test_the_last_picture_has_no_bars_and_no_hints() -> None:
    last = [line.plain for line in Viewport(moment(60), 100, 100, FINE).last(at_work())]
    assert last[0].split()[1] == "lead"
    assert not any("█" in line or "holdfast approve" in line for line in last)


def test_a_sign_of_a_bar_is_full_from_half_of_it_on_and_the_last_one_when_nothing_is_left() -> None:
    shown = [bar(Share("steps", used, 1_000), 4, PLAIN).plain for used in (0, 124, 125, 500, 999, 1_000, 2_000)]
    assert shown == ["....", "....", "#...", "##..", "###.", "####", "####"]


def test_steps_of_subagents_that_count_are_told_beside_the_bar() -> None:
    spawn = asked("c1", "spawn", agent="clerk", task="one")
    story = Story().begins("lead").asks().answers("", spawn).runs(spawn)
    story.tell(SubagentSpawned, call_id="c1", index=0, agent="clerk", task="one")
    child = Story(named_id(ROOT, call_name(1, 0)), parent_agent_id="a").begins("clerk").asks().answers("1")
    limits = ExecutionBudget(max_steps=8, max_tokens=1_000)
    before = picture(limited(seen([*story.told, *child.told]), limits))
    child.completes()
    after = picture(limited(seen([*story.told, *child.told]), limits))
    assert [line.split(" ", 1)[0] for line in after[:2]] == ["steps", "tokens"]
    assert before[0].endswith(" 0 / 8")
    assert after[0].endswith(" 1 / 8 with subagents")
    assert after[1].endswith(" / 1,000")


def test_an_end_is_told_once_below_the_tree() -> None:
    story = Story().begins().asks()
    story.told.append(AttemptFailed(ROOT, 1, 4, "429"))
    assert "attempt 4 failed, asking again: 429" in "\n".join(picture(seen(story.told)))
    story.tell(AgentExecutionFailed, error=ErrorRecord(type="ModelUnavailable", message="429", source="model"))
    view = seen(story.told)
    root = view.runs[ROOT]
    assert root.why_stopped == "ModelUnavailable: 429"
    last = "\n".join(line.plain for line in Viewport(moment(60), 100, 100, FINE).last(without_end(view)))
    assert "4 attempts failed" in last
    assert "429" not in last, "the line below the tree says why"
    assert "asking again" not in "\n".join(picture(view)), "nobody asks any more"


def test_figures_are_short() -> None:
    assert figures(Share("tokens", 1_200, 10_000)) == "1,200 / 10,000"
    assert figures(Share("cost", 0.01234, 2)) == "0.0123 / 2.0000 USD"
    assert figures(Share("cost", 0.01234, 2, ("model-x",))) == "> 0.0123 / 2.0000 USD"
    assert figures(Share("deadline", 61, 3_600)) == "1 min 01 s / 1 h"


def test_a_running_call_says_how_far_its_tool_is() -> None:
    look = asked("c1", path="a.py")
    story = Story().begins("lead").asks().answers("", look).runs(look)
    story.told.append(ToolProgressed(ROOT, 1, "c1", "look", 1, STEERING + "page 2", 0.4))
    [line] = [each for each in picture(seen(story.told)) if "look(" in each]
    assert "40%" in line
    assert line.endswith("page 2")
    assert "\x1b" not in line
