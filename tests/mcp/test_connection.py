"""Connections to MCP servers, real ones and ones that misbehave: calls, cancels, losses, bounds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from mcp_types import CallToolResult

from holdfast.core.base.bounds import TOOL_RESULT_BYTES_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.tools.mcp_servers import McpServer
from holdfast.mcp.answer_bounds import PARTS_MAX
from holdfast.mcp.answers import McpAnswer, Media, answer_of
from holdfast.mcp.errors import McpAccessRefused, McpCallFailed, McpOutcomeUnknown, McpUnavailable
from tests.mcp.places import connection, noted, odd, over_http, trial, until_noted

pytestmark = pytest.mark.timeout(60)

DECLINED = b'{"jsonrpc": "2.0", "id": 2, "error": {"code": -32000, "message": "no"}}'


async def test_a_call_over_stdio_is_answered_with_text_and_value(tmp_path: Path) -> None:
    async with connection(trial(tmp_path / "ledger")) as server:
        answer = await server.call("add", {"a": 1, "b": 2})
    assert (answer.text, answer.value, answer.is_error) == ("3", {"result": 3}, False)


async def test_a_call_over_http_is_answered_too(tmp_path: Path) -> None:
    async with over_http(tmp_path / "ledger") as (place, _), connection(place) as server:
        assert server.client.protocol_version == "2026-07-28"
        assert (await server.call("add", {"a": 1, "b": 2})).text == "3"


async def test_a_server_of_the_first_era_is_spoken_to_as_it_speaks() -> None:
    async with connection(odd("media")) as server:
        assert server.client.protocol_version == "2025-06-18"
        answer = await server.call("go", {})
    assert answer.text.splitlines() == [
        "[attached: image-1.png, image/png, 5 bytes]",
        "[image, image/png: its data is damaged]",
        "[resource 'report' at file:///report]",
        "inside",
    ]
    assert answer.media == (Media("image-1.png", "image/png", b"hello"),)


@pytest.mark.slow
async def test_of_an_answer_of_too_many_parts_only_the_first_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(result: CallToolResult) -> McpAnswer:
        read.append(len(result.content))
        return answer_of(result)

    monkeypatch.setattr("holdfast.mcp.connection.answer_of", counted)
    async with connection(odd("many parts")) as server:
        lines = (await server.call("go", {})).text.splitlines()
    assert lines[:2] == ["0", "1"]
    assert lines[-2:] == [str(PARTS_MAX - 1), "[199,000 more parts are left out]"]
    assert read == [PARTS_MAX + 1]


async def test_a_cut_emoji_costs_an_answer_one_character() -> None:
    async with connection(odd("half a pair")) as server:
        assert (await server.call("go", {}, seconds_max=50)).text == "cut ?"


def test_an_answer_too_large_to_be_kept_is_not_checked_against_its_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []

    def check(value: object, _: object, *, foreign: bool) -> list[str]:
        checked.append((value, foreign))
        return []

    monkeypatch.setattr("holdfast.runtime.json_schema.schema_problems", check)
    large = McpAnswer("rows", "x" * TOOL_RESULT_BYTES_MAX, structured=True).with_warning({"type": "string"})
    assert large.text.splitlines()[1].startswith("[warning: the structured answer has 204,802 bytes, and only one of")
    assert checked == []
    assert McpAnswer("rows", "x", structured=True).with_warning({"type": "string"}).text == "rows"
    assert checked == [("x", True)]


async def test_a_variable_that_is_not_set_is_named_and_its_value_is_used(tmp_path: Path) -> None:
    place = trial(tmp_path / "ledger")
    place = place.model_copy(update={"env": {**place.env, "CURRENCY": "${COIN}"}})
    async with connection(place, COIN="EUR") as server:
        assert (await server.call("pay", {"amount": 3})).text == "paid 3 EUR"
    with pytest.raises(InvalidInput, match="needs the variable COIN, which is not set"):
        async with connection(place):
            pass


async def test_an_error_does_not_tell_the_values_of_variables() -> None:
    place = McpServer(name="gone", command=(sys.executable, "-c", "import sys; sys.exit(1)", "${KEY}"), cwd="${KEY}")
    with pytest.raises(McpUnavailable) as caught:
        async with connection(place, KEY="/no/such/secret-place"):
            pass
    assert "secret" not in str(caught.value)


async def test_a_cancelled_call_is_cancelled_at_the_server_and_the_connection_goes_on(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with connection(trial(ledger)) as server:
        calling = asyncio.create_task(server.call("wait", {}))
        await until_noted(ledger, "wait begun")
        calling.cancel()
        await until_noted(ledger, "wait cancelled")
        assert (await server.call("add", {"a": 1, "b": 2})).text == "3"


async def test_progress_is_passed_on(tmp_path: Path) -> None:
    reports: list[tuple[float, float | None, str | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    async with connection(trial(tmp_path / "ledger")) as server:
        await server.call("wait", {"seconds": 0.3}, on_progress=report)
    assert reports[0] == (0, 3, "at 0")


async def test_a_call_that_takes_too_long_is_cancelled_and_its_outcome_unknown(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with connection(trial(ledger)) as server:
        with pytest.raises(McpOutcomeUnknown, match="took longer than"):
            await server.call("wait", {}, seconds_max=1)
        await until_noted(ledger, "wait cancelled")


async def test_a_server_that_dies_in_a_call_leaves_its_outcome_unknown_and_later_calls_unsent(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with connection(trial(ledger)) as server:
        with pytest.raises(McpOutcomeUnknown, match="broke the connection"):
            await server.call("die", {})
        with pytest.raises(McpUnavailable, match="the connection has ended"):
            await server.call("add", {"a": 1, "b": 2})
    assert noted(ledger) == ["die"]


async def test_an_http_server_that_dies_in_a_call_leaves_its_outcome_unknown(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with over_http(ledger) as (place, _), connection(place) as server:
        with pytest.raises(McpOutcomeUnknown, match="broke the connection"):
            await server.call("die", {})
    assert noted(ledger) == ["die"]


async def test_a_call_to_an_http_server_that_has_gone_was_not_sent(tmp_path: Path) -> None:
    async with over_http(tmp_path / "ledger") as (place, process), connection(place) as server:
        process.kill()
        await process.wait()
        with pytest.raises(McpUnavailable, match="nothing answers there any more"):
            await server.call("add", {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (McpServer(name="gone", command=("/no/such/program",)), "No such file"),
        (McpServer(name="gone", command=(sys.executable, "-c", "print('hi')")), "it has ended with code 0"),
        (McpServer(name="gone", url="http://127.0.0.1:9/mcp"), "connection attempts failed"),
    ],
)
async def test_a_server_that_cannot_be_used_is_named_with_the_cause(server: McpServer, why: str) -> None:
    with pytest.raises(McpUnavailable, match=f"the MCP server 'gone' .* cannot be used: .*{why}"):
        async with connection(server):
            pass


async def test_an_error_of_the_servers_is_told_with_its_code() -> None:
    async with connection(odd("refusal")) as server:
        with pytest.raises(McpCallFailed, match=r"not today \(code -32099\)"):
            await server.call("go", {})


@pytest.mark.parametrize(("mode", "text"), [("forged", "Session terminated"), ("declined", "card declined")])
async def test_an_error_that_sounds_like_a_lost_connection_is_an_error_and_the_connection_goes_on(
    mode: str, text: str
) -> None:
    async with connection(odd(mode)) as server:
        for _ in range(2):
            with pytest.raises(McpCallFailed, match=text):
                await server.call("go", {})
        assert server.open


@pytest.mark.parametrize(
    ("status", "body", "kind", "error"),
    [
        (500, b"", "text/plain", McpOutcomeUnknown),
        (503, b"<html>", "text/html", McpOutcomeUnknown),
        (200, b"<html>", "text/html", McpOutcomeUnknown),
        (200, b"", "application/json", McpOutcomeUnknown),
        (202, b"", "text/plain", McpOutcomeUnknown),
        (200, b" " * 50_000_000, "application/json", McpOutcomeUnknown),
        (200, b"data: " + b"x" * 50_000_000 + b"\n\n", "text/event-stream", McpOutcomeUnknown),
        (200, b"", "text/event-stream", McpOutcomeUnknown),
        (200, b"data: {}\n\n", "text/event-stream", McpOutcomeUnknown),
        (200, b'data: {"jsonrpc": "2.0", "id": 2, "resu', "text/event-stream", McpOutcomeUnknown),
        (200, b"data: " + DECLINED + b"\n\n", "text/event-stream", McpCallFailed),
        (401, b"", "text/plain", McpCallFailed),
        (200, DECLINED, "application/json", McpCallFailed),
    ],
)
async def test_what_an_http_server_answers_says_whether_the_call_can_have_had_an_effect(
    status: int, body: bytes, kind: str, error: type[Exception]
) -> None:
    async with answering_calls(status, body, kind) as place, connection(place) as server:
        with pytest.raises(error):
            await server.call("go", {})


@pytest.mark.parametrize("body", [b"", b'{"error": "invalid_token"}', b"x" * 100_000])
@pytest.mark.parametrize(("status", "phrase"), [(401, "Unauthorized"), (403, "Forbidden")])
async def test_a_server_that_refuses_the_credentials_is_told_with_its_status_and_what_to_check(
    status: int, phrase: str, body: bytes
) -> None:
    text = f"it answers HTTP {status} ({phrase}); check the credentials in its entry of mcp.yaml: `headers` or `oauth`"
    async with answering(status, body) as place:
        with pytest.raises(McpAccessRefused) as unopened:
            async with connection(place):
                pass
    assert unopened.value.message == f"the MCP server 'gone' ({place.url}) cannot be used: {text}"
    async with answering_calls(status, body, "application/json") as place, connection(place) as server:
        with pytest.raises(McpCallFailed) as refused:
            await server.call("go", {})
    assert refused.value.message == f"the MCP server 'gone': {text}"


async def test_credentials_that_a_file_may_renew_are_tried_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    async with answering(401, b"") as place:
        with pytest.raises(McpUnavailable, match="HTTP 401") as refused:
            async with connection(replace(place, headers={"Authorization": f"Bearer ${{file:{token}}}"})):
                pass
    assert not isinstance(refused.value, McpAccessRefused)


async def test_a_refusal_in_the_protocols_words_is_told_in_these() -> None:
    body = b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "scope till.write is missing"}}'
    async with answering(403, body) as place:
        with pytest.raises(McpAccessRefused, match=r"cannot be used: scope till\.write is missing"):
            async with connection(place):
                pass


async def test_what_is_no_answer_to_a_question_is_told_with_the_servers_name_once() -> None:
    async with connection(odd("shapeless list")) as server:
        with pytest.raises(McpUnavailable, match="cannot be used: it answered what is no answer") as broken:
            await server.ask(lambda session: session.list_tools(), 60.0)
    assert broken.value.message.count("the MCP server 'odd'") == 1


async def test_a_header_that_would_hold_a_line_end_is_refused_without_its_value() -> None:
    place = McpServer(name="gone", url="http://127.0.0.1:9/mcp", headers={"Authorization": "Bearer ${KEY}"})
    with pytest.raises(InvalidInput, match="the header 'Authorization' would hold a line end") as caught:
        async with connection(place, KEY="secret\n"):
            pass
    assert "secret" not in str(caught.value)
    assert McpServer(name="a", url="https://me:word@example.org/mcp").place == "https://example.org/mcp"


@pytest.mark.slow
async def test_a_flood_of_notifications_harms_no_call() -> None:
    async with connection(odd("flood")) as server:
        assert (await server.call("go", {})).text == "after"


@pytest.mark.slow
async def test_a_flood_of_notifications_in_a_stream_harms_no_call_over_http() -> None:
    noise = b'data: {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n\n' * 5_000
    last = b'data: {"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "after"}]}}\n\n'
    async with answering_calls(200, noise + last, "text/event-stream") as place, connection(place) as server:
        assert (await server.call("go", {})).text == "after"


async def test_a_line_that_is_no_json_harms_no_call() -> None:
    async with connection(odd("junk")) as server:
        assert (await server.call("go", {})).text == "after"


async def test_an_answer_of_no_known_shape_leaves_the_outcome_unknown() -> None:
    async with connection(odd("shapeless")) as server:
        with pytest.raises(McpOutcomeUnknown, match="no answer of the protocol"):
            await server.call("go", {})


async def test_an_answer_that_breaks_its_own_schema_is_given_with_a_warning() -> None:
    async with connection(odd("misfit")) as server:
        answer = await server.call("go", {})
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    warned = answer.with_warning(schema)
    assert warned.text.startswith("hi\n[warning: the answer does not fit the schema")
    assert "'x' is not of type 'integer'" in warned.text
    assert answer.with_warning({"type": "object"}) == answer


@asynccontextmanager
async def answering(status: int, body: bytes, kind: str = "application/json") -> AsyncGenerator[McpServer]:
    """An HTTP server that gives every request this answer."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, content_type=kind)

    async with serving(answer) as place:
        yield place


@asynccontextmanager
async def serving(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncGenerator[McpServer]:
    application = web.Application()
    application.router.add_route("*", "/mcp", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield McpServer(name="gone", url=f"http://{host}:{port}/mcp")
    finally:
        await runner.cleanup()


@asynccontextmanager
async def answering_calls(status: int, body: bytes, kind: str) -> AsyncGenerator[McpServer]:
    """An HTTP server of the first era that gives every call of a tool this answer."""

    async def answer(request: web.Request) -> web.Response:
        message: dict[str, Any] = await request.json() if request.method == "POST" else {}
        match message.get("method"):
            case "initialize":
                about = {"name": "odd", "version": "1"}
                result: dict[str, Any] = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": about,
                }
                return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})
            case "tools/call":
                return web.Response(
                    status=status, body=body.replace(b'"id": 2', b'"id": %d' % message["id"]), content_type=kind
                )
            case None:
                return web.Response(status=405)
            case _ if "id" in message:
                error = {"code": -32601, "message": "unknown method"}
                return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
            case _:
                return web.Response(status=202)

    async with serving(answer) as place:
        yield place


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, b"", "text/plain"),
        (500, b"<html>", "text/html"),
        (200, b"<html>", "text/html"),
        (200, b"{}", "application/json"),
        (200, b" " * 17_000_000, "application/json"),
    ],
)
async def test_what_is_no_mcp_server_cannot_be_used(status: int, body: bytes, kind: str) -> None:
    async with answering(status, body, kind) as place:
        with pytest.raises(McpUnavailable):
            async with connection(place):
                pass


@pytest.mark.slow
async def test_a_call_that_breaks_over_http_ends_no_other_call_of_the_connection(tmp_path: Path) -> None:
    async with over_http(tmp_path / "ledger", "large_server.py") as (place, _), connection(place) as server:
        others = [asyncio.create_task(server.call("wait", {"seconds": 12})) for _ in range(110)]
        with pytest.raises(McpOutcomeUnknown, match="answered more than 16,777,216 bytes"):
            await server.call("large", {})
        assert {each.text for each in await asyncio.gather(*others)} == {"waited"}
