"""What holds for a run of any of our workflows: which faults end it, and when it is to go on in a new one."""

from __future__ import annotations

from typing import Final

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.core.base.errors import HoldfastError, PayloadRefused
from holdfast.core.wire.refused_input import RefusedStart

CONTINUE_BYTES: Final = 4 * 1024 * 1024
"""So many bytes of history do it, too: Temporal warns at 10 MB and terminates at 50; a step can bring some 2 MB."""

# Faults of our own end a run with their cause instead of repeating its task for ever. Not plain Exception: that would
# take in the SDK's NondeterminismError, after which a run must wait for a worker with the right code.
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
    """The run's own input is not encrypted as it should be. None of FAULTS: its task fails, and is tried again."""


def check_start(given: object) -> None:
    """End the run at once, with the reason, where the codec has refused its input: nobody with the key has started it.

    A run that has been worked on already was begun before there was a key: it waits for a worker without the key file,
    as for the code of a release. Its replay does the same, so what was ended stays ended.
    """
    if not isinstance(given, RefusedStart):
        return
    if workflow.unsafe.is_replaying():
        raise StartRefused(given.why) from PayloadRefused(given.why)
    why = PayloadRefused(given.why)  # which is told in the clear, too: whoever started it may not have the key
    raise ApplicationError(given.why, type=PayloadRefused.__name__, non_retryable=True) from why


def is_long(continue_events: int) -> bool:
    """Return whether the run's history is so long, in events or in bytes, that it is to go on in a new run."""
    info = workflow.info()
    if info.get_current_history_length() >= continue_events:
        return True
    return info.get_current_history_size() >= CONTINUE_BYTES or info.is_continue_as_new_suggested()
