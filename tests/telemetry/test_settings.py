"""Traces are on when somebody asks for them, and variables that are for other programs break none of ours."""

from __future__ import annotations

import pytest

from holdfast.client import Settings
from holdfast.core.base.errors import InvalidInput, MissingPart
from holdfast.telemetry import settings
from holdfast.telemetry.settings import CONTENT, Telemetry

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
GRPC = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}


@pytest.mark.parametrize(
    ("environment", "traces"),
    [
        ({}, False),
        ({"HOLDFAST_TELEMETRY": "otlp"}, True),
        ({ENDPOINT: "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({ENDPOINT: "http://collector:4318", "HOLDFAST_TELEMETRY": "off"}, False),
        ({ENDPOINT: "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({ENDPOINT: "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({ENDPOINT: "http://collector:4317", **GRPC}, False),
    ],
)
def test_the_variables_turn_traces_on(environment: dict[str, str], *, traces: bool) -> None:
    assert Settings.from_environment(environment).telemetry.traces is traces


def test_content_is_asked_for_apart() -> None:
    on = {"HOLDFAST_TELEMETRY": "otlp"}
    assert not Telemetry.from_environment(on).content
    assert Telemetry.from_environment({**on, CONTENT: "True"}).content


def test_what_cannot_be_had_is_an_error_only_for_who_asked_us(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="set otlp or off"):
        Telemetry.from_environment({"HOLDFAST_TELEMETRY": "on"})
    with pytest.raises(MissingPart, match="http/protobuf"):
        Telemetry.from_environment({"HOLDFAST_TELEMETRY": "otlp", **GRPC})
    told = Telemetry.from_environment({ENDPOINT: "http://collector:4317", **GRPC})
    assert told.problem == ("traces are off: traces need the protocol http/protobuf; 'grpc' is not supported")
    monkeypatch.setattr(settings, "PARTS", ("no.such.package",))
    with pytest.raises(MissingPart, match=r"pip install '/path/to/holdfast\[telemetry\]'"):
        Telemetry.from_environment({"HOLDFAST_TELEMETRY": "otlp"})
    assert Telemetry.from_environment({ENDPOINT: "http://collector:4318"}).problem is not None
