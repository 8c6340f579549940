"""Draws the timeline of docs/reading-runs.md, as `holdfast export` draws them: `make diagrams`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.view.html_elements import picture
from holdfast.view.svg import drawn
from holdfast.view.timeline import Bar, Kind, Row, Timeline

FILE: Final = Path(__file__).with_suffix(".svg")
BEGAN: Final = datetime(2026, 11, 20, 12, 20, 17, tzinfo=UTC)


def text() -> str:
    """Return the picture: a run that reads three files, asks a scout, and publishes when somebody lets it."""
    rows = (
        Row("step 1", 0, (_bar("step", 0, 3.1), _bar("model", 0, 1.9))),
        Row("read_file", 1, (_bar("tool", 1.9, 2.6),)),
        Row("read_file", 1, (_bar("failed", 1.9, 2.2),)),
        Row("read_file", 1, (_bar("tool", 1.9, 3.1),)),
        Row("step 2", 0, (_bar("step", 3.1, 6.4), _bar("model", 3.1, 4.2))),
        Row("spawn", 1, (_bar("tool", 4.2, 6.4),)),
        Row("↳ scout", 2, (_bar("subagent", 4.25, 6.35),)),
        Row("step 3", 0, (_bar("step", 6.4, 10.0), _bar("model", 6.4, 7.1))),
        Row("publish", 1, (_bar("approval", 7.1, 9.5), _bar("tool", 9.5, 10.0))),
        Row("step 4", 0, (_bar("step", 10.0, 11.4), _bar("model", 10.0, 11.4))),
    )
    return picture(drawn(Timeline(BEGAN, _at(11.4), rows))) + "\n"


def _bar(kind: Kind, began: float, ended: float) -> Bar:
    return Bar(kind, _at(began), _at(ended), kind)


def _at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
