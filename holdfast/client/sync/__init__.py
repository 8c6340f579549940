"""The client for programs without an event loop: the same names and methods as in `holdfast.client`, without await."""

from holdfast.client.sync.agent_handle import AgentHandle
from holdfast.client.sync.holdfast import Holdfast
from holdfast.client.sync.runs import Client

__all__ = ["AgentHandle", "Client", "Holdfast"]
