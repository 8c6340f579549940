"""Where large data is kept, as the settings say it: flag, variable, default, and a word to a lone worker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from temporalio.client import Client as TemporalClient

from holdfast.client import Settings
from holdfast.connection.temporal_client import connect, unshared_storage
from holdfast.core.base.errors import InvalidInput
from holdfast.server.worker_process import worker_command


def test_a_flag_wins_over_the_variable_and_that_over_the_folder_of_the_data_directory(tmp_path: Path) -> None:
    named = {"HOLDFAST_STORAGE": "s3://bucket/prefix"}
    assert Settings.from_environment(named).storage_place == "s3://bucket/prefix"
    assert Settings.from_environment(named, storage="gs://other").storage_place == "gs://other"
    assert Settings.from_environment({"HOLDFAST_STORAGE": ""}).storage is None
    default = Settings.from_environment({}, data_dir=tmp_path / "data").storage_place
    assert default == (tmp_path / "data" / "objects").as_uri()
    assert Settings().storage_place == (Path.cwd() / ".holdfast" / "objects").as_uri()


def test_a_place_that_cannot_be_used_is_refused_where_it_is_read() -> None:
    with pytest.raises(InvalidInput, match="the storage 'here' is of no kind we know"):
        Settings.from_environment({"HOLDFAST_STORAGE": "here"})
    with pytest.raises(InvalidInput, match="credentials come from the cloud's own environment") as refused:
        Settings.from_environment({}, storage="s3://user:canary@bucket")
    assert "canary" not in str(refused.value)


def test_a_worker_process_is_told_the_place_where_one_was_chosen() -> None:
    assert "--storage=s3://bucket" in worker_command(Settings(storage="s3://bucket"), [])
    assert not any(word.startswith("--storage") for word in worker_command(Settings(), []))


async def test_a_worker_with_the_default_folder_and_a_server_elsewhere_is_told(settings: Settings) -> None:
    by_default = replace(settings, storage=None)
    assert unshared_storage(by_default, await connect(by_default)) is None, "all on this machine"
    config = SimpleNamespace(target_host="temporal.example.com:7233")
    elsewhere = cast("TemporalClient", SimpleNamespace(service_client=SimpleNamespace(config=config)))
    said = unshared_storage(by_default, elsewhere) or ""
    assert "the Temporal server is temporal.example.com:7233" in said
    assert "set HOLDFAST_STORAGE to a place that all of them reach" in said
    assert unshared_storage(settings, elsewhere) is None, "somebody has chosen"
