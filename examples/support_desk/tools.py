"""The desk's tools: `look_up_order` and `refund` over the folder of orders that HOLDFAST_DESK names.

    HOLDFAST_DESK=. holdfast dev --import examples.support_desk.tools

The folder has `orders.csv`, which is only read, and `refunds.csv`, to which each refund appends one line.
"""

from __future__ import annotations

import csv
import fcntl
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TextIO

from pydantic import Field

from holdfast import ToolContext, tool
from holdfast.errors import InvalidInput

DESK: Final = "HOLDFAST_DESK"
ORDERS: Final = "orders.csv"
REFUNDS: Final = "refunds.csv"

CALL_SECONDS_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class Order:
    """What a line of `orders.csv` says; money in euro cents."""

    number: int
    customer: str
    item: str
    cents: int
    status: str
    ordered: str


@tool(timeout_seconds=CALL_SECONDS_MAX)
def look_up_order(number: int) -> dict[str, object]:
    """Look an order up: what was ordered, what it cost in cents, where it is, and what was paid back so far.

    Args:
        number: the order's number.
    """
    order = _order(number)
    with _refunds() as file:
        paid = sum(cents for _, of, cents in _lines(file) if of == number)
    return {
        "number": order.number,
        "item": order.item,
        "cents": order.cents,
        "status": order.status,
        "ordered": order.ordered,
        "paid_back_cents": paid,
    }


@tool(timeout_seconds=CALL_SECONDS_MAX)
def refund(number: int, cents: Annotated[int, Field(ge=1)], *, context: ToolContext) -> str:
    """Pay money of an order back to the customer. It cannot be undone.

    Args:
        number: the order's number.
        cents: how much, in euro cents.
        context: the call itself; the model does not see it.
    """
    order = _order(number)
    with _refunds() as file:
        lines = list(_lines(file))
        # a worker that died behind this line asks again with the same key: it is paid once
        if context.idempotency_key not in {key for key, _, _ in lines}:
            left = order.cents - sum(paid for _, of, paid in lines if of == number)
            if cents > left:
                raise InvalidInput(f"order {number} has {left:,} cents left to pay back, not {cents:,}; ask for less")
            file.write(f"{context.idempotency_key},{number},{cents}\n")
            file.flush()
            os.fsync(file.fileno())
    return f"{cents:,} cents of order {number} are paid back to {order.customer}"


def _order(number: int) -> Order:
    with (_desk() / ORDERS).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if int(row["number"]) == number:
                return Order(
                    number=number,
                    customer=row["customer"],
                    item=row["item"],
                    cents=int(row["cents"]),
                    status=row["status"],
                    ordered=row["ordered"],
                )
    raise InvalidInput(f"there is no order {number}; ask the customer for the number on the receipt")


@contextmanager
def _refunds() -> Generator[TextIO]:
    """Open the list of refunds for whoever is alone with it: several workers may serve the desk."""
    with (_desk() / REFUNDS).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _lines(file: TextIO) -> Iterator[tuple[str, int, int]]:
    """Yield the key, order and cents of each refund; a line is one small write, which no kill cuts in two."""
    file.seek(0)
    for line in file:
        key, number, cents = line.rstrip("\n").split(",")
        yield key, int(number), int(cents)


def _desk() -> Path:
    desk = os.environ.get(DESK)
    if not desk:
        raise InvalidInput(f"{DESK} is not set; name the folder that holds {ORDERS}")
    return Path(desk)
