"""`StepBack`: one return of an agent to an earlier step of its own, as its tool call asks for it and as it is kept."""

from __future__ import annotations

from typing import Final

from pydantic import AwareDatetime, Field, ValidationError

from holdfast.core.base.frozen import Frozen
from holdfast.core.base.json_values import JsonMap
from holdfast.core.base.validation_errors import problems_text

STEPS_BACK_MAX: Final = 5
"""The most returns of one execution: an agent that begins anew again and again would spend its budget on it."""

NOTE_CHARS_MAX: Final = 4_000
"""The longest note of an agent to itself, in characters."""


class StepBackRequest(Frozen):
    """What a call asks for."""

    step: int = Field(ge=1, description="the step to go back to: it and all after it are left out")
    note: str = Field(
        min_length=1, max_length=NOTE_CHARS_MAX, pattern=r"\S", description="what you learned, and what to do instead"
    )


class StepBack(Frozen):
    """A return in step `from_step` to the beginning of `to_step`: those steps and all between are left out."""

    from_step: int = Field(ge=1)
    to_step: int = Field(ge=1)
    note: str
    at: AwareDatetime

    @property
    def left_out(self) -> range:
        """The numbers of the steps that the model does not see any more."""
        return range(self.to_step, self.from_step + 1)

    @property
    def line(self) -> str:
        """It in a line."""
        return f"went back to step {self.to_step}; steps {self.to_step} to {self.from_step} are left out: {self.note}"


def step_back_of(arguments: JsonMap) -> tuple[StepBackRequest | None, str]:
    """Return what a call asks for, or none and what is wrong with it."""
    try:
        return StepBackRequest.model_validate(dict(arguments)), ""
    except ValidationError as error:
        return None, problems_text(error)
