"""Draws the pictures of docs/concepts.md and the table of docs/events.md from what the core does: `make diagrams`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

from docs.diagrams.picture import is_of, pictures
from docs.diagrams.walk import ANYWHERE, BEGIN, CALLS, END, LOOP, NOON, REQUESTED, Notes, stepped, walked
from holdfast import ExecutionBudget, ExecutionStatus, StopReason
from holdfast.core.agent.hooks import ENDING, Trigger
from holdfast.core.agent.initial_state import new_agent
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.steps import CallStage, Outcome
from holdfast.core.conversation.stop_reasons import StopSignal
from holdfast.core.loop.agent_loop import AgentLoop
from holdfast.core.loop.events import ExecutionStarted, StopRequested
from holdfast.core.wire import execution_events

HERE: Final = Path(__file__).resolve().parent
CONCEPTS: Final = HERE.parent / "concepts.md"
EVENTS: Final = HERE.parent / "events.md"

WHY: Final[Mapping[tuple[str, str], str]] = {
    (ExecutionStatus.PENDING, ExecutionStatus.IN_PROGRESS): "begin",
    (ExecutionStatus.IN_PROGRESS, ExecutionStatus.FAILED): "an error ends it",
    (ExecutionStatus.IN_PROGRESS, ExecutionStatus.STOPPED): "the highest stop signal forces",
    (ExecutionStatus.IN_PROGRESS, ExecutionStatus.COMPLETED): "a natural end",
    (REQUESTED, CallStage.WAITING): "another call runs alone",
    (REQUESTED, CallStage.BEFORE_TOOL): "at once",
    (REQUESTED, Outcome.FAILED): "unknown tool, malformed arguments, too many calls",
    (Trigger.BEFORE_INFERENCE, "SummariseBuffer"): "a summary is due",
}
"""Words for what the walk cannot name. Every other change of a status begins a new execution."""


def status_diagram(notes: Notes) -> Iterator[str]:
    """Yield the statuses and what changes them."""
    yield "stateDiagram-v2"
    yield f"    [*] --> {ExecutionStatus.PENDING}"
    for before in ExecutionStatus:
        for after in ExecutionStatus:
            if (before, after) in notes.statuses:
                yield f"    {before} --> {after}: {WHY.get((before, after), 'the next request')}"


def loop_diagram(notes: Notes) -> Iterator[str]:
    """Yield the places of the loop in the order of a run: hooks as hexagons, what the shell is asked for as boxes."""
    yield "flowchart TD"
    for place in _places(notes):
        yield f"    {_id(place)}{_shape(place)}"
    for before in _places(notes):
        inside = {after: _told(labels) for (start, after), labels in notes.places.items() if start == before}
        exits = {after: told for after, told in inside.items() if told is not None}
        for after, told in exits.items():
            words = WHY.get((before, after), told)
            label = f"|{words}|" if words and len(exits) > 1 else ""
            yield f"    {_id(before)} -->{label} {_id(after)}"
    yield '    anywhere(["at any place before the end"])'
    for label, after in sorted(_from_anywhere(notes).items()):
        yield f"    anywhere -.->|{label}| {_id(after)}"


def _places(notes: Notes) -> list[str]:
    """Return every place, in the order in which a run comes by."""
    before = list(Trigger)[: list(Trigger).index(Trigger.AFTER_INFERENCE)]
    order = [BEGIN, *before, "SummariseBuffer", "CallModel", Trigger.AFTER_INFERENCE, CALLS]
    order += [each for each in Trigger if each not in order]
    met = {place for edge in notes.places for place in edge}
    return [place for place in (*order, END) if place in met]


def _told(labels: list[str]) -> str | None:
    """Return what stands at an arrow; none for what is drawn from `anywhere` alone."""
    inner = [label for label in labels if label not in ANYWHERE]
    if not inner:
        return None
    return "" if "" in inner else ", or ".join(sorted(inner))


def _from_anywhere(notes: Notes) -> dict[str, str]:
    """Return where that leads which can happen anywhere; ValueError when that depends on the place."""
    found: dict[str, str] = {}
    for (before, after), labels in notes.places.items():
        for label in ANYWHERE.intersection(labels):
            if before not in ENDING and found.setdefault(label, after) != after:
                raise ValueError(f"{label} leads from {before} to {after} and elsewhere to {found[label]}")
    return found


def _id(place: str) -> str:
    return place.replace(" ", "_")


def _shape(place: str) -> str:
    if place in set(Trigger):
        return f"{{{{{place}}}}}"
    if place == CALLS:
        return f'[["{place}: before_tool, run, after_tool"]]'
    return f"([{place}])" if place in (BEGIN, END) else f"[{place}]"


def call_diagram(notes: Notes) -> Iterator[str]:
    """Yield the life of one tool call."""
    yield "stateDiagram-v2"
    yield f"    [*] --> {REQUESTED}"
    order = [REQUESTED, *CallStage, *Outcome]
    for before, after in sorted(notes.calls, key=lambda edge: (order.index(edge[0]), order.index(edge[1]))):
        words = WHY.get((before, after)) or _told(notes.calls[before, after])
        yield f"    {before} --> {after}" + (f": {words}" if words and after != Outcome.CANCELLED else "")
    for outcome in Outcome:
        yield f"    {outcome} --> [*]"


def ended_by(reason: StopReason) -> ExecutionStatus:
    """Return the status of an execution that a signal of that reason ended."""
    loop = AgentLoop(LOOP.definition)
    state = new_agent(loop.definition, agent_id=str(UUID(int=1)), at=NOON)
    state, _ = loop.step(state, ExecutionStarted(str(UUID(int=2)), (user_message("Go."),), ExecutionBudget(), NOON))
    state, _ = stepped(loop, state, StopRequested(StopSignal(reason=reason, at=NOON), "now", NOON))
    return state.status


def event_table(_: Notes) -> Iterator[str]:
    """Yield the events that listeners hear, in the order of their module."""
    yield "| event | says |"
    yield "|---|---|"
    for kind in vars(execution_events).values():
        if (
            isinstance(kind, type)
            and issubclass(kind, execution_events.Observed)
            and kind is not execution_events.Observed
        ):
            yield f"| `{kind.__name__}` | {' '.join((kind.__doc__ or '').split())} |"


Drawing = Callable[[Notes], Iterator[str]]

PICTURES: Final[Mapping[str, Drawing]] = {"status": status_diagram, "loop": loop_diagram, "call": call_diagram}
SHOWN: Final[Mapping[str, str]] = {
    "status": "The statuses of an execution and what changes them",
    "loop": "The loop: places where hooks run, what the driver is asked to do, and what leads where",
    "call": "The stages of a tool call and its outcomes",
}
"""What stands in the place of a picture where it cannot be seen."""
TABLES: Final[Mapping[str, Drawing]] = {"events": event_table}
PAGES: Final[Mapping[Path, Mapping[str, Drawing]]] = {CONCEPTS: PICTURES, EVENTS: TABLES}
"""What is drawn into each page."""


def drawn(page: str, drawings: Mapping[str, Drawing]) -> str:
    """Return `page` with everything between its markers drawn anew; ValueError when a marker is missing."""
    notes = walked()
    for name, draw in drawings.items():
        begin, end = f"<!-- drawn: {name} (make diagrams) -->\n", "<!-- end -->"
        if page.count(begin) != 1:
            raise ValueError(f"the page has {page.count(begin)} places marked {begin.strip()!r}, it needs one")
        whole = f"![{SHOWN[name]}](diagrams/{name}.svg)" if name in PICTURES else "\n".join(draw(notes))
        head, _, rest = page.partition(begin)
        page = f"{head}{begin}\n{whole}\n\n{end}{rest.partition(end)[2]}"
    return page


def sources() -> dict[str, str]:
    """Return the pictures' names and what they are drawn from, in Mermaid's words."""
    notes = walked()
    return {name: "\n".join(draw(notes)) + "\n" for name, draw in PICTURES.items()}


def main() -> None:
    """Write the pages anew, and those pictures that show something else now."""
    for page, drawings in PAGES.items():
        page.write_text(drawn(page.read_text(encoding="utf-8"), drawings), encoding="utf-8")
    old = {HERE / f"{name}.svg": text for name, text in sources().items() if not is_of(HERE / f"{name}.svg", text)}
    for picture, text in old.items():
        picture.with_suffix(".mmd").write_text(text, encoding="utf-8")
    if old:
        pictures(old)


if __name__ == "__main__":
    main()
