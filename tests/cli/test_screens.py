"""`holdfast watch` and `holdfast top` in a real terminal (tmux): what a person sees of real runs."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.cli.program import Project, Running, start_id
from tests.cli.tmux import Tmux, needs_tmux, tmux

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("dev"), needs_tmux]

LIMITS = ("--max-steps", "5", "--max-tokens", "10000", "--max-seconds", "600")


def told(command: str) -> str:
    """A line of shell that leaves the command's exit code on the screen, and the screen there."""
    return f"{command}; echo code $?; sleep 60"


@pytest.mark.slow
@pytest.mark.usefixtures("unserved")  # begun early, judged later
def test_a_watched_run_is_a_live_tree_that_fits_any_terminal(project: Project) -> None:
    execution_id, quick = start_id(project, "desk", *LIMITS), start_id(project)
    both = f"holdfast watch {execution_id}; echo code $?; holdfast watch {quick}"
    with tmux(project, told(both)) as terminal:
        screen = terminal.shows("█", "steps ", "waits for approval", "writer ", "Dear customer")
        lines = screen.splitlines()
        bars = {line.split()[0]: line for line in lines if "░" in line}
        assert list(bars) == ["steps", "tokens", "seconds"]
        assert bars["steps"].endswith(" 1 / 5")
        assert "10 min" in bars["seconds"]
        assert f"  holdfast approve {execution_id} call_1_0 --digest " in screen
        assert "✓ multiply(a=6, b=7)" in screen
        tree = [line for line in lines if line.lstrip("│ ")[:1] in "├└" and line.strip()]
        assert [line[2:8] for line in tree if line[2:6] == "step"] == ["step 1", "step 2"]
        [child] = [line for line in tree if "writer " in line and "spawn" not in line]
        assert child.index("└") > 2, "it stands below the call that has started it"

        terminal.resize(40, 16)
        terminal.shows("1 / 5", "? multiply(a=9, b=7)", "holdfast approve", execution_id)  # folded, not cut
        terminal.resize(100, 30)
        assert project.run("stop", execution_id, "--reason", "enough").code == 0
        end = terminal.shows("code 3", "code 0")
    lines = end.splitlines()
    assert [line for line in lines if line.startswith("stopped (user_requested: enough)  2 steps, ")], end
    assert "42" in lines[lines.index("code 3") :], "the answer of the run that has completed, whole"
    assert "⊘ writer " in end
    assert not any(sign in end for sign in ("█", "holdfast approve")), "what only counts while it runs is gone"


@pytest.fixture(scope="module")
def unserved(project: Project, dev: Running) -> Generator[tuple[str, Tmux]]:  # noqa: ARG001  # its server
    """The id of a run that no worker serves, and a terminal in which it is watched: it takes its time to find out."""
    execution_id = start_id(project, "slow", "--task-queue", "nobody")
    with tmux(project, told(f"holdfast watch {execution_id}")) as terminal:
        yield execution_id, terminal


@pytest.mark.slow
def test_ctrl_c_leaves_the_run_alone_and_an_absent_worker_is_told_of(
    project: Project, unserved: tuple[str, Tmux]
) -> None:
    execution_id, terminal = unserved
    screen = terminal.shows("no worker answers for run", "nothing has happened yet")
    assert "holdfast worker --task-queue nobody" in " ".join(screen.split())
    terminal.types("C-c")
    assert f"the run continues: holdfast show {execution_id}" in terminal.shows("code 130")
    assert project.run("stop", execution_id).out == f"stop requested for {execution_id}\n"


@pytest.mark.slow
def test_top_shows_what_is_under_way_and_leaves_the_terminal_as_it_was(project: Project) -> None:
    execution_id = start_id(project, "careful", *LIMITS)
    query = "HoldfastAgent = 'careful'"
    with tmux(project, told(f'echo before; holdfast top --query "{query}"'), columns=140) as terminal:
        screen = terminal.shows(execution_id[:8], "1 call", "░", "seconds", "q quit", f"only {query}")
        assert screen.splitlines()[1].split() == [
            *("agent", "id", "status", "steps", "tokens", "cost", "budget", "elapsed", "waiting", "tenant", "parent"),
        ]
        terminal.types("Enter")
        terminal.shows(f"run {execution_id}", "waits for approval: multiply", "a approves, d denies")
        terminal.types("q")
        end = terminal.shows("code 0")
    assert end.split() == ["before", "code", "0"]
    project.run("stop", execution_id)
