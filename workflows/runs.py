"""What holds for a run of any of our workflows: which faults end it, and when it is to go on in a new one."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from holdfast.core.errors import HoldfastError
    from holdfast.core.limits import CONTINUE_BYTES

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


def is_long(continue_events: int) -> bool:
    """Return whether the run's history is so long, in events or in bytes, that it is to go on in a new run."""
    info = workflow.info()
    if info.get_current_history_length() >= continue_events:
        return True
    return info.get_current_history_size() >= CONTINUE_BYTES or info.is_continue_as_new_suggested()
