"""A real MCP server whose tools answer with more than a text, made with the protocol's own SDK, over stdio."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    TextContent,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.pictures import PNG

server = MCPServer("studio")


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@server.tool()
def photo() -> CallToolResult:
    """Take a picture, with its sound and its file."""
    blob = BlobResourceContents(uri="file:///tmp/album/raw.bin", mime_type="application/x-raw", blob=encoded(b"raw"))
    return CallToolResult(
        content=[
            TextContent(type="text", text="smile"),
            ImageContent(type="image", mime_type="image/png", data=encoded(PNG)),
            AudioContent(type="audio", mime_type="audio/wav", data=encoded(b"click")),
            EmbeddedResource(type="resource", resource=blob),
        ]
    )


@server.tool()
def fake() -> CallToolResult:
    """Say that a picture is one, which it is not."""
    return CallToolResult(content=[ImageContent(type="image", mime_type="image/png", data=encoded(b"no picture"))])


@server.tool()
def album() -> CallToolResult:
    """Give more pictures than one call may keep."""
    pictures = (PNG + bytes([number]) for number in range(20))
    content = [ImageContent(type="image", mime_type="image/png", data=encoded(each)) for each in pictures]
    return CallToolResult(content=[*content])


@server.tool()
def weather() -> CallToolResult:
    """Tell the weather, in words and as data."""
    return CallToolResult(
        content=[TextContent(type="text", text="It is sunny.")], structured_content={"sky": "clear", "degrees": 21}
    )


@server.tool()
def count() -> list[int]:
    """Count."""
    return [1, 2, 3]


@server.tool()
def point() -> dict[str, int]:
    """Tell a place."""
    return {"x": 1, "y": 2}


if __name__ == "__main__":
    server.run("stdio")
