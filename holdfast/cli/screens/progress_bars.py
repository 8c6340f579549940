"""Bars, spinners and short figures, the same for `watch` and `top`. Asks nothing and prints nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.text import Text

from holdfast.core.agent.budget import LIMITS
from holdfast.core.conversation.amounts import dollars, duration, short_dollars
from holdfast.view.budget_use import Share

FULL_FROM: Final = 0.9
"""From this share on a limit is shown in red, and"""

MUCH_FROM: Final = 0.7
"""from this one in yellow."""

LABEL_CHARS: Final = 1 + max(len(name) for name in (*(limit.name for limit in LIMITS), "deadline"))
"""The longest name of a limit, and a space."""

SPINS_PER_SECOND: Final = 8


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs that a terminal can show."""

    used: str
    free: str
    spinner: str
    succeeded: str
    failed: str
    refused: str
    waiting: str
    requested: str
    branch: str
    last: str
    trunk: str
    more: str


FINE: Final = Glyphs("█", "░", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "✓", "✗", "⊘", "?", "·", "├ ", "└ ", "│ ", "…")
PLAIN: Final = Glyphs("#", ".", "|/-\\", "+", "x", "-", "?", ".", "|-", "`-", "| ", "...")
"""For terminals that know ASCII alone."""


def glyphs_of(console: Console) -> Glyphs:
    """Return the signs that this console can print."""
    return FINE if console.encoding.lower().startswith("utf") else PLAIN


def spinner(glyphs: Glyphs, seconds: float) -> str:
    """Return the sign of something under way at a moment."""
    return glyphs.spinner[int(seconds * SPINS_PER_SECOND) % len(glyphs.spinner)]


def bar(share: Share, width: int, glyphs: Glyphs) -> Text:
    """Return a bar of `width` signs: one is full from half of it on, the last only when nothing is left."""
    full = int(share.fraction * width + 0.5)
    if share.fraction < 1:
        full = min(full, width - 1)
    colour = "red" if share.fraction >= FULL_FROM else "yellow" if share.fraction >= MUCH_FROM else "green"
    return Text.assemble((glyphs.used * full, colour), (glyphs.free * (width - full), "dim"))


def figures(share: Share) -> str:
    """Return what is used of a limit, and how much that may be."""
    match share.limit:
        case "cost":
            return f"{short_dollars(share.used, share.unpriced)} / {dollars(share.most)}"
        case "seconds" | "deadline":
            return f"{duration(share.used)} / {duration(share.most)}"
        case _:
            return f"{share.used:,.0f} / {share.most:,.0f}"


def share_line(share: Share, width: int, glyphs: Glyphs, *, with_subagents: bool) -> Text:
    """Return a limit with its bar; `with_subagents`: steps of theirs are among those that count."""
    about = " with subagents" if with_subagents and share.limit == "steps" else ""
    return Text.assemble(
        (f"{share.limit:{LABEL_CHARS}}", "dim"), bar(share, width, glyphs), f" {figures(share)}", (about, "dim")
    )
