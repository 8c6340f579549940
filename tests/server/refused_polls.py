"""A tool that ends only where a test says so; once it has begun, the server refuses the next poll for calls like it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from temporalio.bridge.worker import Worker

from holdfast import tool

BEGUN, ENDS = "begun", "ends"
FOLDER = "HOLDFAST_TEST_FOLDER"
REFUSED = "Poll failure: Unhandled grpc error when polling: permission denied"

_poll = Worker.poll_activity_task
_holding = list[Worker]()
"""The part of the worker that has the call, until its poll is refused."""


def _folder() -> Path:
    return Path(os.environ[FOLDER])


async def _refused_once(self: Worker) -> Any:  # noqa: ANN401  # what the SDK's own returns
    polling = asyncio.ensure_future(_poll(self))
    while not polling.done():
        await asyncio.wait([polling], timeout=0.1)
        if self in _holding and (_folder() / BEGUN).exists():
            _holding.remove(self)
            raise RuntimeError(REFUSED)
    task = await polling
    if task.start.activity_type == "hold":
        _holding.append(self)
    return task


if FOLDER in os.environ:  # in the worker alone: the test, which imports this for its names, has workers of its own
    Worker.poll_activity_task = _refused_once  # type: ignore[method-assign]  # no server of ours takes rights away


@tool
async def hold() -> str:
    """Last for ever, whoever cancels it, unless the test says that it is to end."""
    (_folder() / BEGUN).touch()
    while not (_folder() / ENDS).exists():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    return "held"
