"""`CallReports`: what a tool reports during one attempt: progress, log lines, changes of the metadata, files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Final

from pydantic import JsonValue

from holdfast.core.agent.user_metadata import checked_metadata
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.tools.call_context import ToolProgress, bounded_progress
from holdfast.core.tools.tool_context import FilePath, ToolContext
from holdfast.runtime.files.attachments import AttachedFiles

LOGGER: Final = logging.getLogger("holdfast.tool")
"""Has what tools log with `ToolContext.log`."""

LOG_CHARS_MAX: Final = 2_000
"""The longest line that a tool logs, in characters, fields included."""

PROGRESS_SECONDS: Final = 0.25
"""The least time between two reports that are passed on; of those between, the latest counts."""

ProgressListener = Callable[[ToolProgress], None]
"""Receives progress reports on the event loop of whoever runs the tool."""


class CallReports:
    """What one attempt reports; called from the tool's thread or loop. `progress_listener` is called on this loop."""

    def __init__(self, tool: str, context: ToolContext, progress_listener: ProgressListener | None) -> None:
        self._tool, self._context, self._listener = tool, context, progress_listener
        self._loop = asyncio.get_running_loop()
        self._lock = Lock()
        self._latest: ToolProgress | None = None
        self._passing_on = False
        """Whether a delivery is scheduled already: a tool that reports in a tight loop must not flood this loop."""
        self._over = False
        self._changes: Mapping[str, JsonValue] = {}
        self.files = AttachedFiles()

    def progress(self, text: str, fraction: float | None) -> None:
        """Take a report; it is passed on soon."""
        if self._listener is None:
            return
        line, share = bounded_progress(text, fraction)
        call = self._context
        report = ToolProgress(
            call_id=call.call_id, tool=self._tool, step=call.step, attempt=call.attempt, text=line, fraction=share
        )
        with self._lock:
            self._latest = report
            if self._passing_on or self._over:
                return
            self._passing_on = True
        with suppress(RuntimeError):  # the loop is closed: nobody awaits the call any more
            self._loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        with self._lock:
            report, self._latest = self._latest, None
            self._passing_on = report is not None and not self._over
        if report is not None and self._passing_on and self._listener is not None:
            self._listener(report)
            self._loop.call_later(PROGRESS_SECONDS, self._pass_on)

    def log(self, message: str, fields: Mapping[str, object]) -> None:
        """Write one line, with the ids of the run and the call behind it."""
        ids = {"execution_id": self._context.execution_id, "call_id": self._context.call_id}
        facts = {**fields, **ids, "attempt": self._context.attempt}
        with suppress(Exception):  # a field's repr can raise anything, and logging must not fail a call
            text = " ".join((f"{self._tool}: {message}", *(f"{name}={value}" for name, value in facts.items())))
            LOGGER.info("%s", " ".join(clamped(text, LOG_CHARS_MAX).split()))

    def set_metadata(self, changes: Mapping[str, JsonValue]) -> None:
        """Add changes to those so far. Raises InvalidInput; those before stay then."""
        with self._lock:
            self._changes = checked_metadata({**self._changes, **changes})

    def attach(self, content: bytes | str | FilePath, name: str | None, media_type: str | None) -> Attachment:
        """Take a file, to be stored when the call has ended well. Raises InvalidInput."""
        return self.files.add(content, name, media_type)

    def ended(self) -> Mapping[str, JsonValue]:
        """Return the changes; whatever is reported from now on is dropped."""
        with self._lock:
            self._over = True
            return self._changes
