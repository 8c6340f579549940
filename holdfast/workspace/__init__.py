"""Workspaces: a room for an agent's files and commands, its tools, its backends and its snapshots."""
