"""The `run_hooks` activity: runs the hooks of one trigger in order. The core applies their changes."""

from __future__ import annotations

from collections.abc import Iterable

from temporalio import activity

from holdfast.core.agent.hooks import Hook
from holdfast.core.wire.contracts import RUN_HOOKS_ACTIVITY, HooksRan, HooksRequest
from holdfast.runtime.hook_runner import run_hooks
from holdfast.runtime.model_call_changes import ModelCallCheck
from holdfast.runtime.open_resources import NO_RESOURCES, OpenResources


class Hooks:
    """The hooks that this worker offers."""

    def __init__(
        self, hooks: Iterable[Hook], resources: OpenResources = NO_RESOURCES, check: ModelCallCheck | None = None
    ) -> None:
        self._hooks = {hook.name: hook for hook in hooks}
        self._resources = resources
        self._check = check

    @activity.defn(name=RUN_HOOKS_ACTIVITY)
    async def run(self, request: HooksRequest) -> HooksRan:
        """Run the requested hooks; a failed hook is part of the result, with its name."""
        # apart from the event loop, which heartbeats and calls the model
        room, resources, check = request.changes_bytes_max, self._resources, self._check
        runs = await run_hooks(
            self._hooks, request.hooks, request.context, room, apart=True, resources=resources, check=check
        )
        return HooksRan(runs=tuple(runs))
