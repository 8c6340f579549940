"""Bad input at the command line: one line with cause and remedy (or one JSON document), the code, nothing started."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from holdfast.client import Holdfast
from holdfast.core.base.bounds import QUESTION_BYTES_MAX
from tests.cli.failing import Failing
from tests.cli.program import Ended, Project, embedded_only, start_id

pytestmark = pytest.mark.temporal

NOBODY = "00000000-0000-4000-8000-000000000000"
QUESTION = "what is six times seven?"
QUEUE = f"refused-{uuid4()}-"
"""How the task queues of refused commands begin: a run on one of them should not be there."""

BROKEN: Mapping[str, bytes] = {
    "several.md": b"---\nllm: {temperature: 9}\nbugdet: {max_steps: 3}\ntools: nope\n---\nhi",
    "nested.md": b"---\nllm: {modle: x}\n---\nhi",
    "bomb.yaml": b"a: &a [1, 2]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "latin.md": "Grüße".encode("latin-1"),
    "long.md": b"x" * 70_000,
    "state.json": b'{"state": {"format": 7, "agent_id": 1}}',
    "fake.pdf": b"no pdf",
    "empty.csv": b"",
    "noise": b"\x7fELF",
    "code.yaml": b'name: !!python/object/apply:os.system ["touch executed"]',
}
MODULES: Mapping[str, str] = {
    "raises": "raise RuntimeError('no luck\\ntoday')",
    "needs": "import no_such_package",
    "exits": "import sys\nsys.exit(0)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A command that is refused: with which code, and in which words (cause, then remedy)."""

    code: int = 2
    said: str = ""
    """What stands on standard input."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    told: tuple[str, ...]
    also_json: bool = False
    """Whether the same is asked for as JSON too."""


def run(agent: str = "assistant", question: str = QUESTION, *options: str) -> tuple[str, ...]:
    """Return a command that starts a run; detached, so that one that is not refused ends too."""
    return ("run", agent, question, "--detach", *options)


def in_broken(name: str) -> tuple[str, ...]:
    return run(name, QUESTION, "--agents", "broken")


def attaching(*files: str) -> tuple[str, ...]:
    return run("assistant", QUESTION, *(each for file in files for each in ("--attach", file)))


DEV = ("dev", "--port", "0", "--ui-port", "0")

CASES: Mapping[str, tuple[tuple[str, ...], Refused]] = {
    # files that come with a message
    "attached folder": (attaching("broken"), Refused(told=("broken cannot be attached", "Is a directory"))),
    "no such file": (attaching("nothing.pdf"), Refused(told=("nothing.pdf cannot be attached", "No such file"))),
    "escapes in a file's name": (
        attaching("\x1b]0;owned\x07\u202efdp.exe"),
        Refused(told=(r"\x1b]0;owned\x07\u202efdp",)),
    ),
    "escapes in an agent's name": (run("\x1b[2Jclear"), Refused(told=(r"\x1b[2Jclear",))),
    "empty file": (attaching("broken/empty.csv"), Refused(told=("'empty.csv' is empty", "attach a file with content"))),
    "no PDF": (attaching("broken/fake.pdf"), Refused(told=("'fake.pdf' is named like a PDF", "convert or rename"))),
    "unknown kind": (attaching("broken/noise"), Refused(told=("of a kind that no model takes", "attach PDF"))),
    "too many files": (attaching(*["my_tools.py"] * 17), Refused(told=("more than 16 files",), also_json=True)),
    # agents
    "unknown agent": (run("assistent"), Refused(told=("'assistent'", "did you mean 'assistant'?"), also_json=True)),
    "missing folder": (run("assistant", QUESTION, "--agents", "nowhere"), Refused(told=("nowhere", "not exist"))),
    "folder is a file": (run("assistant", QUESTION, "--agents", "my_tools.py"), Refused(told=("my_tools.py", "Not a"))),
    "several problems": (
        in_broken("several"),
        Refused(told=("llm.temperature", "less than or equal to 2", "tools", "'bugdet', did you mean 'budget'?")),
    ),
    "unknown inner field": (in_broken("nested"), Refused(told=("'llm.modle', did you mean 'model'?",))),
    "alias bomb": (in_broken("bomb"), Refused(told=("bomb.yaml", "aliases (*name) are not allowed"))),
    "not UTF-8": (in_broken("latin"), Refused(told=("latin.md", "is not UTF-8 text"))),
    "over-long": (in_broken("long"), Refused(told=("long.md", "at most 65,536 are allowed"))),
    "YAML that executes": (in_broken("code"), Refused(told=("code.yaml", "python/object/apply"))),
    # questions and limits
    "empty question": (run("assistant", ""), Refused(told=("question is empty", "say what"))),
    "no question on input": (run("assistant", "-"), Refused(told=("question is empty", "say what"))),
    "over-long question": (
        run("assistant", "-"),
        Refused(
            said="ä" * (QUESTION_BYTES_MAX // 2) + "x",
            told=("at most 131,072 are allowed", "a tool can read"),
            also_json=True,
        ),
    ),
    "question of half characters": (run("assistant", "a\udcffb"), Refused(told=("not valid Unicode", "remove them"))),
    "the same on input": (run("assistant", "-"), Refused(said="a\udcffb", told=("not valid Unicode", "remove them"))),
    "no state to go on from": (
        run("assistant", QUESTION, "--from", "nothing.json"),
        Refused(told=("'nothing.json' cannot be read", "No such file")),
    ),
    "a state that is no JSON": (
        run("assistant", QUESTION, "--from", "my_tools.py"),
        Refused(told=("is not valid JSON",)),
    ),
    "a state that is none": (
        run("assistant", QUESTION, "--from", "broken/state.json"),
        Refused(told=("'broken/state.json' holds no state", "format"), also_json=True),
    ),
    "negative steps": (run("assistant", QUESTION, "--max-steps", "-1"), Refused(told=("--max-steps", "0"))),
    "steps in words": (
        run("assistant", QUESTION, "--max-steps", "two"),
        Refused(told=("--max-steps", "integer"), also_json=True),
    ),
    "seconds past all time": (run("assistant", QUESTION, "--max-seconds", "1e300"), Refused(told=("max",))),
    # ids
    "invalid id": (run("assistant", QUESTION, "--id", "mine"), Refused(told=("'mine' is not a UUID",), also_json=True)),
    "id with a line end": (
        ("stop", f"{NOBODY}\n"),
        Refused(told=("is not an id of a run or a session", "holdfast list")),
    ),
    "unknown run to show": (
        ("show", NOBODY),
        Refused(code=5, told=(f"no run {NOBODY}", "holdfast list"), also_json=True),
    ),
    "unknown run to stop": (("stop", NOBODY), Refused(code=5, told=(f"no run {NOBODY}", "holdfast list"))),
    "over-long reason": (("stop", NOBODY, "--reason", "x" * 1001), Refused(told=("1,001", "at most 1,000"))),
    "limit of nothing": (("list", "--limit", "0"), Refused(told=("between 1 and 1,000",))),
    # agents that live on
    "no agent to chat with": (("chat",), Refused(told=("which agent?", "--id"), also_json=True)),
    "unknown agent to chat with": (("chat", "assistent"), Refused(told=("'assistent'", "did you mean 'assistant'?"))),
    "invalid agent id": (
        ("send", "no id", "hi"),
        Refused(told=("'no id' is not an id of a session", "holdfast sessions")),
    ),
    "empty message": (("send", NOBODY, " "), Refused(told=("message is empty", "say what"), also_json=True)),
    "over-long message": (
        ("send", NOBODY, "-"),
        Refused(said="x" * (QUESTION_BYTES_MAX + 1), told=("at most 131,072 are allowed",)),
    ),
    "over-long message id": (("send", NOBODY, "hi", "--message-id", "m" * 65), Refused(told=("65", "1 to 64"))),
    "unknown policy": (("send", NOBODY, "hi", "--while-running", "wait"), Refused(told=("'wait'", "inject"))),
    "nothing to change": (("session", "change", NOBODY), Refused(told=("nothing to change", "--help"))),
    "negative limit to change": (("session", "change", NOBODY, "--max-cost", "-1"), Refused(told=("--max-cost", "0"))),
    "unknown action": (("session", "shwo", NOBODY), Refused(told=("shwo",))),
    "no sessions at all": (("sessions", "--limit", "0"), Refused(told=("between 1 and 1,000",))),
    "no records at all": (("records", NOBODY, "--limit", "0"), Refused(told=("between 1 and 1,000",))),
    "unknown record": (("record", NOBODY), Refused(code=5, told=(f"no record of the run {NOBODY}",))),
    "unknown run to grow a tree of": (("tree", NOBODY), Refused(code=5, told=(f"no run {NOBODY}",), also_json=True)),
    "negative steps to go back to": (("rewind", NOBODY, NOBODY, "--steps", "-1"), Refused(told=("--steps", "0"))),
    # the server
    "server not running": (
        ("list",),
        Refused(
            code=6,
            env={"TEMPORAL_ADDRESS": "127.0.0.1:1"},
            told=("127.0.0.1:1", "refused", "holdfast dev"),
            also_json=True,
        ),
    ),
    "address as a URL": (("list", "--address", "http://127.0.0.1:1"), Refused(code=6, told=("127.0.0.1:1", "right?"))),
    "address of half characters": (
        ("list", "--address", "h\udcff:1"),
        Refused(code=6, told=("address",), also_json=True),
    ),
    "unknown namespace": (("list", "--namespace", "nope"), Refused(code=6, told=("'nope'", "TEMPORAL_NAMESPACE"))),
    "unreadable profile": (
        ("list",),
        Refused(code=6, env={"TEMPORAL_PROFILE": "nope"}, told=("configuration", "'nope' not found")),
    ),
    # dev
    "port no port": (("dev", "--port", "65536"), Refused(told=("--port is 65536", "a port is 1 to 65535"))),
    "one port for two": (("dev", "--port", "4000", "--ui-port", "4000"), Refused(told=("both 4000", "two different"))),
    "directory is a file": ((*DEV, "--data-dir", "my_tools.py"), Refused(told=("my_tools.py", "choose another one"))),
    # the command line itself
    "unknown command": (("lsit",), Refused(told=("lsit",), also_json=True)),
    "no arguments": (("run",), Refused(told=("AGENT",))),
}


@pytest.fixture(scope="module")
def here(project: Project, failing: Failing) -> Project:  # noqa: ARG001  # begun here, because it takes its time
    """The project with everything in it that is to be refused."""
    broken = project.folder / "broken"
    broken.mkdir()
    for name, content in BROKEN.items():
        (broken / name).write_bytes(content)
    for name, source in MODULES.items():
        (project.folder / f"{name}.py").write_text(source)
    return project


def refused_on(here: Project, name: str, env: Mapping[str, str]) -> Project:
    """Return the project with a task queue of the case's own, so that what is started by mistake is found."""
    return here.where(**{**env, "HOLDFAST_TASK_QUEUE": f"{QUEUE}{name.replace(' ', '-')}"})


def check(plain: Ended, expected: Refused) -> None:
    assert "Traceback" not in plain.err
    assert (plain.code, plain.out) == (expected.code, ""), plain
    [line] = plain.err.splitlines()
    assert line.startswith("error: ")
    for words in expected.told:
        assert words.casefold() in line.casefold()


def check_json(as_json: Ended, plain: Ended) -> None:
    """The same was told as one JSON document, and nothing beside it."""
    assert (as_json.code, as_json.err) == (plain.code, ""), as_json
    assert as_json.document["error"]["message"] == plain.err.strip().removeprefix("error: ")


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_told_in_one_line_and_starts_nothing(here: Project, name: str) -> None:
    command, expected = CASES[name]
    asking = refused_on(here, name, expected.env)
    plain = asking.run(*command, said=expected.said, seconds_max=90)
    check(plain, expected)
    assert "\x1b" not in plain.err
    assert not (here.folder / "executed").exists()
    if expected.also_json:
        check_json(asking.run(*command, "--json", said=expected.said, seconds_max=90), plain)


@pytest.mark.slow
def test_an_id_in_use_is_told_in_one_line(here: Project) -> None:
    taken = start_id(here)
    plain, as_json = refused_on(here, "taken id", {}).both(*run("assistant", QUESTION, "--id", taken))
    check(plain, Refused(code=7, told=(taken, "already exists", "choose another id")))
    check_json(as_json, plain)


@embedded_only
@pytest.mark.parametrize("option", ["--port", "--ui-port"])
def test_a_port_in_use_is_told_in_one_line_and_no_server_is_started(own: Project, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        plain, as_json = own.both(*DEV, option, port)
    check(plain, Refused(code=7, told=(f"port {port} on 127.0.0.1 is taken", f"another one with {option}")))
    check_json(as_json, plain)
    assert not (own.folder / "data" / "server.json").exists()


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("nowhere", ("'nowhere'", "not found from")),
        ("raises", ("'raises'", "RuntimeError: no luck today")),
        ("needs", ("'needs'", "'no_such_package'")),
        ("exits", ("'exits'", "SystemExit")),
    ],
)
def test_a_module_that_cannot_be_served_is_told_in_one_line(here: Project, module: str, told: tuple[str, ...]) -> None:
    ended = here.run("worker", "--import", module)
    assert (ended.code, ended.out) == (2, ""), ended
    [line] = ended.err.splitlines()
    assert line.startswith("error: ")
    for words in told:
        assert words.casefold() in line.casefold()


@embedded_only
@pytest.mark.slow
def test_dev_tells_what_its_worker_cannot_serve_and_leaves_no_server(own: Project) -> None:
    plain, as_json = own.both(*DEV, "--import", "nowhere")
    assert not (own.folder / "data" / "server.json").exists()
    check(plain, Refused(told=("'nowhere'", "not found from")))
    check_json(as_json, plain)


def test_a_key_file_that_is_not_there_is_told_in_one_line(here: Project) -> None:
    ended = here.where("OPENAI_API_KEY", OPENAI_API_KEY_FILE="nowhere.key").run("worker", "--import", "my_tools")
    assert (ended.code, ended.out) == (2, "")
    [line] = ended.err.splitlines()
    assert "OPENAI_API_KEY_FILE 'nowhere.key' cannot be read" in line


def test_a_price_file_that_is_not_there_is_told_before_the_server_is_waited_for(here: Project) -> None:
    away = here.where(HOLDFAST_PRICES="nowhere.json", TEMPORAL_ADDRESS="127.0.0.1:1")
    ended = away.run("worker", "--import", "my_tools", "--server-wait-seconds", "600")
    assert (ended.code, ended.out) == (2, "")
    [line] = ended.err.splitlines()
    assert "HOLDFAST_PRICES 'nowhere.json' cannot be read" in line


async def test_none_of_them_has_started_a_run(here: Project) -> None:
    control = await asyncio.to_thread(start_id, here, "assistant", "--task-queue", f"{QUEUE}not")
    client = await Holdfast.connect(here.settings)
    found: set[str] = set()
    while control not in found:  # the listing follows the start a little later
        found = {each.id async for each in client.temporal.list_workflows(f"TaskQueue STARTS_WITH '{QUEUE}'")}
    assert found == {control}
