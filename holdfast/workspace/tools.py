"""The tools of the capability `workspace`: commands and files in a run's own workspace."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import Field

from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.frozen import trusted
from holdfast.core.tools.call_context import PROGRESS_TEXT_CHARS_MAX
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_results import ToolReply
from holdfast.core.tools.tools import AnyTool, tool
from holdfast.core.tools.workspace_profile import BACKENDS, WORKSPACE
from holdfast.workspace.calls import Answer, WorkspaceCalls

COMMAND_SECONDS: Final = 120
"""How long a command may take unless the model says otherwise."""

COMMAND_SECONDS_MAX: Final = 3600
"""The longest that it may say: work of hours is several calls."""

CALL_SECONDS_MAX: Final = COMMAND_SECONDS_MAX + 120.0
"""How long the whole call may take: a container may have to be made, and files restored."""

LINES_MAX: Final = 2_000
"""How many lines of a file are read unless the model says otherwise."""

FILE_SECONDS: Final = 120.0
"""How long an operation on files may take, a container's start included."""

CODE_CHARS_MAX: Final = 200_000
"""The longest text that one call may write or run: it is in the history."""

Code = Annotated[str, Field(max_length=CODE_CHARS_MAX)]
Seconds = Annotated[int, Field(ge=1, le=COMMAND_SECONDS_MAX)]


class WorkspaceTools:
    """The tools over the backends of a worker; with `task_queue`, they are served there and not beside the agents."""

    def __init__(self, calls: WorkspaceCalls, task_queue: str | None = None) -> None:
        self._calls = calls
        # which backends the workers of another queue have, they say themselves when a call comes
        self._backends = tuple(calls.backends) if task_queue is None else BACKENDS
        self._task_queue = task_queue

    def toolset(self) -> Toolset:
        """Return the tools and the capability that contains them."""
        made = (*self._commands(), *self._readers(), *self._writers())
        place = {"workspace": True, "task_queue": self._task_queue}
        tools = tuple(replace(each, traits=each.traits.model_copy(update=place)) for each in made)
        bundle = Capability(name=WORKSPACE, tools=tuple(each.name for each in tools))
        return Toolset(tools=tools, capabilities=(bundle,), workspaces=self._backends)

    def _commands(self) -> Iterable[AnyTool]:
        @tool(name="shell", at_most_once=True, sequential=True, timeout_seconds=CALL_SECONDS_MAX)
        async def shell(  # noqa: D417  # the context is hidden from the model
            command: Code, context: ToolContext, folder: str = ".", timeout_seconds: Seconds = COMMAND_SECONDS
        ) -> object:
            """Run a shell command in the workspace; its output, exit code and duration are returned.

            It is not interactive. All that it starts is ended with it, also in the background.

            Args:
                command: the command, for /bin/sh.
                folder: where it runs, below the workspace.
                timeout_seconds: when it is ended.
            """
            return await self._run(context, {"shell": command, "folder": folder, "timeout": timeout_seconds})

        @tool(name="run_python", at_most_once=True, sequential=True, timeout_seconds=CALL_SECONDS_MAX)
        async def run_python(code: Code, context: ToolContext, timeout_seconds: Seconds = COMMAND_SECONDS) -> object:  # noqa: D417
            """Run Python code in the workspace; what it prints, its exit code and its duration are returned.

            Each call is a new process: nothing is remembered but the files.

            Args:
                code: a whole program.
                timeout_seconds: when it is ended.
            """
            header = {"argv": ["{python}", "-"], "timeout": timeout_seconds}
            return await self._run(context, header, code.encode())

        return shell, run_python

    def _readers(self) -> Iterable[AnyTool]:
        @tool(name="read_file", idempotent=True, timeout_seconds=FILE_SECONDS)
        async def read_file(  # noqa: D417  # the context is hidden from the model
            path: str,
            context: ToolContext,
            first_line: Annotated[int, Field(ge=1)] = 1,
            lines: Annotated[int, Field(ge=1)] = LINES_MAX,
        ) -> object:
            """Read a text file of the workspace.

            Args:
                path: the file, below the workspace.
                first_line: the line to begin with.
                lines: how many lines to read at the most.
            """
            answer = await self._operation(context, {"op": "read", "path": path, "first": first_line, "lines": lines})
            return _reply(answer, _file_text(answer))

        @tool(name="list_files", idempotent=True, timeout_seconds=FILE_SECONDS)
        async def list_files(context: ToolContext, folder: str = ".", *, recursive: bool = False) -> object:  # noqa: D417
            """List the files of a folder of the workspace, with their sizes in bytes.

            Args:
                folder: the folder, below the workspace.
                recursive: list all that is below it, too.
            """
            answer = await self._operation(context, {"op": "list", "path": folder, "recursive": recursive})
            return _reply(answer, _listing(answer.result))

        @tool(name="search_files", idempotent=True, timeout_seconds=FILE_SECONDS)
        async def search_files(  # noqa: D417  # the context is hidden from the model
            pattern: Annotated[str, Field(min_length=1, max_length=2_000)],
            context: ToolContext,
            folder: str = ".",
            files: str = "*",
            *,
            regex: bool = False,
        ) -> object:
            """Search the text files of the workspace; each matching line is returned with its place.

            Args:
                pattern: the text to look for.
                folder: the folder to search, with all below it.
                files: a pattern of file names, such as `*.py`.
                regex: take the pattern as a regular expression of Python's.
            """
            header = {"op": "search", "pattern": pattern, "path": folder, "glob": files, "regex": regex}
            answer = await self._operation(context, header)
            return _reply(answer, _matches(answer.result))

        return read_file, list_files, search_files

    def _writers(self) -> Iterable[AnyTool]:
        @tool(name="write_file", sequential=True, idempotent=True, timeout_seconds=FILE_SECONDS)
        async def write_file(path: str, content: Code, context: ToolContext) -> object:  # noqa: D417
            """Write a file of the workspace, replacing what is there; missing folders are made.

            Args:
                path: the file, below the workspace.
                content: the whole new content.
            """
            answer = await self._operation(context, {"op": "write", "path": path}, content.encode())
            made = "made" if answer.result["made"] else "replaced"
            return _reply(answer, f"{made} {path}: {answer.result['size']:,} bytes")

        @tool(name="edit_file", at_most_once=True, sequential=True, timeout_seconds=FILE_SECONDS)
        async def edit_file(  # noqa: D417  # the context is hidden from the model
            path: str, old: Code, new: Code, context: ToolContext, *, replace_all: bool = False
        ) -> object:
            """Replace a part of a text file of the workspace.

            Args:
                path: the file, below the workspace.
                old: the part to replace, exactly as it is there; it must be there once.
                new: what to put in its place.
                replace_all: replace it wherever it is.
            """
            header = {"op": "edit", "path": path, "old": old, "all": replace_all}
            answer = await self._operation(context, header, new.encode())
            count, line = answer.result["replaced"], answer.result["line"]
            return _reply(answer, f"replaced {count} time{'s' * (count != 1)} in {path}, first in line {line}")

        return write_file, edit_file

    async def _operation(self, context: ToolContext, header: Mapping[str, Any], body: bytes = b"") -> Answer:
        return await self._calls.call(context, header, body)

    async def _run(self, context: ToolContext, header: Mapping[str, Any], body: bytes = b"") -> ToolReply:
        def on_output(data: bytes) -> None:
            if line := data.decode(errors="replace").rstrip().rpartition("\n")[2].strip():  # blank lines say nothing
                context.progress(line[-PROGRESS_TEXT_CHARS_MAX:])

        limits = {"file_bytes": context.workspace.profile.file_mb_max * 2**20} if context.workspace else {}
        answer = await self._calls.call(context, {"op": "run", **header, "limits": limits}, body, on_output)
        text = answer.output.decode(errors="backslashreplace")
        return _reply(answer, f"{_ended(answer.result)}\n{text}" if text else f"{_ended(answer.result)}, no output")


def _reply(answer: Answer, text: str) -> ToolReply:
    # it may be longer than any value of ours: whoever runs the tool cuts it and keeps the whole
    return trusted(ToolReply, text="\n".join((*answer.notes, text)), workspace=answer.snapshot)


def _ended(result: Mapping[str, Any]) -> str:
    """Return how a command ended, in one line."""
    took = f"{result['seconds']:.1f} s"
    if result["timed_out"]:
        return f"[ended after {took}: its time was up]"
    if "signal" in result:
        number = int(result["signal"])
        name = signal.Signals(number).name if number in signal.valid_signals() else str(number)
        killed = "; it may have run out of memory" if number == signal.SIGKILL else ""
        return f"[ended by the signal {name} after {took}{killed}]"
    return f"[exit code {result['exit_code']} after {took}]"


def _file_text(answer: Answer) -> str:
    result = answer.result
    if result.get("binary"):
        return f"[a binary file of {result['size']:,} bytes; look at it with a command]"
    text = answer.contents.decode(errors="backslashreplace")
    if result["more"]:
        first, last = result["first"], result["last"]
        if not result["cut"]:
            return f"{text}[lines {first} to {last}; read on from line {last + 1}]"
        rest = f"from line {last}" if last > first else f"from line {last + 1}, and this one with a command"
        return f"{text}\n[lines {first} to {last}, the last one cut here; read on {rest}]"
    return text or f"[nothing from line {result['first']} on; the file has {result['size']:,} bytes]"


def _listing(result: Mapping[str, Any]) -> str:
    lines = list[str]()
    for each in result["entries"]:
        target = f" to {each['target']}" if each.get("target") else ""
        lines.append(f"{each['path']}  {each.get('kind', format(each['size'], ','))}{target}")
    if result["more"]:
        lines.append("[there are more; name a folder]")
    return "\n".join(lines) or "[no files]"


def _matches(result: Mapping[str, Any]) -> str:
    lines = [f"{each['path']}:{each['line']}: {each['text']}" for each in result["matches"]]
    if result["more"]:
        lines.append("[there are more; narrow the search]")
    return "\n".join(lines) or f"[no match in {result['files']:,} files]"
