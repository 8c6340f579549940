"""MCP servers as a source of tools: connects to them, lists their tools, calls them. Needs the extra `mcp`."""
