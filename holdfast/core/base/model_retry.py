"""`ModelRetry`: what a tool raises to have the model call it again in another way."""

from __future__ import annotations

from typing import Final

MODEL_RETRY: Final = "ModelRetry"
"""The type of the error of such a call."""


class ModelRetry(Exception):
    """Raised by a tool to tell the model what is wrong with its call: the text is the call's answer, as it stands.

    The call has failed, with an error of this type; no attempt of it is repeated, and under `errors: fatal` the run
    goes on. After `retries_max` steps in a row it becomes an ordinary error, `TooManyRetries`.
    """
