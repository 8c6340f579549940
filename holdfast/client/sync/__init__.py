"""The client for programs without an event loop: the same names and methods as in `holdfast.client`, without await."""

from holdfast.client.sync.agent_handle import AgentHandle
from holdfast.client.sync.holdfast import Holdfast

__all__ = ["AgentHandle", "Holdfast"]
