"""The ports of other libraries' examples: they run without a key and on the real server; their lines are counted."""

from __future__ import annotations

import ast
import asyncio
import io
import re
import subprocess
import sys
import tokenize
from datetime import date
from pathlib import Path

import pytest

from examples.ports import bank_support, customer_service, flight_booking, input_guardrails, scripts, sql_gen
from examples.ports.flight_booking import Flight, FlightRequest, NoFlightFound
from examples.ports.sql_gen import InvalidRequest, Success
from holdfast import ExecutionStatus, StopReason
from tests.serving import Serve

ROOT = Path(__file__).resolve().parents[2]
PORTS = ROOT / "examples" / "ports"
PROGRAMS = sorted(path.stem for path in PORTS.glob("*.py") if path.stem not in ("__init__", "scripts"))
INPUTS = {
    "flight_booking": "search\nbuy\nby the window\n14 A\n",
    "customer_service": "May I bring a bag?\nI want to change my seat.\nABC123, seat 14A\n",
}
LAST_LINES = {
    "bank_support": "block_card=True",
    "sql_gen": "date(start_timestamp)",
    "flight_booking": "SeatPreference(row=14, seat='A')",
    "customer_service": "seat_booking: Your seat is changed.",
    "input_guardrails": "Sorry, I can't help you with your math homework.",
}
LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}
SECONDS_MAX = 90


def code_lines(source: str) -> int:
    """Return how many lines have code: neither blank, nor a comment, nor of a docstring."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = {
        line
        for each in tokenize.generate_tokens(io.StringIO(source).readline)
        if each.type not in LAYOUT
        for line in range(each.start[0], each.end[0] + 1)
    }
    return len(lines - docstrings)


def test_lines_are_counted_without_blanks_comments_and_docstrings() -> None:
    source = '"""About."""\n\n# why\nx = """a\nb"""\n\n\ndef f():\n    """Say.\n\n    More.\n    """\n'
    source += "    return (\n        1\n    )\n"
    assert code_lines(source) == 6


def test_the_table_has_the_lines_of_every_port() -> None:
    rows = re.findall(r"^\| `(\w+)\.py` \|[^|]*\| (\d+) \| (\d+) \|", (PORTS / "README.md").read_text(), re.MULTILINE)
    told = {name: int(lines) for name, _, lines in rows}
    assert told == {name: code_lines((PORTS / f"{name}.py").read_text()) for name in PROGRAMS}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_port_runs_by_itself_without_a_key(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"examples.ports.{name}"],
        cwd=ROOT,
        input=INPUTS.get(name, ""),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert LAST_LINES[name] in done.stdout.splitlines()[-1]


@pytest.mark.temporal
async def test_bank_support_knows_its_customer_on_the_server(serve: Serve) -> None:
    async with serve(scripts.bank_support, offer=bank_support.AGENT.toolset) as served:
        result = await served.client.run(bank_support.AGENT, "What is my balance?", metadata={"customer_id": 123})
        asked = served.endpoint.requests[0].body or {}
    assert result.output.support_advice == "Hello John, your balance is $123.45."
    assert "The customer's name is 'John'" in scripts.texts(asked, "system")


@pytest.mark.temporal
async def test_a_query_that_the_database_refuses_is_corrected_on_the_server(serve: Serve) -> None:
    async with serve(scripts.sql_gen, offer=sql_gen.AGENT.toolset) as served:
        result = await served.client.run(sql_gen.AGENT, "show me logs from yesterday, with level 'error'")
        unclear = await served.client.run(sql_gen.AGENT, "show me")
    [error] = result.state.errors
    assert (error.type, error.message) == ("InvalidAnswer", "Invalid query: no such column: started")
    assert isinstance(result.output, Success)
    assert unclear.output == InvalidRequest(error_message="Which records?")


@pytest.mark.slow
@pytest.mark.temporal
async def test_a_flight_that_was_not_asked_for_is_searched_again_on_the_server(serve: Serve) -> None:
    request = FlightRequest(origin="SFO", destination="ANC", date=date(2025, 1, 10))
    async with serve(scripts.flight_booking, offer=flight_booking.SEARCH.toolset) as served:
        result = await served.client.run(flight_booking.SEARCH, "Find one", metadata=request.model_dump(mode="json"))
    flight: Flight | NoFlightFound = result.output
    assert isinstance(flight, Flight)
    assert (flight.flight_number, flight.date) == ("NYC-LA101", request.date)
    assert [error.message for error in result.state.errors] == [
        "Flight should have origin SFO, not BOS\nFlight should have date 2025-01-10, not 2025-01-12"
    ]
    assert result.state.running.budget.max_steps == 15


@pytest.mark.slow
@pytest.mark.temporal
async def test_customer_service_hands_over_within_a_session_on_the_server(serve: Serve) -> None:
    async with serve(scripts.customer_service, offer=customer_service.TRIAGE.toolset) as served:
        session = served.client.agent(definition=customer_service.TRIAGE)
        results = [await session.ask(text) for text in INPUTS["customer_service"].splitlines()]
        await session.close()
    assert [each.state.active_agent for each in results] == ["faq", "seat_booking", "seat_booking"]
    metadata = results[-1].state.metadata
    assert (metadata["confirmation_number"], metadata["seat_number"]) == ("ABC123", "14A")
    assert re.fullmatch(r"FLT-\d{3}", str(metadata["flight_number"]))


@pytest.mark.temporal
async def test_the_guard_stops_the_call_that_runs_beside_it_on_the_server(serve: Serve) -> None:
    async with serve(scripts.customer_support, offer=input_guardrails.AGENT.toolset) as served:
        well = await served.client.run(input_guardrails.AGENT, "What's the capital of California?")
        stopping = served.client.run(input_guardrails.AGENT, "Can you help me solve for x: 2x + 5 = 11")
        stopped = await asyncio.wait_for(stopping, SECONDS_MAX / 2)
    assert well.output == "The capital of California is Sacramento."
    assert (stopped.status, stopped.stop_reason) == (ExecutionStatus.STOPPED, StopReason.STOP_REQUESTED)
    assert stopped.state.stop_signal is not None
    assert stopped.state.stop_signal.context["why"] == "an equation"
    assert stopped.state.final_response == ""
