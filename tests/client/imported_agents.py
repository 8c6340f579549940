"""Agents in a module, as a user's project has them: a worker that imports it serves them and their functions."""

from __future__ import annotations

from pydantic import BaseModel

from holdfast import Agent


class Ticket(BaseModel):
    """What the clerk answers."""

    order: int
    state: str


def find_order(number: int) -> str:
    """Say where an order is."""
    return f"order {number} is on its way"


porter = Agent(name="porter", prompt="You carry.", description="carries things")
clerk = Agent(
    name="clerk", prompt="You answer questions about orders.", tools=[find_order], answers=Ticket, subagents=[porter]
)
