"""Completing words in a shell: the scripts, agents' names, ids of runs; silence where nothing can be known."""

from __future__ import annotations

import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.program import HOLDFAST, PROJECT, Ended, Project, Running, start_id

AGENTS = sorted(path.stem for path in (PROJECT / "agents").iterdir())


def completed(project: Project, line: str, **env: str) -> Ended:
    """Return what bash is told that the last word of `line` can become."""
    place = str(len(line.split(" ")) - 1)
    return with_variables(project, _HOLDFAST_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=place, **env).run()


def with_variables(project: Project, **env: str) -> Project:
    """Return the project with further variables, which a forked command heeds as well."""
    return replace(project, env={**project.env, **env})


def in_shell(project: Project, *command: str) -> list[str]:
    """Return the lines that a shell prints, in the project's folder with our program in its path."""
    env = {**project.env, "PATH": f"{HOLDFAST.parent}:{project.env['PATH']}", "HOME": str(project.folder.parent)}
    done = subprocess.run(command, cwd=project.folder, env=env, capture_output=True, text=True, timeout=90, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.slow
def test_commands_options_and_agents_are_offered(project: Project) -> None:
    for line, offered in (
        ("holdfast sess", ["sessions", "session"]),
        ("holdfast show --s", ["--steps"]),
        ("holdfast run ", AGENTS),
        ("holdfast chat c", [each for each in AGENTS if each.startswith("c")]),
        ("holdfast run --agents nowhere a", []),
        ("holdfast show ", []),
    ):
        told = completed(project, line, TEMPORAL_ADDRESS="127.0.0.1:1")
        assert (told.code, told.err, told.out.split()) == (0, "", offered), line


def test_a_server_that_does_not_answer_is_not_waited_for(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = completed(project, "holdfast stop ", TEMPORAL_ADDRESS=f"127.0.0.1:{silent.getsockname()[1]}")
    assert (told.code, told.out.strip(), told.err) == (0, "", "")
    assert told.seconds < 20


@pytest.mark.slow
def test_bash_completes_with_the_script_that_we_print(project: Project, tmp_path: Path) -> None:
    printed = project.run("--show-completion", "bash")
    assert (printed.code, printed.err) == (0, "")
    (tmp_path / "script").write_text(printed.out)
    asked = "COMP_WORDS=(holdfast run te); COMP_CWORD=2; _holdfast_completion holdfast; echo ${COMPREPLY[@]}"
    assert in_shell(project, "bash", "--norc", "-c", f"source {tmp_path}/script; {asked}") == ["teller"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes_with_the_script_that_we_install(project: Project, tmp_path: Path) -> None:
    assert with_variables(project, HOME=str(tmp_path)).run("--install-completion", "fish").code == 0
    script = tmp_path / ".config/fish/completions/holdfast.fish"
    assert in_shell(project, "fish", "-c", f"source {script}; complete -C 'holdfast run te'") == ["teller"]


def test_zsh_is_told_in_its_own_way(project: Project, tmp_path: Path) -> None:
    asked = {"_HOLDFAST_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "holdfast chat c"}
    told = with_variables(project, **asked).run()
    assert (told.code, told.err) == (0, "")
    assert told.out == '_arguments \'*: :(("careful"\n"clerk"))\'\n'
    assert with_variables(project, HOME=str(tmp_path)).run("--install-completion", "zsh").code == 0
    assert (tmp_path / ".zfunc" / "_holdfast").read_text().startswith("#compdef holdfast")


@pytest.mark.temporal
def test_ids_of_runs_are_offered(project: Project, dev: Running) -> None:  # noqa: ARG001  # its server
    under_way = start_id(project, "slow")
    found: list[str] = []
    for _ in range(30):  # the server lists a run a moment after its start
        told = completed(project, f"holdfast stop {under_way[:6]}")
        assert (told.code, told.err) == (0, "")
        if found := told.out.split():
            break
    assert found == [under_way]
    assert project.run("stop", under_way).code == 0
