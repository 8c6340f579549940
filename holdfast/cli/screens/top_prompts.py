"""The confirmation prompts of `holdfast top`: each shows all of what it asks about, and nothing is the default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from holdfast.core.base.bounds import REASON_CHARS_MAX


@dataclass(frozen=True, slots=True)
class Answer:
    """What was decided: about which of the things that were asked about, and why."""

    place: int
    reason: str


class Question(ModalScreen[Answer | None]):
    """Asks about one thing, or one of several to choose from; Enter says yes, Escape goes back.

    `reason` is what the reason is for; without it none is asked.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "back", "go back"),
        ("enter", "yes", "yes"),
        ("ctrl+n", "next", "the next one"),
    ]
    CSS = """
    Question { align: center middle; }
    #box { width: 90%; max-width: 100; height: auto; max-height: 90%; border: round $accent; padding: 0 1; }
    #scroll { height: auto; max-height: 14; }
    #keys { color: $text-muted; }
    """

    def __init__(self, question: str, about: Sequence[Text], *, reason: str = "") -> None:
        super().__init__()
        self._question = question
        self._about = about
        self._reason = reason
        self._place = 0

    def compose(self) -> ComposeResult:
        """Lay it out."""
        with Vertical(id="box"):
            yield Static(Text(self._question, "bold"), id="asked")
            with VerticalScroll(id="scroll"):
                yield Static(id="about")
            if self._reason:
                yield Input(placeholder=self._reason, max_length=REASON_CHARS_MAX, id="reason")
            more = f", Ctrl-N the next of {len(self._about)}" if len(self._about) > 1 else ""
            yield Static(Text(f"Enter: yes, Escape: no{more}"), id="keys")

    def on_mount(self) -> None:
        """Show the first thing."""
        self._show()
        if self._reason:
            self.query_one("#reason", Input).focus()

    def _show(self) -> None:
        self.query_one("#about", Static).update(self._about[self._place])

    def on_input_submitted(self, typed: Input.Submitted) -> None:
        """Take Enter in the reason as a yes."""
        typed.stop()
        self.action_yes()

    def action_yes(self) -> None:
        """Answer."""
        reason = self.query_one("#reason", Input).value.strip() if self._reason else ""
        self.dismiss(Answer(self._place, reason))

    def action_back(self) -> None:
        """Do nothing."""
        self.dismiss(None)

    def action_next(self) -> None:
        """Look at the next thing."""
        self._place = (self._place + 1) % len(self._about)
        self._show()
