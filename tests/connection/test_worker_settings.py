"""What can be set of a worker, where from, and within which bounds."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from holdfast.client import Settings
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.base.errors import InvalidInput
from holdfast.server.worker_process import embedded_worker_command, worker_command

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tools.md"


def test_a_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    environment = {"HOLDFAST_TOOL_SLOTS": "7", "HOLDFAST_GRACE_SECONDS": "0.5", "HOLDFAST_CACHED_RUNS": ""}
    settings = WorkerSettings.from_environment(environment, tool_slots="9", inference_slots=None)
    assert settings == WorkerSettings(tool_slots=9, grace_seconds=0.5)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("tool_slots", "0", "tool_slots is 0; choose 1 to 100,000"),
        ("tool_slots", "many", "tool_slots is 'many'; give a whole number"),
        ("tool_slots", "1.5", "give a whole number"),
        ("workflow_slots", "1", "choose 2 to 10,000"),
        ("grace_seconds", "nan", "give a number of seconds"),
        ("grace_seconds", "-1", "choose 0 to 3,600"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        WorkerSettings.from_environment({f"HOLDFAST_{name.upper()}": text})


def test_a_worker_is_started_with_the_settings_that_are_given() -> None:
    command = worker_command(Settings(), [], serving={"tool_slots": "9", "grace_seconds": "0", "cached_runs": None})
    assert command[-2:] == ["--tool-slots=9", "--grace-seconds=0"]


def test_a_worker_is_started_with_the_sinks_that_are_given() -> None:
    sinks = ["jsonl:a b.jsonl", "crm=webhook:$CRM_URL"]
    told = ["--sink=jsonl:a b.jsonl", "--sink=crm=webhook:$CRM_URL"]
    assert worker_command(Settings(), [], sinks=sinks)[-2:] == told
    assert embedded_worker_command(Settings(), [], "127.0.0.1:1", sinks)[-2:] == told


def test_the_page_tells_every_setting_with_its_default_and_meaning() -> None:
    table = PAGE.read_text().partition("## Settings of a worker")[2]
    for each in fields(WorkerSettings):
        assert f"| `{each.name}` | {each.default:,g} | {each.metadata['about']} |" in table
    assert table.count("| `") == len(fields(WorkerSettings))
