"""The task both loops do: read some pages, one per step, then say so. Imports neither loop, so both may import it."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass
from typing import Final, Self

PROMPT: Final = "Read every page you are asked to read, one after the other, then say how many there were."
"""The system prompt of both agents."""

TOOL: Final = "read_page"
"""The one tool, by the same name in both loops."""


@dataclass(frozen=True, slots=True)
class Task:
    """`steps` steps of one model call and one tool call each, whose results have `page_bytes`; then one last answer.

    The numbers travel inside the question, so that one endpoint can play every task.
    """

    steps: int
    page_bytes: int

    @property
    def question(self) -> str:
        """What the agent is asked."""
        return f"read {self.steps} pages of {self.page_bytes} bytes"

    @property
    def answer(self) -> str:
        """What the agent must say in the end; a run that says anything else has not done the task."""
        return f"I have read {self.steps} pages of {self.page_bytes} bytes."

    @classmethod
    def parse(cls, question: str) -> Self:
        """Read the numbers back from a question."""
        _, steps, _, _, page_bytes, _ = question.split()
        return cls(steps=int(steps), page_bytes=int(page_bytes))


def page_text(page: int, size: int) -> str:
    """Return `size` bytes of ASCII that no compression makes much smaller, the same ones for the same page."""
    noise = random.Random(page).randbytes(size)  # noqa: S311  # repeatable noise, no secret
    return base64.b64encode(noise).decode("ascii")[:size]
