"""The shape of the house: what may import what, how large things get, what the documents name."""

from __future__ import annotations

import ast
import gc
import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from holdfast.runtime.imports import LIBRARIES, TAKEN
from tests.conftest import LONGEST

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


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All that `path` is made of: hundreds of tests go through each file."""
    return list(ast.walk(tree(path)))


def imports(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path}: relative imports hide what depends on what"
            yield node.module


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


PURE = {"holdfast", "pydantic", "pydantic_core", "typing_extensions"}


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_imports_only_itself_pydantic_and_the_pure_part_of_the_standard_library(path: Path) -> None:
    for name in imports(path):
        top = name.partition(".")[0]
        assert top not in IMPURE, f"{path.name} imports {name}"
        assert top in PURE or top in sys.stdlib_module_names, name
        assert top != "holdfast" or name.startswith("holdfast.core"), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_makes_no_time_id_file_or_output(path: Path) -> None:
    for node in nodes(path):
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
    for node in nodes(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "asyncio":
            assert node.attr in DETERMINISTIC_ASYNCIO, f"{path.name}:{node.lineno} uses asyncio.{node.attr}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            impure = called.rpartition(".")[2] in IMPURE_CALLS and called.partition(".")[0] != "workflow"
            assert not impure or (path.name, called) in WORKFLOW_CLOCKS, f"{path.name}:{node.lineno} calls {called}"


LAYERS = (
    "core.base",
    "core.conversation",
    "core.tools",
    "core.agent",
    "core.wire",
    "core.loop",
    "core.session",
    "runtime",
    "tools",
    "models",
    "mcp",
    "testing",
    "storage",
    "workspace",
    "telemetry",
    "capabilities",
    "local",
    "connection",
    "sinks",
    "client",
    "server",
    "mcp_serve",
    "view",
    "cli",
)
"""The packages of `holdfast`; each may import those before it."""
TOP = {"holdfast", "holdfast.__main__", "holdfast.api", "holdfast.errors", "holdfast.events", "holdfast.lazy_names"}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in SHIPPED}


def ours(path: Path) -> set[str]:
    """Modules of ours that a file imports, also within functions and for type checkers alone."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {each if each in MODULES else node.module for each in full}
    return found & MODULES.keys() - {name_of(path)}


def layer(module: str) -> int:
    [place] = [number for number, each in enumerate(LAYERS) if f"{module}.".startswith(f"holdfast.{each}.")]
    return place


@pytest.mark.slow
def test_imports_point_downward_between_the_packages() -> None:
    inner = {name: path for name, path in MODULES.items() if name.startswith("holdfast.") and name not in TOP}
    inner.pop("holdfast.core")  # the folder itself
    upward = [
        f"{name} imports {other}"
        for name, path in inner.items()
        for other in ours(path) & inner.keys()
        if layer(other) > layer(name)
    ]
    assert upward == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: ours(path) for name, path in MODULES.items() if path.name != "__init__.py"}
    while leaves := [name for name, others in graph.items() if not others & graph.keys()]:
        for name in leaves:
            del graph[name]
    while roots := [name for name in graph if not any(name in others for others in graph.values())]:
        for name in roots:
            del graph[name]
    assert graph == {}, "each of these is in a circle, or between two"


FOLDER_MODULES_MAX = 25


def test_a_folder_holds_no_more_modules_than_one_can_survey() -> None:
    sizes = Counter(path.parent.relative_to(ROOT) for path in SHIPPED if path.name != "__init__.py")
    assert {str(folder): size for folder, size in sizes.items() if size > FOLDER_MODULES_MAX} == {}


FORBIDDEN_STEMS = {
    *("tell", "told", "telling", "say", "said", "saying", "hear", "heard", "hearing", "ask", "asked", "asking"),
    *("keep", "kept", "keeping", "known", "given", "wanted", "begun", "beginning"),
    *VAGUE_NAMES,
}


def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


def test_modules_and_classes_are_named_by_nouns_of_the_field() -> None:
    """`docs/vocabulary.md` has the words; these say nothing of what a module or a class is."""
    bad = [name for name in MODULES if words_of(name.rpartition(".")[2]) & FORBIDDEN_STEMS]
    for path in SHIPPED:
        classes = [node.name for node in nodes(path) if isinstance(node, ast.ClassDef)]
        bad += [f"{name_of(path)}.{name}" for name in classes if words_of(name) & FORBIDDEN_STEMS]
    assert bad == []


def test_no_module_of_a_user_replaces_what_we_import() -> None:
    outside = {name.partition(".")[0] for path in SHIPPED for name in imports(path)}
    assert outside - {"_typeshed"} <= TAKEN, "LIBRARIES of holdfast/runtime/imports.py"
    assert outside | {"pydantic_core", "httpx"} >= LIBRARIES, "it names what nothing imports"


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


@pytest.mark.slow
def test_importing_does_nothing() -> None:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in SHIPPED if path.name != "__init__.py"]
    before = "import socket, builtins, os; "
    deny = "socket.socket.connect = None; builtins.print = None; os.mkdir = None; "
    use = "import importlib; [importlib.import_module(name) for name in " + repr(names) + "]"
    done = subprocess.run([sys.executable, "-c", before + deny + use], check=False, cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done


@pytest.mark.slow
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
        assert not re.search(r"\b(eval|exec)\(|yaml\.load\((?![^)]*PlainLoader)", path.read_text()), path


def test_the_files_of_tests_that_are_begun_with_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).exists()] == []


DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_names_only_paths_that_exist(document: Path) -> None:
    text = document.read_text()
    named = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml|lock))`", text))
    named |= {target for target in re.findall(r"\]\(([^)#]+)", text) if "://" not in target}
    missing = [name for name in sorted(named) if not _exists(name, document)]
    assert not missing, f"{document.name} names {missing}"


PUBLIC = {
    "holdfast",
    *(f"holdfast.{name}" for name in ("client", "client.sync", "errors", "events", "local", "models", "server")),
    *(f"holdfast.{name}" for name in ("capabilities", "sinks", "storage", "testing", "tools", "view")),
}
"""What programs of users import from; each says by `__all__` what of it is meant for them."""

PROGRAMS = [*(ROOT / "examples").rglob("*.py"), *DOCUMENTS]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_documents_and_examples_import_what_is_public(program: Path) -> None:
    for module, names in re.findall(
        r"^ *from (holdfast[\w.]*) import (\([^)]*\)|.*)", program.read_text(), re.MULTILINE
    ):
        assert module in PUBLIC, f"{program.name} imports from {module}"
        public = set(importlib.import_module(module).__all__)
        assert {name.split(" as ")[0].strip() for name in re.findall(r"[A-Za-z_][\w ]*", names)} <= public, names
    assert not re.search(r"^ *import holdfast\.", program.read_text(), re.MULTILINE)


USERS_OWN = ("agents/", "my_tools.py", "my_script.py", ".holdfast/", ".venv/")
"""What a document says of the reader's folder, not of this one."""


def _exists(name: str, document: Path) -> bool:
    if name.startswith(USERS_OWN):
        return True
    return any((base / name).exists() for base in (ROOT, document.parent, ROOT / "holdfast"))
