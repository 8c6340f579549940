"""Workspaces in Docker containers: one container per workspace, which ends by itself when no worker renews its lease."""
