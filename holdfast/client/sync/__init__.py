"""The client for programs without an event loop: the same names and methods as in `holdfast.client`, without await."""

from holdfast.client.sync.agents import Agent
from holdfast.client.sync.entry import Holdfast
from holdfast.client.sync.executions import Client

__all__ = ["Agent", "Client", "Holdfast"]
