"""The wheel, installed into an empty environment, in a user's own folder: what a newcomer gets without a clone.

The dependencies are linked from this environment, exactly those that the wheel's metadata names (with the extras
`temporal` and `openai`, and theirs in turn) and nothing else. So the test needs no network and still fails when a
package is imported that the wheel does not declare; what it does not show is that an index can serve them.
"""

from __future__ import annotations

import ensurepip
import importlib.util
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Generator
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from holdfast.testing.openai_server import FakeOpenAI
from tests.cli.program import SCRIPTS, Project, Running

pytestmark = [pytest.mark.slow, pytest.mark.temporal, pytest.mark.timeout(180)]

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("temporal", "openai")
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"

IN_THE_WAY = "raise SystemExit('a module of the user has taken the place of ours')\n"
QUESTION = "what is six times seven?"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as a release would build it; its build backend is part of the development environment."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=90)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel and what it declares."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False)
    python = str(folder / "bin" / "python")
    installer = installer_into(python)
    install = [*installer, "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=120, env={"PATH": os.environ["PATH"]})
    for name in declared(wheel):
        link(name, folder)
    return folder


@pytest.fixture(scope="module")
def user(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Project]:
    """A user's folder, with modules in it that have the names of ours."""
    with FakeOpenAI.in_thread(SCRIPTS) as endpoint:
        project = Project.at(tmp_path_factory.mktemp("user") / "project", endpoint.base_url)
        for name in ("worker.py", "workers.py", "workflows.py", "activities.py"):
            (project.folder / name).write_text(IN_THE_WAY)
        yield Project(project.folder, project.env, environment / "bin" / "holdfast")


@pytest.fixture(scope="module")
def dev(user: Project) -> Generator[Running]:
    with user.dev() as dev:
        yield dev


def test_the_wheel_s_top_level_is_ours_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    [info] = {name.partition("/")[0] for name in names} - {"holdfast"}
    assert info.startswith("holdfast-")
    assert info.endswith(".dist-info")
    assert f"{info}/licenses/LICENSE" in names


def test_the_wheel_holds_the_whole_deployment_and_nothing_of_the_checkout_s_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {path.relative_to(ROOT).as_posix() for folder in ("workflows", "activities") for path in tree(folder)}
    assert {f"holdfast/_app/{name}" for name in sources | {"worker.py", "workers.py"}} <= names
    assert {path.relative_to(ROOT).as_posix() for path in tree("holdfast")} <= names
    assert "holdfast/py.typed" in names
    assert not [name for name in names if name.endswith((".pyc", ".md", ".db")) or "test_" in name]


def test_importing_the_wheel_takes_it_from_the_environment_and_not_from_the_checkout(environment: Path) -> None:
    show = "import holdfast.server.worker_process as found; print(found.__file__, found.app_folder(), sep='\\n')"
    python = [str(environment / "bin" / "python"), "-I", "-c", show]
    shown = subprocess.run(python, check=True, capture_output=True, text=True, timeout=90).stdout.splitlines()
    assert shown == [
        str(environment / SITE / "holdfast" / "server" / "worker_process.py"),
        str(environment / SITE / "holdfast" / "_app"),
    ]


def test_a_user_s_agent_with_his_own_tool_runs_to_its_end(user: Project, dev: Running) -> None:
    assert dev.process.poll() is None
    ended = user.run("run", "assistant", QUESTION, "--json")
    assert (ended.code, ended.err) == (0, "")
    told = ended.document
    assert (told["status"], told["final_response"], told["steps"]) == ("completed", "42", 2)
    assert "ok multiply: 42" in user.run("show", told["execution_id"]).out


def test_nothing_was_written_into_the_package(environment: Path, dev: Running) -> None:
    assert dev.process.poll() is None
    package = environment / SITE / "holdfast"
    strange = [path for path in package.rglob("*") if path.suffix not in ("", ".py", ".pyc", ".typed")]
    assert not strange


@pytest.mark.parametrize(("missing", "extra"), [("openai", "openai"), ("temporalio", "temporal")])
def test_a_worker_without_an_extra_names_it(
    wheel: Path, environment: Path, user: Project, tmp_path: Path, missing: str, extra: str
) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    (tmp_path / "venv" / SITE / "holdfast").symlink_to(environment / SITE / "holdfast")
    for name in declared(wheel) - {missing}:
        link(name, tmp_path / "venv")
    program = tmp_path / "venv" / "bin" / "holdfast"
    program.write_text(f"#!{program.with_name('python')}\nfrom holdfast.cli.main import main\n\nmain()\n")
    program.chmod(0o755)
    ended = Project(user.folder, user.env, program).run("worker", "--import", "my_tools")
    assert (ended.code, ended.out) == (8, ""), ended.err
    [line] = ended.err.splitlines()
    assert f"pip install '/path/to/holdfast[{extra}]'" in line


def installer_into(python: str) -> list[str]:
    """Return how to install into another environment: by uv, by this environment's pip, or by the one Python bundles.

    (Debian's Python bundles none; an environment made by uv has none.)
    """
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", python]
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "--python", python, "install"]
    [bundled] = Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl")
    return [python, str(bundled / "pip"), "install"]  # a wheel runs as it is


def tree(folder: str) -> list[Path]:
    return [path for path in (ROOT / folder).rglob("*.py") if "_app" not in path.parts]


def declared(wheel: Path) -> set[str]:
    """Return the names of all packages that the wheel asks for, itself or through others."""
    with zipfile.ZipFile(wheel) as opened:
        [name] = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(opened.read(name).decode())
    wanted = [(Requirement(line), extra) for line in metadata.get_all("Requires-Dist", []) for extra in ("", *EXTRAS)]
    found: set[str] = set()
    while wanted:
        requirement, extra = wanted.pop()
        name = canonicalize_name(requirement.name)
        if name == "holdfast" or not (requirement.marker is None or requirement.marker.evaluate({"extra": extra})):
            continue
        if name in found and not requirement.extras:
            continue
        found.add(name)
        lines = distribution(name).requires or []
        wanted += [(Requirement(line), each) for line in lines for each in ("", *requirement.extras)]
    return found


def link(name: str, folder: Path) -> None:
    """Make an installed package, and its programs, appear in the environment `folder`."""
    try:
        package = distribution(name)
    except PackageNotFoundError:
        pytest.fail(f"the wheel asks for {name}, which is not installed here")
    assert isinstance(package, PathDistribution)
    for file in package.files or []:
        top = file.parts[0]
        place = folder / "bin" / file.name if top == ".." else folder / SITE / top
        if not place.exists() and "__pycache__" not in file.parts:
            place.symlink_to(Path(str(package.locate_file(file if top == ".." else top))).resolve())
