"""`holdfast setup` on servers that are not ours: what it registers, what it says it cannot, and doing it again."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest

from holdfast.client import Holdfast, Settings
from holdfast.connection.temporal_client import connect
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.errors import InvalidInput, ServerUnavailable
from holdfast.core.wire.search_attributes import SEARCH_ATTRIBUTES
from holdfast.server.namespaces import create, retention, retention_of
from holdfast.server.worker_process import READY
from tests.cli.page import examples
from tests.cli.program import KEPT, Ended, Project

pytestmark = pytest.mark.temporal

NAMES = list(SEARCH_ATTRIBUTES)
DAY = timedelta(days=1)


@pytest.fixture
def here(tmp_path: Path, plain_server: str) -> Project:
    """A folder without anything of ours, and a plain server."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return Project(tmp_path, {**kept, "TEMPORAL_ADDRESS": plain_server})


def states(ended: Ended) -> dict[str, str]:
    return {each["name"]: each["state"] for each in ended.document["attributes"]}


async def with_attribute(server: str, *taken: tuple[str, str]) -> str:
    """Make a namespace in which these attributes, names and types, are there; return its name."""
    name = f"n-{uuid4()}"
    temporal = await connect(Settings(address=server, namespace=name), namespace_there=False)
    assert await create(temporal, DAY)
    for attribute, kind in taken:
        number = IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{kind}")
        request = AddSearchAttributesRequest(namespace=name, search_attributes={attribute: number})
        await temporal.operator_service.add_search_attributes(request)
    return name


@pytest.mark.slow
async def test_a_new_namespace_is_ready_for_runs_and_a_second_time_nothing_changes(
    here: Project, plain_server: str
) -> None:
    name = f"n-{uuid4()}"
    where = ("--namespace", name)
    absent = here.run("setup", *where)
    assert absent.code == 6
    assert "`holdfast setup --create-namespace` creates it" in absent.err
    first = here.run("setup", *where, "--create-namespace", "--retention", "48h", "--json")
    assert first.code == 0
    assert {**first.document, "attributes": []} == {
        "namespace": name,
        "created": True,
        "ready": True,
        "attributes": [],
        "remedies": [],
        "rate_limits": [],
    }
    assert states(first) == dict.fromkeys(NAMES, "registered")
    assert set(first.document) == set(examples("holdfast setup")[0])
    client = await Holdfast.connect(Settings(address=plain_server, namespace=name))
    assert await client.has_search_attributes()
    await client.start(AgentDefinition(name="clerk"), "what?")  # at once: the server takes them
    again, checked = here.both("setup", *where, "--create-namespace")
    assert (again.code, again.err) == (0, "")
    assert again.out.count("registered before") == len(NAMES)
    assert states(checked) == dict.fromkeys(NAMES, "there")
    assert checked.document["created"] is False
    assert await retention(client.temporal) == timedelta(hours=48), "a namespace that is there stays as it is"


@pytest.mark.slow
async def test_the_rates_of_routes_are_written_and_checked(here: Project) -> None:
    where = ("--namespace", f"n-{uuid4()}", "--task-queue", "desk")
    routes = "models: {large: {api: openai_chat, rate_limits: {requests_per_minute: 60}}, small: {api: openai_chat}}"
    (here.folder / "models.yaml").write_text(routes)
    assert here.run("setup", *where, "--create-namespace").code == 0
    fine = here.run("setup", *where, "--check", "--json")
    assert fine.code == 0
    rate = {"route": "large", "task_queue": "desk-rate-limited-large", "calls_per_minute": 57.0, "wanted": 57.0}
    assert fine.document["rate_limits"] == [rate]
    (here.folder / "models.yaml").write_text(routes.replace("60", "120"))
    plain, as_json = here.both("setup", *where, "--check")
    assert (plain.code, as_json.code) == (14, 14)
    assert "rate limit of large: 57 calls a minute instead of 114 calls a minute" in " ".join(plain.out.split())
    assert "run `holdfast setup`" in as_json.document["error"]["message"]


async def test_a_check_changes_nothing_and_says_by_its_code_what_is_missing(here: Project, plain_server: str) -> None:
    plain, as_json = here.both("setup", "--check")
    assert (plain.code, as_json.code) == (14, 14)
    assert "registers the missing ones" in plain.err
    assert states(as_json) == dict.fromkeys(NAMES, "missing")
    assert "missing: HoldfastAgent" in as_json.document["error"]["message"]
    assert not await (await Holdfast.connect(Settings(address=plain_server))).has_search_attributes()


async def test_what_cannot_be_registered_is_told_with_its_remedy_and_the_rest_is_registered(
    here: Project, plain_server: str
) -> None:
    full = await with_attribute(plain_server, ("HoldfastAgent", "TEXT"), ("A", "INT"), ("B", "INT"))
    ended, as_json = (here.run("setup", "--namespace", full, *options) for options in ((), ("--json",)))
    assert (ended.code, as_json.code) == (7, 7)
    found = states(as_json)
    assert found.pop("HoldfastAgent") == "other_type"
    full_up = {name for name, state in found.items() if state == "no_room"}
    assert full_up < {"HoldfastSteps", "HoldfastTokens", "HoldfastEstimatedTokens"}
    assert len(full_up) == 2, "one column of three was left"
    assert {state for name, state in found.items() if name not in full_up} == {"there"}, "the first call did them"
    assert "HoldfastAgent has the type Text but must be Keyword" in ended.err
    assert "rename --namespace" in ended.err
    assert "no column for another Int (Unable to create search attributes: cannot have more than 3" in ended.out
    assert len(as_json.document["remedies"]) == 3
    partly = await Holdfast.connect(Settings(address=plain_server, namespace=full))
    assert not await partly.has_search_attributes(), "a run that names one of them would be refused"
    await partly.start(AgentDefinition(name="clerk"), "what?")


async def test_listing_by_what_is_not_registered_names_the_setup(here: Project, plain_server: str) -> None:
    for command in (("list", "--waiting"), ("sessions", "--query", "HoldfastStatus = 'idle'")):
        ended = here.run(*command)
        assert ended.code == 6
        assert "is not registered in this namespace; `holdfast setup` registers" in ended.err, ended
    holdfast = await Holdfast.connect(Settings(address=plain_server))
    with pytest.raises(ServerUnavailable, match=r"HoldfastWaiting is not registered.*`holdfast setup`"):
        await holdfast.waiting()
    with pytest.raises(ServerUnavailable, match=r"HoldfastAgent is not registered.*`holdfast setup`"):
        await holdfast.records(agent="clerk")


@pytest.mark.slow
async def test_a_worker_names_the_search_attributes_that_are_missing(here: Project, plain_server: str) -> None:
    name = await with_attribute(plain_server, ("HoldfastAgent", "KEYWORD"), ("HoldfastSteps", "KEYWORD"))
    away = here.where(TEMPORAL_NAMESPACE=name, HOLDFAST_MODEL="scripted", OPENAI_API_KEY="none")
    with away.started("worker") as worker:
        worker.heard(READY)
        note = worker.heard("note: search attributes")
    assert f"of namespace {name!r}: missing: HoldfastStatus" in note
    assert "of another type: HoldfastSteps: runs start without any" in note
    assert note.rstrip().endswith("run `holdfast setup`")


def test_a_retention_that_cannot_be_is_refused_before_anything_is_asked(here: Project) -> None:
    ended = here.where(TEMPORAL_ADDRESS="127.0.0.1:1").run("setup", "--create-namespace", "--retention=1w")
    assert ended.code == 2
    assert "such as 30d or 72h" in ended.err


def test_retentions_are_days_or_hours() -> None:
    assert [retention_of(text) for text in ("30d", "1h", "3650d")] == [DAY * 30, DAY / 24, DAY * 3650]
    for text in ("0d", "30", "-1d", "3651d", "1w", "", "d", "1.5d", "９d"):
        with pytest.raises(InvalidInput, match="days or hours"):
            retention_of(text)
