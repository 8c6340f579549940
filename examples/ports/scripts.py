"""What the scripted models of the ports say; with a model of yours none of this is needed."""

from __future__ import annotations

import json
import re
from typing import Any

from holdfast.testing import Call, Reply, call, calls, say

Request = dict[str, Any]
"""The body of a request for a chat completion."""

AK123: dict[str, object] = {"price": 350, "origin": "SFO", "destination": "ANC", "date": "2025-01-10"}
FLIGHTS: list[dict[str, object]] = [
    {"flight_number": "SFO-AK123", **AK123},
    {"flight_number": "NYC-LA101", **AK123, "price": 250},
    {"flight_number": "BOS-SEA303", **AK123, "price": 120, "origin": "BOS", "date": "2025-01-12"},
]


def answer(**fields: object) -> Reply:
    """Answer with a JSON object."""
    return say(json.dumps(fields))


def texts(request: Request, role: str) -> list[str]:
    """Return what the messages of a role say."""
    return [str(each["content"]) for each in request["messages"] if each["role"] == role]


def bank_support(request: Request) -> Reply:
    """Look the balance up; block a lost card."""
    if "lost my card" in texts(request, "user")[-1]:
        return answer(support_advice="I'm sorry, John. We are blocking your card.", block_card=True, risk=8)
    if results := texts(request, "tool"):
        return answer(support_advice=f"Hello John, your balance is {results[-1]}.", block_card=False, risk=1)
    return call("customer_balance")


def sql_gen(request: Request) -> Reply:
    """Name a column that is not there, and correct it; ask back where there is nothing to go by."""
    if "logs" not in texts(request, "user")[0]:
        return answer(answer={"error_message": "Which records?"})
    where = "start_timestamp" if "no such column" in texts(request, "user")[-1] else "started"
    query = "SELECT * FROM records WHERE level = 'error' AND date(WHEN) = date('now', '-1 day')".replace("WHEN", where)
    return answer(answer={"sql_query": query, "explanation": "Errors of yesterday."})


def flight_booking(request: Request) -> Reply:
    """Play all three agents: the prompt tells them apart."""
    prompt, questions, results = texts(request, "system")[0], texts(request, "user"), texts(request, "tool")
    if "seat preference" in prompt:
        seat = re.search(r"(\d+) ?([A-F])\b", questions[-1])
        return answer(answer={"row": int(seat[1]), "seat": seat[2]} if seat else {"why": "no row and seat"})
    if "Extract" in prompt:
        return answer(answer=FLIGHTS) if results else call("flights_page")
    if not results:
        return calls(Call("spawn", {"agent": "extraction", "task": "Get the flights."}))
    if "another flight" in questions[-1]:
        return answer(answer=FLIGHTS[0])
    cheapest = FLIGHTS[1] if "cannot be used" in questions[-1] else FLIGHTS[2]
    return answer(answer=cheapest)


def customer_service(request: Request) -> Reply:
    """Play all three agents: the prompt tells them apart."""
    prompt, last = texts(request, "system")[0], request["messages"][-1]
    about_seat = "change my seat" in texts(request, "user")[-1].lower()
    if "triaging" in prompt:
        return call("handoff", agent="seat_booking" if about_seat else "faq")
    if "FAQ" in prompt:
        if about_seat:
            return call("handoff", agent="triage")
        handed = "handed over" in str(last["content"]) or last["role"] == "user"
        return call("faq_lookup", question=texts(request, "user")[-1]) if handed else say(str(last["content"]))
    if last["role"] == "tool" and "Updated" in str(last["content"]):
        return say("Your seat is changed.")
    asked = re.search(r"(\w+), seat (\w+)", texts(request, "user")[-1])
    if asked:
        return call("update_seat", confirmation_number=asked[1], new_seat=asked[2])
    return say("Your confirmation number, and which seat?")


def customer_support(request: Request) -> Reply:
    """Answer, and be slow with sums: the guard is faster."""
    if "solve" in texts(request, "user")[-1]:
        return say("x is 3.", delay_seconds=60)
    return say("The capital of California is Sacramento.")


def guardrail_check(request: Request) -> Reply:
    """Know homework by its verb."""
    homework = "solve" in texts(request, "user")[-1]
    return answer(reasoning="an equation" if homework else "geography", is_math_homework=homework)
