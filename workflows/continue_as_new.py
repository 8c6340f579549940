"""Rules for every workflow here: which errors fail it, when its input is refused, and when it continues as new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.workflow import ContinueAsNewVersioningBehavior

from holdfast.core.base.errors import FormNewer, HoldfastError, PayloadRefused
from holdfast.core.base.stored_forms import RUN_INPUT, StoredForm
from holdfast.core.wire.refused_start import RefusedStart

CONTINUE_BYTES: Final = 4 * 1024 * 1024
"""The history size at which a workflow continues as new: a step can bring some 2 MB, and Temporal warns at 10 MB."""

# Our own errors fail a run instead of repeating its task for ever. Not plain Exception: that would include the SDK's
# NondeterminismError, after which a run must wait for a worker with the right code.
FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    HoldfastError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class StartRefused(Exception):
    """The input of a replayed run is not encrypted as it should be. Not in FAULTS: its task fails and is retried."""


class NotForThisWorker(Exception):
    """A newer Holdfast wrote it. Not in FAULTS: the task is retried until a worker of that version has it."""


def check_start(start_input: object) -> None:
    """Fail the run at once, with the reason, if the codec refused its input: its starter does not have the key.

    A run with history began before there was a key: it waits for a worker without the key file, as it would for the
    right code. Its replay does the same, so an ended run stays ended. The input of a newer Holdfast fails no run.
    """
    if isinstance(start_input, Mapping):
        check_form(RUN_INPUT, cast("Mapping[str, object]", start_input))
    if not isinstance(start_input, RefusedStart):
        return
    if start_input.newer:
        raise NotForThisWorker(start_input.why)
    if workflow.unsafe.is_replaying():
        raise StartRefused(start_input.why) from PayloadRefused(start_input.why)
    why = PayloadRefused(start_input.why)  # in plain text, too: the starter may not have the key
    raise ApplicationError(start_input.why, type=PayloadRefused.__name__, non_retryable=True) from why


def check_form(form: StoredForm, data: str | Mapping[str, object]) -> None:
    """Fail the task, and not the run, where a newer Holdfast wrote what the workflow has to read."""
    try:
        form.check(data)
    except FormNewer as error:
        raise NotForThisWorker(error.message) from None


def newer_build() -> ContinueAsNewVersioningBehavior | None:
    """Return how a run that continues as new comes to the build that is current; none where its own is, or it has none.

    Each task's start records whether that is another build, so a replay decides alike; no history of a worker without a
    build has it, and their commands stay as they were.
    """
    if workflow.info().is_target_worker_deployment_version_changed():
        return ContinueAsNewVersioningBehavior.AUTO_UPGRADE
    return None


def is_long(continue_events: int) -> bool:
    """Return whether the run's history is long enough, in events or bytes, to continue as new."""
    info = workflow.info()
    if info.get_current_history_length() >= continue_events:
        return True
    return info.get_current_history_size() >= CONTINUE_BYTES or info.is_continue_as_new_suggested()
