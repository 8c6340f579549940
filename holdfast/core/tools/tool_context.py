"""`ToolContext`: what a tool may know about the call it serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know about the call it serves.

    `idempotency_key` is the same for every attempt of one call, also after a crash, a retry or a restart: hand it to
    whatever the tool changes. `attempt` counts from 1. `metadata` are the agent's, with what its run was given, as they
    stood when the call was asked for.
    """

    execution_id: str
    idempotency_key: str
    attempt: int
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
