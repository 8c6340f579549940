"""Holdfast runs AI agents as Temporal workflows."""

__version__ = "0.1.0"
