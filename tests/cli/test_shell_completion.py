"""Completing words in a shell: the scripts, agents' names, ids of runs; silence where nothing can be known."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import HOLDFAST, PROJECT, Ended, Project, Running, start_id
from tests.cli.warm import Warm

AGENTS = sorted(path.stem for path in (PROJECT / "agents").iterdir())


def completed(quick: Warm, line: str, **env: str) -> Ended:
    """Return what bash is told that the last word of `line` can become."""
    place = str(len(line.split(" ")) - 1)
    return quick.run(_HOLDFAST_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=place, **env)


def in_shell(project: Project, *command: str) -> list[str]:
    """Return the lines that a shell prints, in the project's folder with our program in its path."""
    env = {**project.env, "PATH": f"{HOLDFAST.parent}:{project.env['PATH']}", "HOME": str(project.folder.parent)}
    done = subprocess.run(command, cwd=project.folder, env=env, capture_output=True, text=True, timeout=90, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_commands_options_and_agents_are_offered(quick: Warm) -> None:
    for line, offered in (
        ("holdfast sess", ["sessions", "session"]),
        ("holdfast show --s", ["--steps"]),
        ("holdfast run ", AGENTS),
        ("holdfast chat c", [each for each in AGENTS if each.startswith("c")]),
        ("holdfast run --agents nowhere a", []),
        ("holdfast show ", []),
    ):
        told = completed(quick, line, TEMPORAL_ADDRESS="127.0.0.1:1")
        assert (told.code, told.err, told.out.split()) == (0, "", offered), line


def test_a_server_that_does_not_answer_is_not_waited_for(quick: Warm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = completed(quick, "holdfast stop ", TEMPORAL_ADDRESS=f"127.0.0.1:{silent.getsockname()[1]}")
    assert (told.code, told.out.strip(), told.err) == (0, "", "")
    assert told.seconds < 20


def test_bash_completes_with_the_script_that_we_print(quick: Warm, tmp_path: Path) -> None:
    printed = quick.run("--show-completion", "bash")
    assert (printed.code, printed.err) == (0, "")
    (tmp_path / "script").write_text(printed.out)
    asked = "COMP_WORDS=(holdfast run te); COMP_CWORD=2; _holdfast_completion holdfast; echo ${COMPREPLY[@]}"
    assert in_shell(quick.project, "bash", "--norc", "-c", f"source {tmp_path}/script; {asked}") == ["teller"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes_with_the_script_that_we_install(quick: Warm, tmp_path: Path) -> None:
    assert quick.run("--install-completion", "fish", HOME=str(tmp_path)).code == 0
    script = tmp_path / ".config/fish/completions/holdfast.fish"
    assert in_shell(quick.project, "fish", "-c", f"source {script}; complete -C 'holdfast run te'") == ["teller"]


def test_zsh_is_told_in_its_own_way(quick: Warm, tmp_path: Path) -> None:
    told = quick.run(_HOLDFAST_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="holdfast chat c")
    assert (told.code, told.err) == (0, "")
    assert told.out == '_arguments \'*: :(("careful"\n"clerk"))\'\n'
    assert quick.run("--install-completion", "zsh", HOME=str(tmp_path)).code == 0
    assert (tmp_path / ".zfunc" / "_holdfast").read_text().startswith("#compdef holdfast")


@pytest.mark.temporal
def test_ids_of_runs_are_offered(quick: Warm, dev: Running) -> None:  # noqa: ARG001  # its server
    under_way = start_id(quick.project, "slow")
    found: list[str] = []
    for _ in range(30):  # the server lists a run a moment after its start
        told = completed(quick, f"holdfast stop {under_way[:6]}")
        assert (told.code, told.err) == (0, "")
        if found := told.out.split():
            break
    assert found == [under_way]
    assert quick.run("stop", under_way).code == 0
