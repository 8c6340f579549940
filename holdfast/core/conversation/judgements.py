"""`Judgement`: what came of judging a final answer, as its step keeps it."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import AwareDatetime, Field

from holdfast.core.base.frozen import Frozen
from holdfast.core.base.usage import Usage

ANSWER_REFUSED: Final = "AnswerRefused"
"""The type of the error of a step whose answer was refused: the model is asked again, or the run stops."""

ANSWER_UNJUDGED: Final = "AnswerUnjudged"
"""The type of the error of a step whose answer was not judged, and so does not count."""


class Judgement(Frozen):
    """Who judged an answer, and how: `unjudged` while that is under way and where it failed, for the reason `why`.

    `usage` and `cost` (US dollars, without the `unpriced` models) are the judge's.
    """

    judge: str
    outcome: Literal["accepted", "refused", "unjudged"] = "unjudged"
    reasons: tuple[str, ...] = ()
    why: str = ""
    started_at: AwareDatetime
    completed_at: AwareDatetime | None = None
    usage: Usage = Usage()
    cost: float = Field(default=0.0, ge=0)
    unpriced: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """Who judged, how and why, in a line."""
        return f"judged by {self.judge}: {'; '.join(filter(None, (self.outcome, *self.reasons, self.why)))}"
