"""Writes the rows of limits and of stop reasons in the documents anew: `make tables`. The rest of a page stays."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import StopReason
from holdfast.core.agent.budget import LIMITS, SECONDS, ExecutionBudget
from holdfast.core.wire.metric_definitions import BUDGET_USE

HERE: Final = Path(__file__).resolve().parent.parent

GIVEN_BY: Final[Mapping[StopReason, str]] = {
    StopReason.ERROR: "an error that prevents continuation (2.3)",
    StopReason.STOP_REQUESTED: "a hook, or a tool that returns `StopRun`",
    StopReason.RETRY_LIMIT: "too many tries of a tool (3.13), answers of the wrong form (7.7) or refused (3.17)",
    StopReason.FINISH_REASON: "an answer without tool calls that ended with one of the definition's `finish_reasons`",
    StopReason.USER_REQUESTED: "a stop from outside",
    StopReason.COMPLETED: "hooks alone; a natural end has no signal",
    StopReason.UNKNOWN: "a hook with a reason not listed here",
}
"""What gives the reasons that are no limit's."""

LINKS: Final[Mapping[str, str]] = {
    "every attempt that reached the endpoint": "models.md#what-a-call-used",
    "prices": "#prices",
}
"""Where the words for what counts are explained."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a page that follow one another and no others look like, and what they are."""

    page: str
    looks: str
    made: Callable[[], Iterator[str]]


def reasons() -> Iterator[str]:
    """Yield the stop reasons, the highest first."""
    limits = {reason: [limit.field for limit in LIMITS if limit.reason is reason] for reason in StopReason}
    limits[SECONDS.reason].append("deadline")
    for reason in sorted(StopReason, key=lambda each: each.rank):
        given_by = ", ".join(f"`{field}`" for field in limits[reason]) or GIVEN_BY[reason]
        yield f"| {reason.rank} | `{reason}` | {_yes(reason.forced)} | {_yes(reason.overridable)} | {given_by} |"


def limits_counted() -> Iterator[str]:
    """Yield what counts toward each limit, and how a run ends that reaches it."""
    for limit in LIMITS:
        counts = limit.counts
        for words, place in LINKS.items():
            counts = counts.replace(words, f"[{words}]({place})")
        yield f"| `{limit.field}` | {counts} | `{limit.reason}` |"


def limits_in_definitions() -> Iterator[str]:
    """Yield the fields of a definition that are limits, in the order in which it has them."""
    fields = list(ExecutionBudget.model_fields)
    for limit in sorted(LIMITS, key=lambda limit: fields.index(limit.field)):
        yield f"| `budget.{limit.field}` | {limit.counts} | unlimited |"


def options_of_limits() -> Iterator[str]:
    """Yield the options of `holdfast run` and `holdfast session change`."""
    for limit in LIMITS:
        yield f"| `--max-{_dashed(limit.name)}` | the agent's | at most so many {limit.unit} | `run`, `session` |"


def metric_of_limits() -> Iterator[str]:
    """Yield the metric that has every limit as a label."""
    kinds = ", ".join(f"`{limit.name}`" for limit in LIMITS)
    yield f"| `{BUDGET_USE.name}` | histogram | `agent`, `kind` ({kinds}) | at the end, used by limit; 1 is all of it |"


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _yes(value: bool) -> str:  # noqa: FBT001  # a cell of a table
    return "yes" if value else "no"


ROWS: Final = (
    Rows("spec.md", r"\| \d+ \| `\w+` \| (yes|no) \| (yes|no) \| .* \|", reasons),
    Rows("budgets-and-stopping.md", r"\| `max_\w+` \| .* \| `\w+` \|", limits_counted),
    Rows("agents.md", r"\| `budget\.max_\w+` \| .* \|", limits_in_definitions),
    Rows("operate.md", rf"\| `{BUDGET_USE.name}` \| .* \|", metric_of_limits),
    Rows("cli.md", r"\| `--max-[\w-]+` \| the agent's \| .* \|", options_of_limits),
)


def written(page: str, rows: Rows) -> str:
    """Return the text of `page` with those rows made anew; ValueError where they do not stand in one place."""
    found = list(re.finditer(rf"(?:^{rows.looks}\n)+", page, re.MULTILINE))
    if len(found) != 1:
        raise ValueError(f"{rows.page} has {len(found)} groups of rows like {rows.looks!r}, it needs one")
    begin, end = found[0].span()
    return page[:begin] + "".join(f"{row}\n" for row in rows.made()) + page[end:]


def main() -> None:
    """Write every page."""
    for rows in ROWS:
        path = HERE / rows.page
        path.write_text(written(path.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
