"""Agents as the tools of an MCP server, over stdio or streamable HTTP. Needs the extras `mcp` and `temporal`."""
