"""What commands say of a server that has gone while they wait for it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.cli.command_context import Retries, connected, metadata_of
from holdfast.connection.settings import Settings
from holdfast.core.agent.user_metadata import RUN_METADATA_BYTES_MAX
from holdfast.core.base.errors import InvalidInput


def test_a_server_that_has_gone_is_told_of_once_and_in_our_words(capsys: pytest.CaptureFixture[str]) -> None:
    retries = Retries()
    said = "[sdk_core::temporalio_client::retry] gRPC call query_workflow retried {} times {{'error': 'Status …'}}"
    records = [logging.makeLogRecord({"msg": said.format(times)}) for times in range(5, 9)]
    assert not any(retries.filter(each) for each in records)
    assert capsys.readouterr().err.count("the Temporal server does not answer") == 1
    assert retries.filter(logging.makeLogRecord({"msg": "anything else"}))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("c-17", "c-17"),
        ("17", 17),
        ("007", "007"),
        ("true", True),
        ('"true"', "true"),
        ('{"tier": ["gold"]}', {"tier": ["gold"]}),
        ("null", None),
        ("NaN", "NaN"),
        ("a=b", "a=b"),
        ("", ""),
        ("[" * 100_000, None),
    ],
)
def test_a_value_of_the_metadata_is_json_where_it_is_that_and_text_else(value: str, read: object) -> None:
    if len(value) > RUN_METADATA_BYTES_MAX:
        with pytest.raises(InvalidInput, match="the limit is"):
            metadata_of([f"name={value}"])
    else:
        assert metadata_of(["name=before", f" name={value}"]) == {"name": read}


@pytest.mark.temporal
async def test_a_server_that_nobody_chose_is_named(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_PROFILE", "TEMPORAL_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    assert settings.address is not None
    monkeypatch.setattr("holdfast.connection.temporal_client.DEFAULT_ADDRESS", settings.address)
    empty = tmp_path / "elsewhere"
    await connected(replace(settings, address=None, data_dir=empty))
    hinted = " ".join(capsys.readouterr().err.split())
    assert f"{settings.address}, namespace 'default'" in hinted
    assert "no server of this folder" in hinted
    await connected(replace(settings, data_dir=empty))
    assert capsys.readouterr().err == ""


def test_metadata_without_a_value_or_under_a_name_of_our_own_are_refused() -> None:
    with pytest.raises(InvalidInput, match="give NAME=VALUE"):
        metadata_of(["customer"])
    with pytest.raises(InvalidInput, match="reserved"):
        metadata_of(["agent=me"])
