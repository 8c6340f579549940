"""Sinks as they are written in `--sink` and HOLDFAST_SINKS."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.core.base.errors import InvalidInput, MissingPart
from holdfast.sinks import JsonLines
from holdfast.sinks.sink_urls import sinks_from

MODULE = "tests.sinks.test_sink_urls"
MINE = JsonLines("mine.jsonl", name="mine")


def test_sinks_are_named_by_kind_or_as_one_likes() -> None:
    sinks = sinks_from(["jsonl:a.jsonl", "audit=jsonl:/b=c.jsonl", "webhook:https://host/?a=b", "otlp"], {})
    assert [each.name for each in sinks] == ["jsonl", "audit", "webhook", "otlp"]
    files = [each.path for each in sinks if isinstance(each, JsonLines)]
    assert files == [Path("a.jsonl").absolute(), Path("/b=c.jsonl")]


def test_an_option_wins_over_the_variable() -> None:
    variables = {"HOLDFAST_SINKS": " jsonl:a.jsonl\n otlp "}
    assert [each.name for each in sinks_from([], variables)] == ["jsonl", "otlp"]
    assert [each.name for each in sinks_from(["x=jsonl:b"], variables)] == ["x"]
    assert sinks_from([], {}) == ()


def test_a_url_can_stay_off_the_command_line() -> None:
    [sink] = sinks_from(["crm=webhook:$CRM_URL"], {"CRM_URL": "https://host/secret"})
    assert sink.name == "crm"
    with pytest.raises(InvalidInput, match=r"its URL from \$CRM_URL, which is not set"):
        sinks_from(["crm=webhook:$CRM_URL"], {})


def test_a_sink_of_ones_own_is_named_by_its_place() -> None:
    assert sinks_from([f"python:{MODULE}:MINE"], {}) == (MINE,)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["jsonl"], "names no file; write jsonl:FILE"),
        (["jsnl:x"], "unknown kind of sink 'jsnl'; did you mean 'jsonl'"),
        (["9"], "cannot be read; write jsonl:FILE"),
        (["a b=jsonl:x"], "'a b' is not a valid name for a sink"),
        (["=jsonl:x"], "'' is not a valid name for a sink"),
        (["jsonl:x", "jsonl:y"], "two sinks are named 'jsonl'; write another name before one"),
        (["python:json"], "'python:json' names no sink; write python:MODULE:NAME"),
        (["python:json:nothing"], "the sink python:json:nothing is not there: the module 'json' has no 'nothing'"),
        ([f"python:{MODULE}:NOT_ONE"], "is not a sink: it needs open, deliver and close"),
        ([f"s{number}=otlp" for number in range(17)], "17 sinks are too many"),
    ],
)
def test_what_is_no_sink_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        sinks_from(texts, {})


def NOT_ONE(name: str) -> str:  # noqa: N802  # stands where a sink's class would
    return name


@pytest.mark.parametrize(
    ("kind", "package", "extra"), [("webhook:https://x/", "aiohttp", "webhook"), ("otlp", "opentelemetry", "telemetry")]
)
def test_a_missing_package_is_told_with_its_extra(
    kind: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith(("holdfast.sinks.webhook", "holdfast.sinks.otlp"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPart, match=rf"needs {package}, .* pip install '/path/to/holdfast\[{extra}\]'"):
        sinks_from([kind], {})
