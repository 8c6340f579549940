"""The picture of a timeline, as SVG for a page or a file of its own, in the reader's light or dark colours."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from holdfast.core.conversation.amounts import duration, moment
from holdfast.view.html_elements import Element, element, styled
from holdfast.view.timeline import Bar, Kind, Row, Timeline

WIDTH: Final = 960
LABELS: Final = 190
"""How much of the width is for what rows are about."""

PLOT: Final = WIDTH - LABELS - 70
"""How much is for the time; the rest is for the durations behind the bars."""

ROW: Final = 22
TOP: Final = 52
BAR: Final = 12
NARROW: Final = 2.0
"""The least width of a bar: what took no time is there, too."""

INDENT: Final = 14
LABEL_CHARS_MAX: Final = 26
TICKS_MAX: Final = 8

TICK_SECONDS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 604_800, 2_592_000),
)

KINDS: Final[dict[Kind, str]] = {
    "step": "step",
    "model": "model call",
    "tool": "tool call",
    "failed": "failed",
    "blocked": "did not run",
    "approval": "waits for a person",
    "subagent": "subagent",
    "under_way": "under way",
}
"""What the colours mean, in the order of the legend."""

STYLE: Final = """
.timeline{--ink:#1f2430;--faint:#6b7280;--grid:#e5e7eb;--step:#e2e8f0;--model:#4f6bed;--tool:#1f9d6b;--failed:#d64545;
--blocked:#9aa2b1;--approval:#e0a100;--subagent:#8b5cf6;--under_way:#22a3c9;font:12px system-ui,sans-serif}
@media (prefers-color-scheme:dark){.timeline{--ink:#e6e9f0;--faint:#98a1b3;--grid:#2b313d;--step:#333b4a;
--model:#7f95ff;--tool:#3ec28f;--failed:#f07070;--blocked:#727c8e;--approval:#f2bd3a;--subagent:#ae8bff;
--under_way:#4cc4e8}}
.timeline text{fill:var(--ink)}
.timeline .faint{fill:var(--faint)}
.timeline .grid{stroke:var(--grid)}
.timeline .step{fill:var(--step)}
.timeline .model{fill:var(--model)}
.timeline .tool{fill:var(--tool)}
.timeline .failed{fill:var(--failed)}
.timeline .blocked{fill:var(--blocked)}
.timeline .approval{fill:var(--approval)}
.timeline .subagent{fill:var(--subagent)}
.timeline .under_way{fill:var(--under_way)}
"""


def drawn(timeline: Timeline) -> Element:
    """Return the picture; every bar has a title that tells what it is, from when and how long."""
    height = TOP + ROW * len(timeline.rows) + 30
    scale = _Scale(timeline)
    return element(
        "svg",
        styled(STYLE),
        element("title", "Timeline"),
        _legend(timeline),
        scale.grid(height),
        (each for place, row in enumerate(timeline.rows) for each in _row(row, TOP + ROW * place, scale)),
        _note(timeline, height),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height}",
        class_="timeline",
        role="img",
        width="100%",
    )


class _Scale:
    """Where a moment stands in the picture."""

    def __init__(self, timeline: Timeline) -> None:
        self._began = timeline.began
        self.ended = timeline.ended
        self._seconds = max((timeline.ended - timeline.began).total_seconds(), 0.001)

    def x(self, at: datetime) -> float:
        since = (at - self._began).total_seconds()
        return LABELS + PLOT * min(1.0, max(0.0, since / self._seconds))

    def grid(self, height: int) -> Iterator[Element]:
        """Yield the lines of the axis, with the time since the beginning on them."""
        fits = (each for each in TICK_SECONDS if self._seconds / each <= TICKS_MAX)
        tick = next(fits, self._seconds / TICKS_MAX)
        for place in range(int(self._seconds / tick) + 1):
            x = f"{LABELS + PLOT * place * tick / self._seconds:.1f}"
            yield element("line", x1=x, x2=x, y1=TOP - 6, y2=height - 26, class_="grid")
            label = "0" if place == 0 else duration(place * tick)
            yield element("text", label, x=x, y=TOP - 12, text_anchor="middle", class_="faint")


def _row(row: Row, y: int, scale: _Scale) -> Iterator[Element]:
    label = row.label if len(row.label) <= LABEL_CHARS_MAX else row.label[: LABEL_CHARS_MAX - 1] + "…"
    faint = None if row.depth == 0 else "faint"
    yield element("text", label, x=8 + INDENT * row.depth, y=y + 14, class_=faint)
    for bar in row.bars:
        yield _bar(bar, y, scale)
    if row.bars:
        last = row.bars[-1] if row.bars[0].kind != "step" else row.bars[0]
        ended = max(bar.ended or scale.ended for bar in row.bars)
        elapsed = duration(((last.ended or scale.ended) - last.began).total_seconds())
        yield element("text", elapsed, x=f"{scale.x(ended) + 6:.1f}", y=y + 14, class_="faint")


def _bar(bar: Bar, y: int, scale: _Scale) -> Element:
    ended = bar.ended or scale.ended
    x, until = scale.x(bar.began), scale.x(ended)
    elapsed = duration((ended - bar.began).total_seconds())
    title = f"{bar.about}\nfrom {moment(bar.began)}, {elapsed}{'' if bar.ended else ' so far'}"
    whole = bar.kind == "step"
    return element(
        "rect",
        element("title", title),
        x=f"{x:.1f}",
        y=y + (2 if whole else (ROW - BAR) // 2),
        width=f"{max(NARROW, until - x):.1f}",
        height=ROW - 4 if whole else BAR,
        rx=3,
        class_=bar.kind,
    )


def _legend(timeline: Timeline) -> Iterator[Element]:
    """Yield what the colours mean that are in the picture."""
    there = {bar.kind for row in timeline.rows for bar in row.bars}
    x = LABELS
    for kind, words in KINDS.items():
        if kind in there:
            yield element("rect", x=x, y=6, width=12, height=12, rx=3, class_=kind)
            yield element("text", words, x=x + 17, y=16, class_="faint")
            x += 34 + 7 * len(words)


def _note(timeline: Timeline, height: int) -> Element | None:
    if not timeline.left_out:
        return None
    note = f"{timeline.left_out:,} further rows are not drawn"
    return element("text", note, x=LABELS, y=height - 8, class_="faint")
