"""The pictures of docs/concepts.md are what the loop does now, and the walk that draws them passes everything."""

from __future__ import annotations

import pytest

from docs.diagrams.picture import is_of
from docs.diagrams.walk import FATAL, FAULT, LOOP, RAISES, STOP_NOW, Notes, walked
from docs.diagrams.write import HERE, PAGES, PICTURES, drawn, loop_diagram, sources
from holdfast import ExecutionStatus
from holdfast.core.agent.hooks import Trigger
from holdfast.core.conversation.steps import CallStage, Outcome
from holdfast.core.loop.agent_loop import AFTER

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def notes() -> Notes:
    """What the walk has seen."""
    return walked()


def test_drawing_the_pictures_anew_changes_nothing() -> None:
    for path, drawings in PAGES.items():
        page = path.read_text(encoding="utf-8")
        assert drawn(page, drawings) == page, "run `make diagrams`"
    for name, source in sources().items():
        assert (HERE / f"{name}.mmd").read_text(encoding="utf-8") == source, "run `make diagrams`"
        assert is_of(HERE / f"{name}.svg", source), "run `make diagrams`"
        assert not is_of(HERE / f"{name}.svg", source + "one more line")


def test_a_page_without_a_place_for_a_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="it needs one"):
        drawn("# Concepts\n", PICTURES)


def test_the_walk_passes_every_place_where_hooks_run(notes: Notes) -> None:
    assert {place for edge in notes.places for place in edge} >= set(AFTER)
    assert set(LOOP.hooks_at) == set(Trigger) - {Trigger.INPUT_GUARD}, "which runs beside a model call"


def test_the_walk_meets_every_stage_outcome_and_status(notes: Notes) -> None:
    reached = {after for _, after in notes.calls}
    assert reached == set(CallStage) | set(Outcome)
    assert {status for edge in notes.statuses for status in edge} == set(ExecutionStatus)


def test_a_stop_and_an_error_lead_to_one_place_from_everywhere(notes: Notes) -> None:
    text = "\n".join(loop_diagram(notes))
    for label, place in ((STOP_NOW, "on_stop"), (FAULT, "on_error"), (RAISES, "on_error")):
        assert f"anywhere -.->|{label}| {place}" in text
    elsewhere = Notes(places={("before_step", "on_stop"): [FAULT], ("CallModel", "on_error"): [FAULT]})
    with pytest.raises(ValueError, match="elsewhere to on_stop"):
        list(loop_diagram(elsewhere))


def test_under_fatal_errors_a_step_with_an_error_is_the_last(notes: Notes) -> None:
    assert FATAL in notes.places["after_step", "on_error"]
