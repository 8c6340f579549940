"""What servers ask, over a real connection: within bounds, in both eras of the protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    ListRootsRequest,
)

from holdfast.core.conversation.input_requests import InputResponse
from holdfast.core.wire.mcp_contracts import McpInputs
from holdfast.mcp.elicitation import questions_of
from holdfast.mcp.errors import McpCallFailed
from tests.mcp.places import asking, connection, noted, odd, over_http

FORM: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}


def form(message: str = "?", schema: Mapping[str, Any] = FORM) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=dict(schema)))


@pytest.mark.slow
async def test_a_call_goes_on_in_another_process_of_the_server(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with connection(asking(ledger)) as first:
        asked = (await first.call("book", {"show": "Hamlet"})).questions
    assert asked is not None
    [request] = asked.requests
    assert (request.key, request.message) == ("seats", "How many seats for Hamlet?")
    assert [each.name for each in request.fields] == ["seats", "row"]
    assert str(asked.request_state) not in repr(asked)
    answers = {"seats": InputResponse(action="accept", content={"seats": 2})}
    inputs = McpInputs(round=1, responses=answers, request_state=asked.request_state)
    assert str(asked.request_state) not in repr(inputs)
    async with connection(asking(ledger)) as second:
        more = (await second.call("book", {"show": "Hamlet"}, inputs=inputs)).questions
        assert more is not None
        assert more.requests[0].message == "Book 2?"
        sure = McpInputs(
            round=2,
            responses={"sure": InputResponse(action="accept", content={"sure": True})},
            request_state=more.request_state,
        )
        answer = await second.call("book", {"show": "Hamlet"}, inputs=sure)
    assert answer.text == "booked 2 for Hamlet"
    assert len(noted(ledger)) == 3


async def test_a_state_that_was_changed_is_refused_by_the_server_and_the_error_says_so(tmp_path: Path) -> None:
    async with connection(asking(tmp_path / "ledger")) as server:
        asked = (await server.call("consent", {})).questions
        assert asked is not None
        forged = McpInputs(round=1, request_state=f"{asked.request_state}x")
        with pytest.raises(McpCallFailed, match="requestState"):
            await server.call("consent", {}, inputs=forged)


async def test_an_older_server_is_told_that_nobody_answers_and_the_model_what_was_asked() -> None:
    async with connection(odd("asks")) as server:
        answer = await server.call("go", {})
        again = await server.call("go", {})
    asked = "'What is your name (0)?'; 'What is your name (1)?'"
    assert answer.text.splitlines() == [
        "they said cancel and cancel",
        f"[the server asked a person {asked}; nobody was asked, because a call of its protocol cannot wait]",
    ]
    assert again.text == answer.text, "the questions of one call are not another's"


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (
            {"a": CreateMessageRequest(params=CreateMessageRequestParams(messages=[], max_tokens=1))},
            "sampling/createMessage, which this client does not offer",
        ),
        ({"a": ListRootsRequest()}, "roots/list, which this client does not offer"),
        ({str(number): form() for number in range(9)}, "asks for 9 things at once, at most 8"),
        ({str(number): form("x" * 9_000) for number in range(8)}, None),
        ({"a": form(schema={"type": "object", "properties": {"a": {"type": "object"}}})}, "forms are flat"),
        (
            {
                str(number): form(
                    schema={"type": "object", "properties": {"a": {"type": "string", "description": "x" * 9_000}}}
                )
                for number in range(4)
            },
            "at most 32,768 are shown",
        ),
        (
            {"a": ElicitRequest(params=ElicitRequestURLParams(message="?", url="javascript:alert(1)"))},
            "cannot be shown",
        ),
    ],
)
def test_what_no_person_could_be_shown_fails_the_call(asked: dict[str, Any], problem: str | None) -> None:
    result = InputRequiredResult(input_requests=asked)
    if problem is None:
        assert {len(each.message) for each in questions_of(result, "the server", str).requests} == {4_000}
        return
    with pytest.raises(McpCallFailed, match=problem):
        questions_of(result, "the server", str)


def test_a_state_is_bounded_in_bytes() -> None:
    assert questions_of(InputRequiredResult(request_state="x" * 65_536), "the server", str).request_state is not None
    for state in ("x" * 65_537, "é" * 32_769):
        with pytest.raises(McpCallFailed, match="at most 65,536 are kept"):
            questions_of(InputRequiredResult(request_state=state), "the server", str)


async def test_over_http_a_server_asks_as_well(tmp_path: Path) -> None:
    async with (
        over_http(tmp_path / "ledger", "asking_server.py") as (server, _),
        connection(server) as opened,
    ):
        asked = (await opened.call("both", {})).questions
        assert asked is not None
        responses = {each.key: InputResponse(action="decline") for each in asked.requests}
        inputs = McpInputs(round=1, responses=responses, request_state=asked.request_state)
        answer = await opened.call("both", {}, inputs=inputs)
    assert json.loads(answer.text) == [None, None]
