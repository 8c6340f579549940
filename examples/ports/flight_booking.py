"""A flight is searched, chosen and booked: one agent reads the page, one searches, one understands which seat is meant.

After `flight_booking.py` of pydantic-ai. Run it and answer: `python -m examples.ports.flight_booking`
"""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from examples.ports import scripts
from holdfast import Agent, ExecutionBudget, HookContext, ModelRetry, hook
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel

BUDGET = ExecutionBudget(max_steps=15)


class Flight(BaseModel):
    """Details of the most suitable flight."""

    flight_number: str
    price: int
    origin: str = Field(description="Three-letter airport code")
    destination: str = Field(description="Three-letter airport code")
    date: dt.date


class NoFlightFound(BaseModel):
    """When no valid flight is found."""

    why: str


class FlightRequest(BaseModel):
    """The metadata of a search: what the user asked for."""

    origin: str
    destination: str
    date: dt.date


class SeatPreference(BaseModel):
    """A seat."""

    row: int = Field(ge=1, le=30)
    seat: Literal["A", "B", "C", "D", "E", "F"]


class Unclear(BaseModel):
    """When the user's words name no seat."""

    why: str


def flights_page() -> str:
    """Return the text of the booking site; in reality it would be downloaded."""
    return Path(__file__).with_name("flights.txt").read_text()


@hook("after_inference")
def check_flight(context: HookContext) -> None:
    """Have the model search again for a flight that is not what the user asked for."""
    flight: Flight | NoFlightFound | None = context.answer_as(Flight | NoFlightFound)
    if not isinstance(flight, Flight):
        return
    request = context.metadata_as(FlightRequest)
    errors = [
        f"Flight should have {name} {value}, not {getattr(flight, name)}"
        for name, value in request
        if getattr(flight, name) != value
    ]
    if errors:
        raise ModelRetry("\n".join(errors))


EXTRACTION = Agent(
    name="extraction",
    description="Gets the details of all flights.",
    prompt="Extract all the flight details from the page.",
    tools=[flights_page],
    answers=list[Flight],
)
SEARCH: Agent[Flight | NoFlightFound] = Agent(
    name="search",
    prompt="Your job is to find the cheapest flight for the user on the given date.",
    subagents=[EXTRACTION],
    hooks=[check_flight],
    answers=Flight | NoFlightFound,
    reasks_max=4,
    budget=BUDGET,
)
SEATS: Agent[SeatPreference | Unclear] = Agent(
    name="seats",
    prompt="""Extract the user's seat preference.
Seats A and F are window seats.
Row 1 is the front row and has extra leg room.
Rows 14, and 20 also have extra leg room.""",
    answers=SeatPreference | Unclear,
    budget=BUDGET,
)


async def main(request: FlightRequest) -> None:
    """Search until a flight is bought."""
    driver = LocalDriver(SEARCH, model=ScriptedModel(scripts.flight_booking))  # no model=: the environment's endpoint
    question, state = f"Find me a flight from {request.origin} to {request.destination} on {request.date}", None
    while True:
        result = await driver.run(question, state=state, metadata=request.model_dump(mode="json"))
        if isinstance(result.output, NoFlightFound):
            print("No flight found:", result.output.why)
            return
        print(f"Flight found: {result.output}")
        if await ask("Do you want to buy this flight, or keep searching? (buy/*search) ") == "buy":
            print(f"Purchasing flight {result.output!r} {await find_seat()!r}...")
            return
        question, state = "Please suggest another flight", result.state


async def ask(question: str) -> str:
    """Ask the user."""
    return await asyncio.to_thread(input, question)


async def find_seat() -> SeatPreference:
    """Ask until the answer names a seat."""
    driver = LocalDriver(SEATS, model=ScriptedModel(scripts.flight_booking))
    state = None
    while True:
        result = await driver.run(await ask("What seat would you like? "), state=state)
        if isinstance(result.output, SeatPreference):
            return result.output
        print("Could not understand seat preference. Please try again.")
        state = result.state


if __name__ == "__main__":
    asyncio.run(main(FlightRequest(origin="SFO", destination="ANC", date=dt.date(2025, 1, 10))))
