"""What a model call used, as the provider reported it. Holds no limits: those are `budget`."""

from __future__ import annotations

from pydantic import Field

from holdfast.core.frozen import Frozen


class Usage(Frozen):
    """Tokens in and out. Adding two gives their sum."""

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)

    @property
    def total_tokens(self) -> int:
        """Input and output together: what `max_tokens` limits."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )
