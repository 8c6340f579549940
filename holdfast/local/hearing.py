"""What has been heard of a model call so far: its answer as it comes, and what attempts that failed have used."""

from __future__ import annotations

from holdfast.core.inference import AnswerPart
from holdfast.core.limits import REASONING_BYTES_MAX, RESPONSE_BYTES_MAX
from holdfast.core.steps import InferenceResponse
from holdfast.core.texts import clamped_json
from holdfast.core.usage import NOTHING_USED, Usage

CANCELLED: str = "cancelled"
"""The finish reason of an answer whose call was cancelled: our own word, no provider's."""


class Heard:
    """Listens to one model call with all its attempts."""

    def __init__(self) -> None:
        self.failed_usage = NOTHING_USED
        """What the attempts that failed have used, as far as the endpoint said."""
        self._begin()

    def _begin(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._usage: Usage | None = None

    def take(self, part: AnswerPart) -> None:
        """Take in a part of the answer."""
        self._text.append(part.text)
        self._reasoning.append(part.reasoning)
        self._usage = part.usage or self._usage

    def failed(self, usage: Usage) -> None:
        """The attempt has failed: what had come of its answer is void; `usage` is what it is known to have used."""
        self.failed_usage += usage
        self._begin()

    @property
    def partial(self) -> InferenceResponse | None:
        """What has come of the answer; none when nothing is known of it."""
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        if not (text or reasoning or self._usage):
            return None
        return InferenceResponse(
            text=clamped_json(text, RESPONSE_BYTES_MAX),
            reasoning=clamped_json(reasoning, REASONING_BYTES_MAX),
            finish_reason=CANCELLED,
            usage=self._usage or NOTHING_USED,
        )
