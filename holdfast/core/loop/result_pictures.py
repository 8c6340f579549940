"""Which files of a step's results the model is shown as pictures. Decides nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.conversation.attachments import PICTURE_BYTES_MAX, Attachment
from holdfast.core.conversation.steps import ToolExecution

PICTURES_STEP_MAX: Final = 8
"""The most pictures of one step: each can be as long as a chapter for the model."""


def pictures_of(executions: Iterable[ToolExecution]) -> tuple[Attachment, ...]:
    """Return the pictures that the calls have attached, each once: the first ones that are not too large."""
    files = (each for execution in executions for each in execution.attachments)
    fitting = (each for each in files if each.is_picture and 0 < each.size <= PICTURE_BYTES_MAX)
    return tuple({each.digest: each for each in fitting}.values())[:PICTURES_STEP_MAX]
