"""A support agent of a bank: who asks stands in the run's metadata, the database is a resource.

After `bank_support.py` of pydantic-ai. Run it: `python -m examples.ports.bank_support`
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass

from pydantic import BaseModel

from examples.ports import scripts
from holdfast import Agent, Changes, HookContext, Message, RunResult, ToolContext, hook, resource
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel


@dataclass
class Bank:
    """The bank's database."""

    db: sqlite3.Connection

    def name(self, customer_id: int) -> str:
        """Return what a customer is called."""
        return str(self.db.execute("SELECT name FROM customers WHERE id = ?", (customer_id,)).fetchone()[0])

    def balance(self, customer_id: int) -> float:
        """Return how much a customer has."""
        return float(self.db.execute("SELECT balance FROM customers WHERE id = ?", (customer_id,)).fetchone()[0])


class Customer(BaseModel):
    """The metadata of a run: who asks."""

    customer_id: int


class Support(BaseModel):
    """What a customer is told, and what is done."""

    support_advice: str
    block_card: bool
    risk: int


def connect() -> sqlite3.Connection:
    """Open the database; this one has one customer and lives in memory."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE customers(id, name, balance)")
    db.execute("INSERT INTO customers VALUES (123, 'John', 123.45)")
    return db


@resource
async def bank() -> AsyncIterator[Bank]:
    """Open the database once per worker."""
    with closing(connect()) as db:
        yield Bank(db)


async def customer_balance(bank: Bank, context: ToolContext) -> str:
    """Return the customer's current account balance."""
    return f"${bank.balance(context.metadata_as(Customer).customer_id):.2f}"


@hook("before_execution")
def introduce(context: HookContext) -> Changes:
    """Tell the model the customer's name."""
    with closing(connect()) as db:
        name = Bank(db).name(context.metadata_as(Customer).customer_id)
    return Changes(messages=(Message(role="system", content=f"The customer's name is {name!r}"),))


AGENT = Agent(
    name="bank_support",
    prompt=(
        "You are a support agent in our bank, give the customer support and judge the risk level of their query. "
        "Reply using the customer's name."
    ),
    tools=[customer_balance],
    hooks=[introduce],
    resources=[bank],
    answers=Support,
)


async def main() -> list[RunResult[Support]]:
    """Ask twice."""
    driver = LocalDriver(AGENT, model=ScriptedModel(scripts.bank_support))  # no model=: the environment's endpoint
    results = [
        await driver.run(question, metadata={"customer_id": 123})
        for question in ("What is my balance?", "I just lost my card!")
    ]
    for result in results:
        print(result.output)
    return results


if __name__ == "__main__":
    asyncio.run(main())
