"""A worker's log of failed attempts: one short line each. Typed failures need no traceback."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any, Final

from temporalio import activity, workflow
from temporalio.exceptions import ApplicationError

from holdfast.core.base.safe_text import clamped
from holdfast.runtime.call_reports import LOGGER as TOOL_LOGGER

LINE_CHARS_MAX: Final = 400
"""The longest line about a typed failure, in characters."""


class OneLine(logging.Filter):
    """Reduces a typed failure to one line with the call and the cause; anything else keeps its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; never drop it."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ApplicationError):
            text = f"{_place(record)}{error.type or type(error).__name__}: {error.message}"
            record.msg, record.args = clamped(" ".join(text.split()), LINE_CHARS_MAX), ()
            record.exc_info = record.exc_text = None
        return True


def _place(record: logging.LogRecord) -> str:
    """Return which activity of which workflow failed; the SDK attaches that to the record."""
    details: Mapping[str, Any] | None = getattr(record, "temporal_activity", None)
    if not details:
        return ""
    whose = f"of {details['workflow_id']}" if details["workflow_id"] else "for no run"  # such as the doctor's
    return f"{details['activity_type']} {whose}, attempt {details['attempt']}, failed: "


def log_to_stderr() -> None:
    """Log warnings and errors of the whole process to standard error, and what tools log."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(OneLine())
    TOOL_LOGGER.setLevel(logging.INFO)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", handlers=[handler])
    activity.logger.activity_info_on_message = False  # half a screen of ids; our line has those that are needed
    workflow.logger.workflow_info_on_message = False
