"""The shape of the house: what may import what, how large things get, what the documents name."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
MEDIAN_FILE_LINES_MAX = 130
MEDIAN_FUNCTION_LINES_MAX = 10
IMPURE = {
    *("asyncio", "concurrent", "ctypes", "glob", "http", "io", "multiprocessing", "os", "pathlib", "pickle", "queue"),
    *("random", "secrets", "select", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile"),
    *("threading", "time", "urllib", "zoneinfo"),
}
IMPURE_CALLS = {"now", "utcnow", "today", "uuid1", "uuid4", "open", "print", "input", "eval", "exec", "getenv"}
DETERMINISTIC_ASYNCIO = {"CancelledError", "Semaphore", "Task", "create_task", "current_task", "sleep"}
"""What a workflow's event loop does the same way in every replay. `asyncio.wait` is not among them: it takes sets."""
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "shared", "misc"}


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


CORE = sources("holdfast/core")
SHIPPED = [*sources("holdfast", "workflows", "activities"), ROOT / "worker.py", ROOT / "workers.py"]


@cache
def tree(path: Path) -> ast.Module:
    """Parse `path`, once: Python 3.11 counts wrongly where the collector runs in the middle (cpython#106905)."""
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


def imports(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path}: relative imports hide what depends on what"
            yield node.module


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_imports_only_itself_pydantic_and_the_pure_part_of_the_standard_library(path: Path) -> None:
    for name in imports(path):
        top = name.partition(".")[0]
        assert top not in IMPURE, f"{path.name} imports {name}"
        assert top in {"holdfast", "pydantic", "pydantic_core"} or top in sys.stdlib_module_names, name
        assert top != "holdfast" or name.startswith("holdfast.core"), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_makes_no_time_id_file_or_output(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            assert called not in IMPURE_CALLS, f"{path.name}:{node.lineno} calls {called}"


WORKFLOW_CLOCKS = {("query_handlers.py", "datetime.now")}
"""The one look at a real clock: for the answer to a query, which decides nothing."""


@pytest.mark.parametrize("path", sources("workflows"), ids=lambda path: path.name)
def test_workflows_have_no_clock_randomness_io_threads_or_environment(path: Path) -> None:
    """What the SDK's sandbox would refuse at run time, for 1.1 to 1.4 ms of CPU per step."""
    for name in imports(path):
        assert name.partition(".")[0] not in IMPURE - {"asyncio"}, f"{path.name} imports {name}"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "asyncio":
            assert node.attr in DETERMINISTIC_ASYNCIO, f"{path.name}:{node.lineno} uses asyncio.{node.attr}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            impure = called.rpartition(".")[2] in IMPURE_CALLS and called.partition(".")[0] != "workflow"
            assert not impure or (path.name, called) in WORKFLOW_CLOCKS, f"{path.name}:{node.lineno} calls {called}"


def test_the_client_and_the_core_never_import_the_deployment() -> None:
    for path in sources("holdfast"):
        for name in imports(path):
            assert name.partition(".")[0] not in {"workflows", "activities", "worker", "workers", "tests"}, path


def test_workflows_and_activities_share_only_the_core() -> None:
    for path in sources("workflows"):
        assert not any(name.startswith("activities") for name in imports(path)), path
        ours = [name for name in imports(path) if name.startswith("holdfast")]
        assert all(name.startswith("holdfast.core") for name in ours), path
    for path in sources("activities"):
        assert not any(name.startswith("workflows") for name in imports(path)), path


def test_the_core_works_without_temporal_and_openai() -> None:
    hide = "import sys; sys.modules.update(temporalio=None, openai=None, aiohttp=None, obstore=None); "
    use = "import holdfast, holdfast.core.loop.agent_loop, holdfast.local, holdfast.testing.scripted_model; "
    use += "import holdfast.client"
    subprocess.run([sys.executable, "-c", hide + use], check=True, cwd=ROOT)


def test_importing_does_nothing() -> None:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in SHIPPED if path.name != "__init__.py"]
    before = "import socket, builtins, os; "
    deny = "socket.socket.connect = None; builtins.print = None; os.mkdir = None; "
    use = "import importlib; [importlib.import_module(name) for name in " + repr(names) + "]"
    done = subprocess.run([sys.executable, "-c", before + deny + use], check=False, cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done


def test_files_and_functions_stay_small() -> None:
    for path in SHIPPED:
        assert len(path.read_text().splitlines()) <= FILE_LINES_MAX, path
        for function in functions(path):
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{path}:{function.lineno} {function.name} has {length} lines"
    lengths = [len(path.read_text().splitlines()) for path in SHIPPED if path.name != "__init__.py"]
    assert median(lengths) <= MEDIAN_FILE_LINES_MAX
    bodies = [
        (function.end_lineno or 0) - function.body[0].lineno + 1 for path in SHIPPED for function in functions(path)
    ]
    assert median(bodies) <= MEDIAN_FUNCTION_LINES_MAX


def test_every_module_says_what_it_holds_and_none_has_a_vague_name() -> None:
    for path in SHIPPED:
        assert ast.get_docstring(tree(path)), f"{path} has no docstring"
        assert path.stem not in VAGUE_NAMES, path


def test_no_data_is_unpickled_or_evaluated() -> None:
    for path in SHIPPED:
        assert not {"pickle", "marshal", "shelve"} & set(imports(path)), path
        assert not re.search(r"\b(eval|exec)\(|yaml\.load\((?![^)]*_PlainLoader)", path.read_text()), path


DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_names_only_paths_that_exist(document: Path) -> None:
    text = document.read_text()
    named = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml|lock))`", text))
    named |= {target for target in re.findall(r"\]\(([^)#]+)", text) if "://" not in target}
    missing = [name for name in sorted(named) if not _exists(name, document)]
    assert not missing, f"{document.name} names {missing}"


USERS_OWN = ("agents/", "my_tools.py", "my_script.py", ".holdfast/", ".venv/")
"""What a document says of the reader's folder, not of this one."""


def _exists(name: str, document: Path) -> bool:
    if name.startswith(USERS_OWN):
        return True
    return any((base / name).exists() for base in (ROOT, document.parent, ROOT / "holdfast"))
