"""MCP servers that nobody here wrote, from npm: installed, listed and called."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import JsonValue

from holdfast.core.tools.mcp_servers import McpServer
from holdfast.core.tools.tool_context import ToolContext
from holdfast.mcp.answers import McpAnswer
from holdfast.mcp.errors import McpCallFailed, McpOutcomeUnknown
from holdfast.mcp.listing import catalog_of, offer_of
from holdfast.mcp.pool import McpPool
from holdfast.mcp.tools import call_mcp_tool
from tests.mcp.places import connection

pytestmark = [
    pytest.mark.npm,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js with npm"),
]

PACKAGES = tuple(f"@modelcontextprotocol/server-{name}" for name in ("everything", "filesystem", "memory"))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the servers' programs."""
    folder = tmp_path_factory.mktemp("npm")
    (folder / "package.json").write_text("{}")
    install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *PACKAGES]
    subprocess.run(install, cwd=folder, check=True, capture_output=True)
    return folder / "node_modules" / ".bin"


def everything(programs: Path) -> McpServer:
    return McpServer(name="everything", command=(str(programs / "mcp-server-everything"), "stdio"))


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("echo", {"message": "hi"}, "Echo: hi"),
        ("get-sum", {"a": 1, "b": 2}, "The sum of 1 and 2 is 3."),
        ("get-tiny-image", {}, "[attached: image-1.png, image/png, "),
        ("get-resource-links", {"count": 2}, "[resource "),
        ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}, "Resource 1"),
        ("get-annotated-message", {"messageType": "success"}, "successfully"),
        ("get-structured-content", {"location": "Chicago"}, "temperature"),
        ("trigger-long-running-operation", {"duration": 1, "steps": 2}, "completed"),
    ],
)
async def test_every_kind_of_answer_of_the_reference_server_is_read(
    programs: Path, tool: str, arguments: dict[str, object], text: str
) -> None:
    async with connection(everything(programs)) as server:
        answer = await server.call(tool, arguments)  # type: ignore[arg-type]  # JSON
        [listed] = [each for each in (await catalog_of([server])).tools if each.tool == tool]
    assert not answer.is_error
    assert text in answer.text
    output = listed.output if isinstance(listed.output, dict) else None
    assert "[warning" not in answer.with_warning(output).text


async def test_the_reference_server_lists_resources_and_prompts(programs: Path) -> None:
    async with connection(everything(programs)) as server:
        offer = await offer_of(server)
    assert len(offer.resources) > 5
    assert "simple-prompt" in {each.name for each in offer.prompts}


async def test_a_long_operation_of_the_reference_server_ends_with_its_time(programs: Path) -> None:
    async with connection(everything(programs)) as server:
        with pytest.raises(McpOutcomeUnknown, match="took longer than 1 s"):
            await server.call("trigger-long-running-operation", {"duration": 30, "steps": 3}, seconds_max=1)
        assert (await server.call("echo", {"message": "still here"})).text == "Echo: still here"


async def test_the_file_server_writes_and_reads_and_stays_in_its_folder(programs: Path, tmp_path: Path) -> None:
    server = McpServer(name="files", command=(str(programs / "mcp-server-filesystem"), str(tmp_path)))
    async with connection(server) as files:
        await files.call("write_file", {"path": str(tmp_path / "a.txt"), "content": "hello"})
        assert "hello" in (await files.call("read_text_file", {"path": str(tmp_path / "a.txt")})).text
        refused = await files.call("read_text_file", {"path": "/etc/passwd"})
    assert (tmp_path / "a.txt").read_text() == "hello"
    assert refused.is_error
    assert "denied" in refused.text


async def test_the_memory_server_keeps_what_it_was_told(programs: Path, tmp_path: Path) -> None:
    server = McpServer(
        name="memory",
        command=(str(programs / "mcp-server-memory"),),
        env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")},
    )
    pool = McpPool({"memory": server}, {})
    context = ToolContext(execution_id="", idempotency_key="k", attempt=1)
    try:
        tools = {tool.tool: tool for tool in (await pool.catalog(("memory",), "clerk")).tools}
        entity: dict[str, JsonValue] = {"name": "Ada", "entityType": "person", "observations": ["counts"]}
        await call_mcp_tool(pool, server, tools["create_entities"], {"entities": [entity]}, context)
        answer = await call_mcp_tool(pool, server, tools["read_graph"], {}, context)
        assert isinstance(answer, McpAnswer)
        graph = json.loads(answer.text)
        with pytest.raises(McpCallFailed):
            await call_mcp_tool(pool, server, tools["create_entities"], {"entities": "Ada"}, context)
    finally:
        await pool.close()
    assert [each["name"] for each in graph["entities"]] == ["Ada"]
