"""Settings of traces: whether they are on, and whether they carry content. Imports no OpenTelemetry."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from holdfast.core.base.errors import InvalidInput, MissingPart
from holdfast.core.base.extras import install_command

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""OpenTelemetry's own variables that turn traces on; the exporter reads their values itself."""

PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""OpenTelemetry's own variable for prompts, answers and arguments in spans and log records."""

PARTS: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Whether spans are exported to a collector, and whether they carry `content`: prompts, answers and arguments."""

    traces: bool = False
    content: bool = False
    problem: str | None = None
    """Why traces are off although OpenTelemetry's variables turn them on."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Telemetry:
        """Read HOLDFAST_TELEMETRY (`otlp`, `off`) and OpenTelemetry's own variables.

        Raises InvalidInput for another value, and MissingPart if HOLDFAST_TELEMETRY is `otlp` and traces cannot be
        exported. OpenTelemetry's variables may be set for every program on the machine, so an error in them does not
        raise: it becomes `problem`.
        """
        word = environment.get("HOLDFAST_TELEMETRY") or ""
        if word not in ("", "otlp", "off"):
            raise InvalidInput(f"HOLDFAST_TELEMETRY is {word[:40]!r}; set otlp or off, or leave it unset")
        if word == "off" or not (word or _is_implied(environment)):
            return cls()
        problem = _problem(environment)
        if problem and word:
            raise MissingPart(f"HOLDFAST_TELEMETRY is otlp, but {problem}")
        return cls(
            traces=problem is None,
            content=content_is_traced(environment),
            problem=problem and f"traces are off: {problem}",
        )


NO_TELEMETRY: Final = Telemetry()
"""Traces are off."""


def content_is_traced(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether spans carry prompts, answers and arguments."""
    return (environment.get(CONTENT) or "").lower() == "true"


def _is_implied(environment: Mapping[str, str]) -> bool:
    if (environment.get("OTEL_SDK_DISABLED") or "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    return exporter == "otlp" and any(environment.get(name) for name in ENDPOINTS)


def _problem(environment: Mapping[str, str]) -> str | None:
    protocol = next((environment[name] for name in PROTOCOLS if environment.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        return f"traces need the protocol http/protobuf; {protocol[:40]!r} is not supported"
    if not all(_is_there(part) for part in PARTS):
        return f"OpenTelemetry is not installed: {install_command('telemetry')}"
    return None


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False
