"""docs/cli.md says what the program does: exit codes, options, defaults, environment variables."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import pytest

from holdfast.cli import main
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.base.bounds import LISTED_MAX, QUESTION_BYTES_MAX, REASON_CHARS_MAX
from holdfast.models.model_apis import APIS
from tests.cli.page import PAGE, common_options, first_words, options, rows
from tests.cli.program import HOLDFAST, Project

ROOT = PAGE.parents[1]
DECISIONS = ("waiting", "approve", "deny", "edit", "answer")
RUNS = ("dev", "worker", "run", "watch", "top", "stop", *DECISIONS, "show", "export", "cost", "list")
AGENTS = (
    "chat",
    "send",
    "sessions",
    "records",
    "record",
    "rewind",
    "fork",
    "tree",
    "workspace",
    "codec-key",
    "codec-server",
)
SERVERS = ("models", "mcp", "mcp-serve", "setup", "doctor")
COMMANDS = (*RUNS, *AGENTS, *SERVERS, "session", "deploy", "storage")
AT_ONCE = 3
"""So many calls run at the same time."""

ACTIONS = {
    "session": ("show", "stop", "clear", "suspend", "resume", "close", "change"),
    "deploy": ("status", "promote", "ramp", "drain"),
    "storage": ("gc",),
}


@pytest.fixture(scope="module")
def helps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each command says of itself; the key "" is the program's own help."""
    env = {"COLUMNS": "250", "PATH": str(HOLDFAST.parent), "LANG": "C.UTF-8"}
    here = Project(tmp_path_factory.mktemp("help"), env)

    def ask(command: str) -> str:
        told = ""
        for action in ([], *([action] for action in ACTIONS.get(command, ()))):
            ended = here.run(*([command] if command else []), *action, "--help")
            assert (ended.code, ended.err) == (0, "")
            told += ended.out
        return told

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(("", *COMMANDS), pool.map(ask, ("", *COMMANDS)), strict=True))


def test_every_exit_code_of_the_program_is_told() -> None:
    documented = {int(code) for code, *_ in rows("When something is wrong")}
    in_source = {int(code) for code in re.findall(r"^(\d+)  ", main.__doc__ or "", flags=re.MULTILINE)}
    assert documented == in_source
    assert {main.INTERRUPTED, main.BROKEN_PIPE} < documented


def test_every_command_has_its_section(helps: dict[str, str]) -> None:
    offered = re.findall(r"^│ (\w[\w-]*)  ", helps[""], flags=re.MULTILINE)
    assert tuple(offered) == COMMANDS
    assert re.findall(r"^## holdfast ([\w-]+)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize("command", ACTIONS)
def test_every_action_is_told(helps: dict[str, str], command: str) -> None:
    offered = re.findall(r"^│ (\w+)  ", helps[command].split("Usage:")[1], flags=re.MULTILINE)
    assert tuple(offered) == ACTIONS[command]
    page = PAGE.read_text(encoding="utf-8")
    if len(ACTIONS[command]) == 1:
        assert f"## holdfast {command} {ACTIONS[command][0]}\n" in page
    else:
        assert tuple(row[0].strip("`").split()[0] for row in rows(f"holdfast {command}", 0)) == ACTIONS[command]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_told_and_none_else(helps: dict[str, str], command: str) -> None:
    offered = set(re.findall(r"(?<![\w-])--[a-z-]+", helps[command])) - {"--help"}
    common = [option for option, commands in common_options(COMMANDS).items() if command in commands]
    documented = [*common, *(row[0].strip("`") for row in options(f"holdfast {command}"))]
    documented += [f"--{field.name.replace('_', '-')}" for field in fields(WorkerSettings) if command == "worker"]
    assert set(documented) == offered
    assert len(documented) == len(offered)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_defaults_are_the_real_ones(helps: dict[str, str], command: str) -> None:
    shown = re.findall(r"(--[a-z-]+) .*\[default: (\d+)]", helps[command])
    documented = {option.strip("`"): default for option, default, _ in options(f"holdfast {command}")}
    common = common_options(COMMANDS)
    shared = {option: default for option, default, *_ in rows("Common options") if command in common[option.strip("`")]}
    documented |= {option.strip("`"): default for option, default in shared.items()}
    assert dict(shown) == {option: default for option, default in documented.items() if default.isdigit()}


def test_every_variable_is_told() -> None:
    folders = ("holdfast", "activities")
    sources = [ROOT / "worker.py", *(path for folder in folders for path in (ROOT / folder).rglob("*.py"))]
    read = {
        name
        for path in sources
        for name in re.findall(
            r"(?:get\(|VARIABLE: Final = |_is_on\(environment, )\"((?:HOLDFAST|OPENAI|TEMPORAL)_[A-Z_]+)\"",
            path.read_text(),
        )
    }
    read |= {name for api in APIS.values() for name in (api.base_url_variable, api.key_variable, api.key_file_variable)}
    documented = set(first_words("Environment"))
    assert read <= documented
    assert documented - read == {"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_API_KEY"}, "the SDK's own"


@pytest.mark.parametrize("limit", [QUESTION_BYTES_MAX, REASON_CHARS_MAX, LISTED_MAX])
def test_the_limits_are_the_real_ones(limit: int) -> None:
    assert f" {limit:,} " in PAGE.read_text(encoding="utf-8")


def test_the_page_shows_the_variables_help_names(helps: dict[str, str]) -> None:
    named = {name for text in helps.values() for name in re.findall(r"\b(?:HOLDFAST|TEMPORAL)_[A-Z_]+", text)}
    assert named <= set(first_words("Environment"))
