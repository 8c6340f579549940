"""Sinks as text: `[NAME=]KIND[:PLACE]`, in `--sink` and in HOLDFAST_SINKS."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import InvalidInput, MissingPart
from holdfast.core.base.extras import install_command
from holdfast.core.wire.sink_contracts import checked_consumer
from holdfast.runtime.imports import imported_object
from holdfast.sinks.jsonl import JsonLines
from holdfast.sinks.sink import Sink
from holdfast.telemetry.settings import content_is_traced

SINKS_MAX: Final = 16
"""The most sinks of one worker: each has pollers and slots of its own."""

FORM: Final = "write jsonl:FILE, webhook:URL, webhook:$VARIABLE, otlp or python:MODULE:NAME, optionally after NAME="

EXTRAS: Final = {"aiohttp": "webhook", "opentelemetry": "telemetry"}
"""What a sink needs beyond the base install, with the extra that brings it."""

Environment = Mapping[str, str]


def sinks_from(urls: Sequence[str], environment: Environment = os.environ) -> tuple[Sink, ...]:
    """Return the sinks of `urls`, else those of HOLDFAST_SINKS, which blanks separate.

    Nothing is opened or sent yet. Raises InvalidInput for what is no sink and for two of one name; MissingPart.
    """
    texts = [*urls] or environment.get("HOLDFAST_SINKS", "").split()
    if len(texts) > SINKS_MAX:
        raise InvalidInput(f"{len(texts)} sinks are too many; a worker has at most {SINKS_MAX}")
    sinks = tuple(_sink(text, environment) for text in texts)
    names = [each.name for each in sinks]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"two sinks are named {name!r}; write another name before one: OTHER={name}:…")
    return sinks


def _sink(text: str, environment: Environment) -> Sink:
    parts = re.fullmatch(r"(?:([^=:/]*)=)?([a-z]+)(?::(.*))?", text, flags=re.DOTALL)
    if parts is None:
        raise InvalidInput(f"a sink of {len(text)} characters cannot be read; {FORM}")
    name, kind, place = parts[1], parts[2], parts[3] or ""
    if kind not in _KINDS:
        raise InvalidInput(f"unknown kind of sink {kind[:80]!r}; {suggestion(kind, _KINDS)}")
    chosen = checked_consumer(kind if name is None else name)
    try:
        return _KINDS[kind](chosen, place, environment)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        extra = EXTRAS[package]
        raise MissingPart(
            f"a sink of the kind {kind} needs {package}, which is not installed: {install_command(extra)}"
        ) from None


def _jsonl(name: str, place: str, _: Environment) -> Sink:
    if not place:
        raise InvalidInput("the sink jsonl names no file; write jsonl:FILE")
    return JsonLines(Path(place).absolute(), name=name)


def _webhook(name: str, place: str, environment: Environment) -> Sink:
    from holdfast.sinks.webhook import Webhook  # noqa: PLC0415  # needs an extra

    url = place
    if place.startswith("$"):
        url = environment.get(place[1:], "")
        if not url:
            raise InvalidInput(f"the sink {name!r} takes its URL from {place[:80]}, which is not set")
    own = environment.get(f"HOLDFAST_WEBHOOK_SECRET_{name.upper().replace('-', '_')}")
    return Webhook(url, name=name, secret=own or environment.get("HOLDFAST_WEBHOOK_SECRET") or None)


def _otlp(name: str, place: str, environment: Environment) -> Sink:
    from holdfast.sinks.otlp import OpenTelemetryLogs  # noqa: PLC0415  # needs an extra

    return OpenTelemetryLogs(name=name, endpoint=place or None, content=content_is_traced(environment))


def _python(name: str, place: str, _: Environment) -> Sink:
    imported: Any = imported_object(place, "sink")
    candidate: Any = imported(name) if isinstance(imported, type) or not hasattr(imported, "deliver") else imported
    if not all(callable(getattr(candidate, each, None)) for each in ("open", "deliver", "close")):
        raise InvalidInput(f"python:{place[:200]} is not a sink: it needs open, deliver and close")
    checked_consumer(str(getattr(candidate, "name", "")))
    sink: Sink = candidate
    return sink


_KINDS: Final[Mapping[str, Callable[[str, str, Environment], Sink]]] = MappingProxyType(
    {"jsonl": _jsonl, "webhook": _webhook, "otlp": _otlp, "python": _python}
)
