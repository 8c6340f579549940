"""What a worker logs of failed attempts: one line each. Failures with a type of ours need no traceback."""

from __future__ import annotations

import logging
import sys

from temporalio.exceptions import ApplicationError


class OneLine(logging.Filter):
    """Puts a typed failure at the end of its line and drops the traceback; anything else keeps it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; never drop it."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ApplicationError):
            record.msg, record.args = f"{record.getMessage()}: {error}", ()
            record.exc_info = record.exc_text = None
        return True


def log_to_stderr() -> None:
    """Send warnings and worse to standard error, for the whole process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(OneLine())
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", handlers=[handler])
