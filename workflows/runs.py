"""What holds for a run of any of our workflows: which faults end it, and when it is to go on in a new one."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from holdfast.core.errors import HoldfastError, PayloadRefused
    from holdfast.core.limits import CONTINUE_BYTES
    from holdfast.core.refused import RefusedStart

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
    """Raise StartRefused where the codec has refused the run's input.

    A worker without the key file, or with the right one, may take it: such a run waits, as for the code of a release.
    """
    if isinstance(given, RefusedStart):
        raise StartRefused(given.why) from PayloadRefused(given.why)


def is_long(continue_events: int) -> bool:
    """Return whether the run's history is so long, in events or in bytes, that it is to go on in a new run."""
    info = workflow.info()
    if info.get_current_history_length() >= continue_events:
        return True
    return info.get_current_history_size() >= CONTINUE_BYTES or info.is_continue_as_new_suggested()
