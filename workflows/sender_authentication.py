"""`SenderCheck`: where payloads are encrypted, refuses signals and updates without one: anybody could have sent them.

The codec refuses payloads that are not encrypted. But `stop`, `clear` and `close` mean something without a payload, so
our clients send an encrypted null with them. Queries need no check: their answers are encrypted.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from holdfast.core.base.errors import PayloadRefused

UNSEALED = "it has no encrypted payload, so its sender cannot be verified; use a client that has the key file"


class SenderCheck(Interceptor):
    """The worker's interceptor; where nothing is encrypted it lets everything pass."""

    def __init__(self, *, sealed: bool) -> None:
        self._sealed = sealed

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002  # the SDK's name
    ) -> type[WorkflowInboundInterceptor] | None:
        """Return the interceptor for each run's handlers, if any."""
        return _Inbound if self._sealed else None


class _Inbound(WorkflowInboundInterceptor):
    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002  # the SDK's name
        """Drop a signal without a payload."""
        if not input.args:
            workflow.logger.warning("the signal %s was not accepted: %s", input.signal, UNSEALED)
        else:
            await super().handle_signal(input)

    def handle_update_validator(self, input: HandleUpdateInput) -> None:  # noqa: A002  # the SDK's name
        """Refuse an update before it is in the history."""
        _check(input)
        super().handle_update_validator(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002, ANN401  # as the SDK has it
        """Refuse an update that has no validator."""
        _check(input)
        return await super().handle_update_handler(input)


def _check(update: HandleUpdateInput) -> None:
    if not update.args:
        text = f"the update {update.update} is refused: {UNSEALED}"
        raise ApplicationError(text, type=PayloadRefused.__name__) from PayloadRefused(text)
