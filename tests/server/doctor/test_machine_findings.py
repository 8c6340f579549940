"""What facts mean, without a machine or a server to gather them from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.connection.data_directory import ServerAddress
from holdfast.connection.search_attribute_check import compared
from holdfast.core.agent.hooks import HookTraits, Trigger
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.search_attributes import SEARCH_ATTRIBUTES
from holdfast.core.wire.tool_catalog import ToolCatalog
from holdfast.models.model_apis import OPENAI
from holdfast.server.doctor import machine_findings, server_findings
from holdfast.server.doctor.findings import Finding, Level, fine, from_error, sound, warned, wrong
from holdfast.server.doctor.machine_findings import DataFacts, EndpointFacts, Parts
from holdfast.server.doctor.server_findings import AgentTools, ClockReading, NamespaceFacts, Poller, ServingWorker
from holdfast.server.worker_process import worker_parts

MONTH = timedelta(days=30)
NAMESPACE = NamespaceFacts("default", MONTH, takes_updates=True, pushes_cancels=True, starts_activities=True)
GIGABYTE = 1024**3
DATA = DataFacts("/srv/data", there=True, unusable=None, free_bytes=9 * GIGABYTE)
ADDRESS = ServerAddress("127.0.0.1:7233", "http://127.0.0.1:8233", 17, "/srv/data")
ENDPOINT = EndpointFacts("https://models.example/v1", "gpt-x", has_key=True)
PARTS = {"temporalio": "1.35.0", "obstore": "0.12", "openai": "3.0", "pydantic": "2.14"}
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def level_and_words(finding: Finding) -> tuple[Level, str]:
    if finding.level is not Level.OK:
        assert finding.remedy, "whatever is not right has a remedy"
    return finding.level, f"{finding.result}; {finding.remedy}"


@pytest.mark.parametrize(
    ("offset", "level", "words"),
    [
        (0.0, Level.OK, "within 2 s"),
        (1.9, Level.OK, "within 2 s"),
        (-1.9, Level.OK, "within 2 s"),
        (30.0, Level.WARNING, "30 s ahead of"),
        (-30.0, Level.WARNING, "30 s behind"),
        (7200.0, Level.ERROR, "7,200 s ahead of"),
        (-7200.0, Level.ERROR, "7,200 s behind"),
    ],
)
def test_a_clock_is_judged_by_how_far_it_is_from_the_servers(offset: float, level: Level, words: str) -> None:
    found, text = level_and_words(server_findings.clock(ClockReading(1e9 + offset, 1e9, 1e9 + offset + 0.0)))
    assert found is level
    assert words in text


def test_a_slow_answer_is_no_wrong_clock() -> None:
    assert server_findings.clock(ClockReading(1e9 - 40, 1e9, 1e9 + 3)).level is Level.OK


@pytest.mark.parametrize(
    ("missing", "level", "words"),
    [
        ((), Level.OK, "temporalio 1.35.0"),
        (("openai",), Level.WARNING, "pip install '/path/to/holdfast[openai]'"),
        (("temporalio", "openai"), Level.ERROR, "pip install '/path/to/holdfast[temporal,openai]'"),
        (("obstore",), Level.ERROR, "pip install '/path/to/holdfast[temporal]'"),
    ],
)
def test_what_is_not_installed_is_told_with_what_installs_it(
    missing: tuple[str, ...], level: Level, words: str
) -> None:
    parts = Parts("0.1", "3.11.7", {name: None if name in missing else number for name, number in PARTS.items()})
    found, text = level_and_words(machine_findings.versions(parts, worker_parts("openai")))
    assert found is level
    assert words in text


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        (DATA, Level.OK, "9.0 GB free"),
        (replace(DATA, there=False), Level.OK, "not there yet"),
        (replace(DATA, free_bytes=GIGABYTE // 2), Level.WARNING, "512.0 MB free"),
        (replace(DATA, free_bytes=4096), Level.ERROR, "4,096 bytes free"),
        (replace(DATA, unusable="it is read-only", needed=False), Level.OK, "not needed"),
        (replace(DATA, unusable="it is a file"), Level.ERROR, "it is a file; choose another one"),
    ],
)
def test_a_data_directory_needs_room_and_leave_to_write(facts: DataFacts, level: Level, words: str) -> None:
    found, text = level_and_words(machine_findings.data_directory(facts))
    assert found is level
    assert words in text


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        (DATA, Level.OK, "not running (no database yet)"),
        (replace(DATA, database_bytes=5 * 1024**2), Level.OK, "a database of 5.0 MB"),
        (replace(DATA, locked_by="pid 17", address=ADDRESS, answers=True), Level.OK, "Web UI http://127.0.0.1:8233"),
        (replace(DATA, locked_by="pid 17"), Level.WARNING, "held by pid 17, which has published no address"),
        (replace(DATA, locked_by="pid 17", address=ADDRESS), Level.ERROR, "does not answer; end that process"),
        (replace(DATA, damage="it is empty; move it away"), Level.ERROR, "it is empty; move it away"),
    ],
)
def test_an_embedded_server_runs_rests_hangs_or_is_damaged(facts: DataFacts, level: Level, words: str) -> None:
    found, text = level_and_words(machine_findings.embedded_server(facts))
    assert found is level
    assert words in text


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        (replace(ENDPOINT, status=200, models=("gpt-x", "gpt-y")), Level.OK, "2 models, 'gpt-x' among them"),
        (replace(ENDPOINT, status=200, models=("gpt-x",)), Level.OK, "1 model, 'gpt-x' among them"),
        (replace(ENDPOINT, status=200, models=("a",), model=None), Level.OK, "agents must name their model"),
        (replace(ENDPOINT, status=200, models=("a",), model="a", has_key=False), Level.OK, "no key is sent"),
        (replace(ENDPOINT, status=200, models=("gpt-xy",)), Level.WARNING, "none of them HOLDFAST_MODEL 'gpt-x'"),
        (replace(ENDPOINT, status=200), Level.WARNING, "lists no models"),
        (replace(ENDPOINT, status=404, words="nothing here"), Level.WARNING, "answered 404: nothing here"),
        (replace(ENDPOINT, status=503), Level.WARNING, "answered 503"),
        (replace(ENDPOINT, status=401), Level.ERROR, "the key is refused: check OPENAI_API_KEY"),
        (replace(ENDPOINT, status=403, has_key=False), Level.ERROR, "a key is required: set OPENAI_API_KEY"),
        (
            replace(ENDPOINT, broken="the connection is refused"),
            Level.ERROR,
            "the connection is refused; is it running",
        ),
    ],
)
def test_an_endpoint_is_judged_by_its_answer(facts: EndpointFacts, level: Level, words: str) -> None:
    found, text = level_and_words(machine_findings.model_endpoint(facts))
    assert found is level
    assert words in text


def test_no_endpoint_is_a_warning_because_workers_elsewhere_have_their_own() -> None:
    warning = machine_findings.no_endpoint(OPENAI)
    level, words = level_and_words(warning)
    assert (level, "set OPENAI_API_KEY (or OPENAI_BASE_URL)" in words) == (Level.WARNING, True)
    level, words = level_and_words(machine_findings.served(warning))
    assert (level, "none was checked" in words) == (Level.OK, True)
    asked = machine_findings.model_endpoint(replace(ENDPOINT, status=503))
    assert machine_findings.served(asked) == asked


def test_keys_that_others_can_read_are_a_warning() -> None:
    assert machine_findings.keys("keys", ["new", "old"], open_to_others=False) == fine(
        "encryption", "keys in keys: new, old; the first one encrypts"
    )
    assert "chmod 600 keys" in level_and_words(machine_findings.keys("keys", ["new"], open_to_others=True))[1]


@pytest.mark.parametrize(
    ("facts", "judge", "level", "words"),
    [
        (NAMESPACE, server_findings.namespace, Level.OK, "for 30 days"),
        (replace(NAMESPACE, retention=timedelta(hours=2)), server_findings.namespace, Level.WARNING, "for 2 h"),
        (NAMESPACE, server_findings.server_settings, Level.OK, "at once"),
        (
            replace(NAMESPACE, pushes_cancels=False),
            server_findings.server_settings,
            Level.WARNING,
            "WorkerCommandsEnabled",
        ),
        (replace(NAMESPACE, takes_updates=False), server_findings.server_settings, Level.ERROR, "accepts no updates"),
    ],
)
def test_a_namespace_is_judged_by_what_it_keeps_and_can_do(
    facts: NamespaceFacts, judge: Callable[[NamespaceFacts], Finding], level: Level, words: str
) -> None:
    found, text = level_and_words(judge(facts))
    assert found is level
    assert words in text


def test_attributes_that_are_not_all_there_are_a_warning_with_the_setup() -> None:
    whole = server_findings.search_attributes(compared(SEARCH_ATTRIBUTES), "default")
    partly = server_findings.search_attributes(compared({**SEARCH_ATTRIBUTES, "HoldfastCost": "Int"}), "default")
    nothing = server_findings.search_attributes(compared({}), "default")
    assert whole.level is Level.OK
    assert level_and_words(partly)[0] is Level.WARNING
    assert "HoldfastCost has the type Int but must be Double" in partly.remedy
    assert "holdfast setup" in nothing.remedy
    assert "missing: HoldfastAgent, " in nothing.result


def test_workers_are_told_with_their_versions_and_missed_when_silent() -> None:
    serving = [ServingWorker("17@there", "there", "temporal-python 1.35.0")]
    there = server_findings.worker("worker", "q", [Poller("17@there", 3.0), Poller("18@x", 200.0)], serving)
    assert there == fine("worker", "1 on 'q': 17@there (temporal-python 1.35.0, host there)")
    silent = server_findings.worker("worker", "q", [Poller("17@there", 200.0)], [])
    assert "asked for work 200 s ago" in level_and_words(silent)[1]
    assert silent.level is Level.WARNING
    nobody = server_findings.worker("worker", "q", [], [])
    assert level_and_words(nobody)[0] is Level.ERROR
    assert "`holdfast worker --task-queue q`" in nobody.remedy


def catalog(*tools: ToolTraits) -> ToolCatalog:
    return ToolCatalog(at=NOW, tools=tools)


def test_tools_that_an_agent_names_and_nobody_has_are_an_error() -> None:
    there = AgentTools("clerk", catalog(ToolTraits(name="add"), ToolTraits(name="far", task_queue="gpu")))
    bad = AgentTools("lead", None, "agent 'lead' names the tool 'ad', which is not there")
    assert "add, far; 3 more agents were not checked" in server_findings.tools([there], 3).result
    assert server_findings.tools([replace(there, agent="any")], 0).result == "the worker offers: add, far"
    found, text = level_and_words(server_findings.tools([there, bad, bad], 0))
    assert found is Level.ERROR
    assert "names the tool 'ad', which is not there (so do 1 more)" in text
    assert "correct the definition, or start the worker with what it names" in text


def test_agents_that_no_worker_answered_for_may_be_fine() -> None:
    found, text = level_and_words(
        server_findings.tools([AgentTools("clerk", None, server_findings.NO_WORKER_ANSWERED)], 0)
    )
    assert found is Level.ERROR
    assert "no worker of the task queue has answered in time" in text
    assert "start a worker; if workers have builds, one of the current build" in text
    assert "definition" not in text
    silent = AgentTools("lead", None, server_findings.NO_WORKER_ANSWERED)
    bad = AgentTools("clerk", None, "agent 'clerk' names the tool 'ad', which is not there")
    assert "names the tool 'ad'" in server_findings.tools([silent, bad], 0).result


def test_agents_that_take_no_tools_or_hooks_though_some_are_offered_are_named() -> None:
    hook = HookTraits(name="guard", trigger=Trigger.BEFORE_TOOL)
    offered = AgentTools("any", ToolCatalog(at=NOW, tools=(ToolTraits(name="add"),), hooks=(hook,)))
    clerk, lead = AgentTools("clerk", catalog(ToolTraits(name="add"))), AgentTools("lead", catalog())
    found = server_findings.tools([clerk, lead], 0, offered)
    assert found.level is Level.OK
    idle = "tools: none for lead (offered: add); hooks: none for clerk, lead (offered: guard)"
    assert found.result.endswith(f"add; {idle}")


def test_the_queues_of_tools_are_those_they_name_and_the_workers_own() -> None:
    far, near = ToolTraits(name="far", task_queue="gpu"), ToolTraits(name="near")
    inside, own = ToolTraits(name="inside", local=True), ToolTraits(name="own", task_queue="q")
    equipment = [AgentTools("a", catalog(far, near, inside, own)), AgentTools("b", None, "no")]
    assert server_findings.named_queues(equipment, "q") == {"gpu": ("far",), "q-waiting-tools": ("near", "own")}
    assert server_findings.named_queues([AgentTools("a", catalog(inside))], "q") == {}
    assert server_findings.tool_queues([]).level is Level.OK
    found = server_findings.tool_queues([("gpu", ("far",), None), ("q-waiting-tools", ("near",), 61.0)])
    assert level_and_words(found)[0] is Level.WARNING
    assert "calls of far wait; start `holdfast worker --tools-only --task-queue gpu`" in level_and_words(found)[1]


def test_a_tools_queue_whose_last_worker_has_gone_is_told_with_its_last_poll() -> None:
    found = server_findings.tool_queues([("sandbox", ("shell",), 130.0)])
    assert level_and_words(found)[0] is Level.WARNING
    assert found.result == (
        "no worker serves 'sandbox': calls of shell wait; "
        "the last one asked 'sandbox' for work 130 s ago: it is gone or full"
    )


def test_only_errors_make_a_diagnosis_unsound() -> None:
    assert sound([fine("a", "b"), warned("a", "b", "c")])
    assert not sound([fine("a", "b"), wrong("a", "b", "c")])


def test_an_error_of_ours_has_its_remedy_behind_the_first_semicolon() -> None:
    assert from_error("server", ServerUnavailable("no answer; start one; or two")) == wrong(
        "server", "no answer", "start one; or two"
    )
    assert from_error("server", ServerUnavailable("no answer")).remedy


def test_agents_are_told_with_where_they_are_defined() -> None:
    there = machine_findings.agents("agents", ["my_agents"], ["clerk", "writer"])
    assert there == fine(machine_findings.AGENTS, "2 in agents/ and my_agents: clerk, writer")
    assert machine_findings.agents("agents", [], []).result.startswith("no definition in agents/;")
