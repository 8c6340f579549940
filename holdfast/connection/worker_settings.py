"""Settings of a worker process: read once from flags and environment into one frozen value."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from holdfast.core.base.errors import InvalidInput

ENVIRONMENT_PREFIX: Final = "HOLDFAST_"


def _within(default: float, lowest: float, highest: float, about: str) -> Any:  # noqa: ANN401  # what dataclasses.field gives
    return field(default=default, metadata={"lowest": lowest, "highest": highest, "about": about})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Slots, pollers, cache and times of one worker process.

    A slot is one call at work; model calls and tool calls have slots of their own, so that no number of tools that
    hang keeps a model call from beginning. Calls wait for networks, not for this machine's cores: slots are cheap.
    Each has the flag and the environment variable of its name (`--tool-slots`, `HOLDFAST_TOOL_SLOTS`).
    """

    inference_slots: int = _within(500, 1, 100_000, "model calls at once")
    tool_slots: int = _within(500, 1, 100_000, "tool calls at once")
    waiting_slots: int = _within(100, 1, 100_000, "tool calls at once beyond those; further ones wait in a queue")
    local_slots: int = _within(500, 1, 100_000, "hooks and `local` tools at once")
    workflow_slots: int = _within(100, 2, 10_000, "workflow tasks at once")
    cached_runs: int = _within(2_000, 0, 1_000_000, "runs kept in memory; beyond that a task replays its whole history")
    workflow_pollers: int = _within(5, 2, 100, "requests for workflow tasks at once")
    activity_pollers: int = _within(2, 1, 100, "requests for model calls or tool calls at once")
    """Few: each that a frozen worker has open takes an attempt of a call with it."""
    grace_seconds: float = _within(10.0, 0, 3_600, "how long calls under way may take to end after the first signal")
    server_wait_seconds: float = _within(300.0, 0, 86_400, "how long a starting worker waits for a server that is away")
    sticky_seconds: float = _within(5.0, 0.1, 60, "how long runs wait for this worker if it is lost with its guardian")
    heartbeat_throttle_seconds: float = _within(0.25, 0.05, 1.0, "seconds between two heartbeats, at least")

    def __post_init__(self) -> None:
        """Refuse what is out of bounds."""
        for each in fields(self):
            value, lowest, highest = getattr(self, each.name), each.metadata["lowest"], each.metadata["highest"]
            if not lowest <= value <= highest:
                raise InvalidInput(f"{each.name} is {value:,}; choose {lowest:,} to {highest:,}")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, **options: str | None) -> WorkerSettings:
        """Return the settings; an option, named as its field, wins over its variable. Raises InvalidInput."""
        chosen: dict[str, Any] = {}
        for each in fields(cls):
            text = options.get(each.name) or environment.get(f"{ENVIRONMENT_PREFIX}{each.name.upper()}")
            if text:
                chosen[each.name] = _number(each.name, text, whole=isinstance(each.default, int))
        return cls(**chosen)


def _number(name: str, text: str, *, whole: bool) -> float:
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInput(f"{name} is {text[:40]!r}; give {'a whole number' if whole else 'a number of seconds'}")
    return value
