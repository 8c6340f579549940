"""`FakeResponses`: a fake server of OpenAI's Responses API that plays a script. Knows no agents, and no Temporal.

    async with FakeResponses([call("add", a=1, b=2), say("3", reasoning="easy")]) as server:
        client = AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0)

Scripts are those of `FakeOpenAI`. As a process of its own:

    python -m holdfast.testing.responses_server --script my_tests.scripts:research --port 8123
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from aiohttp import web

from holdfast.testing.background_responses import BackgroundResponse
from holdfast.testing.openai_server import Answer, FakeOpenAI, main
from holdfast.testing.responses_request_check import script_messages
from holdfast.testing.responses_wire_format import RESPONSES_WIRE
from holdfast.testing.script import Reply, Scripts
from holdfast.testing.wire_format import Refusal

STORED = f"{RESPONSES_WIRE.path}/"
QUERY = frozenset({"stream", "starting_after", "include", "include[]", "include_obfuscation"})


class FakeResponses(FakeOpenAI):
    """The server, used as `FakeOpenAI` is.

    It stores nothing, and refuses what the API refuses then: ids of items, calls without outputs and outputs without
    calls, reasoning without what followed it, or that it has not made itself, or in another place. Responses in the
    background (`background` and `store`) are stored, and go on when whoever asked has gone.
    """

    WIRE = RESPONSES_WIRE

    def __init__(
        self, script: Scripts, *, port: int = 0, ledger: Path | None = None, api_key: str | None = None
    ) -> None:
        super().__init__(script, port=port, ledger=ledger, api_key=api_key)
        self._stored: dict[str, BackgroundResponse] = {}
        self._forgotten: set[str] = set()

    @property
    def background(self) -> tuple[BackgroundResponse, ...]:
        """The responses in the background, in the order in which they were asked for: each is paid for."""
        return tuple(self._stored.values())

    def forget(self) -> None:
        """Store none of them any longer: they are not found any more."""
        self._forgotten.update(self._stored)

    async def __aexit__(self, *error: object) -> None:
        for each in self._stored.values():
            each.close()
        await super().__aexit__(*error)

    def _answer(self, request: web.Request, raw: bytes) -> Answer:
        if request.path.startswith(STORED):
            problem = self.WIRE.headers_problem(request.headers, self._api_key)
            return self._refuse(problem) if problem else self._stored_answer(request)
        answer = super()._answer(request, raw)
        if not answer.key or answer.turn.status >= HTTPStatus.BAD_REQUEST or answer.turn.body is not None:
            return answer
        body: dict[str, Any] = json.loads(raw)
        return self._in_background(answer, body) if body.get("background") else answer

    def _in_background(self, answer: Answer, body: dict[str, Any]) -> Answer:
        """Return how a response begins that goes on in the background."""
        checked = {**body, "messages": script_messages(body)}
        response = BackgroundResponse(f"resp_bg_{len(self._stored)}", answer.turn, checked, answer.model)
        self._stored[response.id] = response
        if not response.streamed:
            return replace(answer, turn=Reply(), pieces=(_json(response.body(frozenset())),))
        breaks = answer.turn.disconnect or answer.turn.reset
        turn = answer.turn if breaks else Reply()
        return replace(answer, turn=turn, live=response.events(-1, breaks=breaks))

    def _stored_answer(self, request: web.Request) -> Answer:
        id_, _, action = request.path.removeprefix(STORED).partition("/")
        response = None if id_ in self._forgotten else self._stored.get(id_)
        if response is None:
            return self._refuse(Refusal(f"Response with id '{id_}' not found.", status=404))
        match request.method, action:
            case "POST", "cancel":
                response.cancel()
                return Answer(turn=Reply(), pieces=(_json(response.body(frozenset())),))
            case "GET", "":
                return self._looked_at(request, response)
            case method, _:
                return self._refuse(Refusal(f"Invalid URL ({method} {request.path}).", code="unknown_url", status=404))

    def _looked_at(self, request: web.Request, response: BackgroundResponse) -> Answer:
        if unknown := sorted(request.query.keys() - QUERY):
            return self._refuse(Refusal(f"Unknown parameter: '{unknown[0]}'.", unknown[0], "unknown_parameter"))
        include = frozenset(request.query.getall("include[]", request.query.getall("include", [])))
        if request.query.get("stream") != "true":
            return Answer(turn=Reply(), pieces=(_json(response.body(include)),))
        if not response.can_be_streamed:
            old = "This response can no longer be streamed because it is more than 5 minutes old."
            return self._refuse(Refusal(old))
        after = int(request.query.get("starting_after", "-1"))
        return Answer(turn=Reply(), pieces=(), live=response.events(after))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


if __name__ == "__main__":
    sys.exit(main(FakeResponses))
