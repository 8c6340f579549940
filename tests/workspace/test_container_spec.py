"""What a workspace's container is called and may do, before any Docker is asked."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.core.tools.workspace_profile import WORKSPACE_ID_CHARS_MAX, WorkspaceProfile
from holdfast.workspace.backend import Workspace
from holdfast.workspace.docker.container_spec import (
    COMMAND_USER,
    FOLDER,
    LEASE_FOLDER,
    LEASE_SECONDS,
    LEASE_USER,
    RENEW_SECONDS,
    RUNTIME_FOLDER,
    container_labels,
    container_name,
    container_options,
    host_options,
    ulimits,
    volume_mounts,
)
from holdfast.workspace.docker.containers import ENSURE_SECONDS_MAX
from holdfast.workspace.program import ARGUMENT_BYTES_MAX

PROFILE = WorkspaceProfile()
LEGAL = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{1,62}")


@given(st.text(min_size=1, max_size=WORKSPACE_ID_CHARS_MAX), st.text(min_size=1, max_size=50))
def test_each_id_gives_a_name_that_docker_takes(workspace: str, namespace: str) -> None:
    assert LEGAL.fullmatch(container_name(workspace, namespace))


def test_names_are_legible_and_never_shared() -> None:
    assert container_name("order-17", "default").startswith("holdfast-order-17-")
    ids = ("a b", "a-b", "a/b", "a", "A", "a" * 100, "a" * 101)
    assert len({container_name(each, namespace) for each in ids for namespace in ("default", "other")}) == 2 * len(ids)


def test_the_default_profile_takes_away_what_a_command_does_not_need() -> None:
    options = host_options(PROFILE)
    assert options["network_mode"] == "none"
    assert options["cap_drop"] == ["ALL"]
    assert options["security_opt"] == ["no-new-privileges"]
    assert options["read_only"] is True
    assert options["privileged"] is False
    assert options["auto_remove"] is True
    assert options["init"] is True
    assert options["mem_limit"] == options["memswap_limit"] == 1024 * 2**20
    assert options["pids_limit"] == 256
    assert options["nano_cpus"] == 10**9
    assert options["runtime"] is None
    assert not {"binds", "volumes_from", "devices", "cap_add", "pid_mode", "userns_mode"} & options.keys()
    assert ulimits(PROFILE) == {"core": 0, "nofile": 1024, "fsize": 256 * 2**20}


def test_every_writable_place_is_bounded_and_belongs_to_one_user() -> None:
    places = host_options(PROFILE)["tmpfs"]
    users = dict.fromkeys((FOLDER, RUNTIME_FOLDER, "/tmp"), COMMAND_USER) | {LEASE_FOLDER: LEASE_USER}  # noqa: S108  # the container's
    assert places.keys() == users.keys()
    for path, text in places.items():
        options = dict(each.partition("=")[::2] for each in text.split(","))
        assert {"nosuid", "nodev"} <= options.keys()
        assert int(options["size"]) > 0
        assert int(options["nr_inodes"]) > 0
        assert f"{options['uid']}:{options['gid']}" == users[path]
    assert "noexec" in places[LEASE_FOLDER]
    assert len({COMMAND_USER, LEASE_USER, "0:0"}) == 3


def test_each_field_of_a_profile_widens_its_own_bound() -> None:
    wide = PROFILE.model_copy(
        update={"network": "proxy", "memory_mb": 2048, "cpus": 2.5, "pids_max": 9, "disk_mb": 7, "runtime": "runsc"}
    )
    options = host_options(wide)
    assert options["network_mode"] == "proxy"
    assert options["mem_limit"] == options["memswap_limit"] == 2048 * 2**20
    assert options["nano_cpus"] == 2_500_000_000
    assert options["pids_limit"] == 9
    assert options["runtime"] == "runsc"
    assert f"size={7 * 2**20}," in options["tmpfs"][FOLDER]
    assert ulimits(wide.model_copy(update={"file_mb_max": 3}))["fsize"] == 3 * 2**20


def test_nothing_of_the_worker_reaches_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("HTTP_PROXY", "http://user:password@proxy")
    options = container_options(PROFILE)
    assert options["environment"] == {"HOME": FOLDER, "LANG": "C.UTF-8"}
    assert options["use_config_proxy"] is False
    assert not {"volumes", "ports", "network_disabled"} & options.keys()
    assert "secret" not in json.dumps(options)


def test_the_program_fits_into_the_arguments_of_the_first_process() -> None:
    options = container_options(PROFILE)
    assert all(len(each.encode()) < ARGUMENT_BYTES_MAX for each in [*options["entrypoint"], *options["command"]])


def test_volumes_of_an_image_are_covered() -> None:
    assert volume_mounts([]) == []
    assert [(each["Target"], each["Type"]) for each in volume_mounts(["/b", "/a"])] == [
        ("/a", "tmpfs"),
        ("/b", "tmpfs"),
    ]


def test_a_container_says_whose_it_is_and_from_what_it_was_made() -> None:
    labels = container_labels(Workspace("run", "acme", PROFILE), "default")
    assert (labels["holdfast.workspace"], labels["holdfast.namespace"], labels["holdfast.tenant"]) == (
        *("run", "default", "acme"),
    )
    other = container_labels(Workspace("run", "acme", PROFILE.model_copy(update={"cpus": 2.0})), "default")
    assert other["holdfast.profile"] != labels["holdfast.profile"]


def test_the_lease_allows_for_lost_renewals_and_ends_within_a_minute() -> None:
    assert 3 * RENEW_SECONDS < LEASE_SECONDS < 45
    assert ENSURE_SECONDS_MAX < LEASE_SECONDS, "a sweep never takes a container that is being started"


@pytest.mark.parametrize("network", ["host", "container:other", "ns:/proc/1/ns/net"])
def test_a_definition_cannot_name_the_network_of_the_host_or_of_another_container(network: str) -> None:
    with pytest.raises(ValidationError, match="no network of a workspace's own"):
        WorkspaceProfile(network=network)
