"""What a worker's log says of failures."""

from __future__ import annotations

import logging

import pytest
from temporalio.exceptions import ApplicationError

from activities.log_format import LINE_CHARS_MAX, OneLine, log_to_stderr

PLACE = {"activity_type": "resolve_tools", "workflow_id": "run-1", "attempt": 1, "namespace": "default"}


def record_of(error: Exception, **extra: object) -> logging.LogRecord:
    raised = (type(error), error, None)
    record = logging.makeLogRecord({"msg": "Completing activity as failed", "exc_info": raised, **extra})
    assert OneLine().filter(record)
    return record


def test_a_typed_failure_is_one_short_line_that_names_its_call() -> None:
    record = record_of(ApplicationError("no tool\n'multipy'", type="InvalidInput"), temporal_activity=PLACE)
    assert record.getMessage() == "resolve_tools of run-1, attempt 1, failed: InvalidInput: no tool 'multipy'"
    assert record.exc_info is None
    long = record_of(ApplicationError("x" * 5_000), temporal_activity=PLACE)
    assert len(long.getMessage()) <= LINE_CHARS_MAX


def test_any_other_failure_keeps_its_traceback() -> None:
    assert record_of(ValueError("a fault of ours"), temporal_activity=PLACE).exc_info is not None


@pytest.mark.parametrize("extra", [{}, {"temporal_activity": None}])
def test_a_failure_without_a_place_is_told_as_well(extra: dict[str, object]) -> None:
    assert record_of(ApplicationError("odd", type="Odd"), **extra).getMessage() == "Odd: odd"


def test_what_tools_log_is_shown_and_other_notes_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    root.handlers.clear()
    try:
        log_to_stderr()
        logging.getLogger("holdfast.tool").info("sent execution_id=e-1")
        logging.getLogger("holdfast.other").info("chatter")
    finally:
        root.handlers[:] = before
    assert capsys.readouterr().err == "INFO holdfast.tool: sent execution_id=e-1\n"
