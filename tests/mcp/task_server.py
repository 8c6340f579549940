"""A real MCP server that makes tasks of its calls: `python task_server.py stdio`, or `http PORT`.

It appends a line per request to the file in the variable LEDGER. A task ends when the file GATE exists; its state is in
the folder TASKS, so that a server which is started anew still knows it. The tool's name says how it ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.server import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolRequestParams, RequestParams, ToolAnnotations

TASKS = "io.modelcontextprotocol/tasks"
FOLDER = Path(os.environ["TASKS"])
GATE = Path(os.environ["GATE"])
TTL_MS = json.loads(os.environ.get("TTL_MS", "null"))
working = set[asyncio.Task[None]]()


class TaskParams(RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


def note(line: str) -> None:
    with Path(os.environ["LEDGER"]).open("a", encoding="utf-8") as ledger:
        ledger.write(f"{line}\n")


def read(task_id: str) -> dict[str, Any]:
    file = FOLDER / task_id
    if not file.exists():
        raise MCPError(code=INVALID_PARAMS, message="no such task")
    state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return state


def write(task_id: str, **fields: object) -> dict[str, Any]:
    file = FOLDER / task_id
    before: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    now = datetime.now(UTC).isoformat()
    state: dict[str, Any] = {"taskId": task_id, "createdAt": now, "ttlMs": TTL_MS, "pollIntervalMs": 1, **before}
    state |= {"lastUpdatedAt": now, **fields}
    new = file.with_suffix(".new")
    new.write_text(json.dumps(state), encoding="utf-8")
    new.rename(file)
    return state


def text(words: str, **fields: object) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], **fields}


LOAVES = {"type": "object", "properties": {"loaves": {"type": "integer", "minimum": 1}}, "required": ["loaves"]}
SURE = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


def ask(task_id: str, key: str, message: str, schema: dict[str, Any]) -> None:
    question = {"mode": "form", "message": message, "requestedSchema": schema}
    asked = {key: {"method": "elicitation/create", "params": question}}
    write(task_id, status="input_required", inputRequests=asked)


async def order(task_id: str, key: str) -> None:
    ask(task_id, "loaves", f"How many loaves? {os.environ.get('TOKEN', '')}".strip(), LOAVES)
    while read(task_id)["status"] == "input_required":  # noqa: ASYNC110  # a file calls nobody
        await asyncio.sleep(0.02)
    await work("bake", task_id, key)


async def work(tool: str, task_id: str, key: str) -> None:
    while not GATE.exists():  # noqa: ASYNC240  # a test's few lines
        await asyncio.sleep(0.02)
        if read(task_id)["status"] == "cancelled":
            return
    note(f"effect {tool} {key}")
    match tool:
        case "refuse":
            write(
                task_id,
                status="completed",
                result=text(f"no stock {os.environ.get('TOKEN', '')}".strip(), isError=True),
            )
        case "fail":
            write(task_id, status="failed", error={"code": INTERNAL_ERROR, "message": "the oven broke"})
        case "drop":
            write(task_id, status="cancelled", statusMessage="out of gas")
        case "lose":
            (FOLDER / task_id).unlink()
        case "garble":
            write(task_id, status="completed", result={"content": "no list"})
        case "sample":
            write(task_id, status="input_required", inputRequests={"s": {"method": "sampling/createMessage"}})
        case _:
            write(task_id, status="completed", result=text("baked", structuredContent={"result": "baked"}))


class Tasks(Extension):
    identifier = TASKS

    def methods(self) -> Sequence[MethodBinding]:
        return (
            MethodBinding("tasks/get", TaskParams, self.get),
            MethodBinding("tasks/cancel", TaskParams, self.cancel),
            MethodBinding("tasks/update", UpdateParams, self.update),
        )

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        note(f"tools/call {params.name}")
        if params.name == "quick":
            return await call_next(ctx)
        require_client_extension(ctx, TASKS)
        if params.name == "stuck":
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                note("call cancelled")
                raise
        meta = ctx.meta
        key = str(dict(meta).get("holdfast.dev/idempotency-key", "")) if meta else ""
        task_id = uuid4().hex
        state = write(task_id, status="working", statusMessage="in the oven")
        doing = asyncio.create_task(order(task_id, key) if params.name == "order" else work(params.name, task_id, key))
        working.add(doing)
        doing.add_done_callback(working.discard)
        return {"resultType": "task", **state}

    async def get(self, _ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
        note("tasks/get")
        return {"resultType": "complete", **read(params.task_id)}

    async def cancel(self, _ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
        note("tasks/cancel")
        read(params.task_id)
        if "STUBBORN" not in os.environ:
            write(params.task_id, status="cancelled")
        return {"resultType": "complete"}

    async def update(self, _ctx: ServerRequestContext[Any, Any], params: UpdateParams) -> HandlerResult:
        open_requests = read(params.task_id).get("inputRequests", {})
        for key, response in params.input_responses.items():
            if key not in open_requests:  # it has that answer already
                continue
            note(f"tasks/update {key} {json.dumps(response)}")
            if key == "loaves" and response["action"] == "accept":
                ask(params.task_id, "sure", f"Bake {response['content']['loaves']}?", SURE)
            else:
                write(params.task_id, status="working", inputRequests={})
        return {"resultType": "complete"}


server = MCPServer("oven", extensions=[Tasks()])


def bake() -> str:
    """Bake something."""
    return "at once"


for name in ("bake", "refuse", "fail", "drop", "lose", "garble", "order", "sample", "stuck", "quick"):
    server.add_tool(bake, name=name, annotations=ToolAnnotations(idempotent_hint=name == "lose"))

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
