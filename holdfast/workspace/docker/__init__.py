"""Workspaces in Docker containers: one container per workspace, which ends by itself when its lease does."""
