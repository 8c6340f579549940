"""An exception as data: what a record, a message and the history hold of it."""

from __future__ import annotations

from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.model_retry import MODEL_RETRY, ModelRetry
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.steps import ErrorRecord


def error_record(error: BaseException, source: str) -> ErrorRecord:
    """Return `error` as data; survives errors whose text is huge, unencodable or itself raises."""
    try:
        text = str(error)
    except BaseException as second:  # noqa: BLE001  # a broken __str__ must not hide the first error
        text = f"(its text cannot be read: {type(second).__name__})"
    kind = error.kind if isinstance(error, ModelFailure) else type(error).__name__
    if isinstance(error, ModelRetry):
        kind = MODEL_RETRY  # also of a class derived from it
    return ErrorRecord(type=kind, message=clamped(text, ERROR_CHARS_MAX), source=source)
