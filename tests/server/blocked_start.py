"""A worker of a test's own that stands still at one place of its start, until the test lets it go on."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from temporalio.bridge.services_generated import WorkflowService
from temporalio.client import Client

from holdfast import resource, tool

FOLDER, PLACE = "HOLDFAST_TEST_FOLDER", "HOLDFAST_TEST_PLACE"
RESOURCE, SINK, NOTES = "resource", "sink", "notes"
GOES_ON = "goes-on"


def reached(place: str) -> str:
    """What the worker prints where it stands still."""
    return f"stands still at its {place}"


async def _stand_still(place: str) -> None:
    if os.environ.get(PLACE) == place:
        sys.stdout.write(f"{reached(place)}\n")
        sys.stdout.flush()
        while not (Path(os.environ[FOLDER]) / GOES_ON).exists():  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(0.05)


class Line:
    """A resource."""


@resource
async def line() -> AsyncIterator[Line]:
    await _stand_still(RESOURCE)
    yield Line()


@tool
async def use(held: Line) -> str:
    """Use the line."""
    return f"used {type(held).__name__}"


_start, _describe = Client.start_workflow, WorkflowService.describe_task_queue


async def _held_start(*given: Any, **named: Any) -> Any:  # noqa: ANN401  # whatever it takes
    await _stand_still(SINK)
    return await _start(*given, **named)


async def _held_describe(*given: Any, **named: Any) -> Any:  # noqa: ANN401  # whatever it takes
    await _stand_still(NOTES)
    return await _describe(*given, **named)


if FOLDER in os.environ:  # in the worker alone: the test imports this for its names
    Client.start_workflow = _held_start  # type: ignore[method-assign]  # a real server is lost here only by chance
    WorkflowService.describe_task_queue = _held_describe  # type: ignore[method-assign]
