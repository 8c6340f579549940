"""What the endpoint can say no with: one table of what it becomes and whether asking again can help."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from holdfast.core.wire.endpoint_refusals import RETRY_AFTER_MAX
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.models.provider_errors import BODY_CHARS_MAX, provider_failure
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply
from tests.activities.asking import KEY, asking, failure_of, failure_with, request

AGAIN, FINAL = True, False
HTML = {"content-type": "text/html"}
LOCAL = "http://127.0.0.1"
LONG = "x" * 100_000
QUOTA = "You exceeded your current quota, please check your plan."
WRAPPED = '{"error": {"code": "context_length_exceeded"}}'
NO_FUNCTION = {"message": {"tool_calls": [{"id": "a", "type": "function", "function": None}]}}
CUSTOM = {"message": {"tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "x", "input": "y"}}]}}
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}


def refusal(code: int, message: str = "the endpoint's words", /, **fields: object) -> Reply:
    """Return an error in OpenAI's shape."""
    return Reply(status=code, body=json.dumps({"error": {"message": message, **fields}}))


def completion(**fields: object) -> Reply:
    """Return an answer with status 200 whose fields are as given."""
    usual = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [CHOICE]}
    return Reply(body=json.dumps({**usual, **fields}))


@dataclass(frozen=True)
class Row:
    """One row of the table: what the endpoint does, what it becomes, whether it is asked again, what the text names."""

    name: str
    turn: Reply
    type: str
    again: bool
    told: str


def status(code: int, kind: str, *, again: bool) -> Row:
    return Row(str(code), Reply(status=code, text="the endpoint's words"), kind, again, f"answered {code}")


def parts(depth: int) -> str:
    """Return a completion whose content is a part whose text is a part, and so on."""
    content = '[{"text": ' * depth + '"x"' + "}]" * depth
    return f'{{"choices": [{{"message": {{"role": "assistant", "content": {content}}}}}]}}'


TABLE = [
    *(status(code, "ProviderUnavailable", again=AGAIN) for code in (408, 409, 425, 429, 500, 502, 503, 504, 529, 599)),
    *(status(code, "RequestRefused", again=FINAL) for code in (400, 405, 413, 418, 422, 451)),
    status(401, "NotAuthorised", again=FINAL),
    status(403, "NotAuthorised", again=FINAL),
    status(404, "ModelNotFound", again=FINAL),
    status(402, "QuotaExceeded", again=FINAL),
    Row("quota by code", refusal(429, QUOTA, code="insufficient_quota"), "QuotaExceeded", FINAL, "no credit left"),
    Row("quota by type", refusal(429, QUOTA, type="insufficient_quota"), "QuotaExceeded", FINAL, "no credit left"),
    Row("context by words", refusal(400, "maximum context length is 8192"), "ContextTooLong", FINAL, "shorten"),
    Row("context, OpenAI", refusal(400, code="context_length_exceeded"), "ContextTooLong", FINAL, "shorten"),
    Row("context, llama.cpp", refusal(400, type="exceed_context_size_error"), "ContextTooLong", FINAL, "shorten"),
    Row(
        "context, vLLM", refusal(400, type="BadRequestError", param="input_tokens"), "ContextTooLong", FINAL, "shorten"
    ),
    Row("context, wrapped", refusal(400, metadata={"raw": WRAPPED}), "ContextTooLong", FINAL, "shorten"),
    *(
        Row(f"context, {name}", refusal(code, words), "ContextTooLong", FINAL, "context.summary")
        for name, code, words in (
            ("LiteLLM", 400, "litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - too long"),
            ("LiteLLM's proxy", 500, "litellm.ContextWindowExceededError: maximum context length is 8192 tokens"),
            ("vLLM", 400, "This model's maximum context length is 2048 tokens. However, you requested 4096 tokens"),
            ("vLLM's own", 500, "maximum context length is 2048 tokens"),
            ("llama.cpp", 400, "the request exceeds the available context size (512 tokens), try increasing it"),
            ("Ollama", 400, "prompt too long; exceeded max context length by 4 tokens"),
            ("Ollama's runner", 500, "the input length exceeds the context length"),
            ("Gemini", 400, "The input token count (1195000) exceeds the maximum number of tokens allowed (1048575)."),
            ("Anthropic", 400, "prompt is too long: 209345 tokens > 200000 maximum"),
        )
    ),
    Row("a rate of tokens", refusal(429, "maximum context length"), "ProviderUnavailable", AGAIN, "answered 429"),
    Row("a gateway", refusal(503, "maximum context length"), "ProviderUnavailable", AGAIN, "answered 503"),
    Row("billing", refusal(429, code="billing_hard_limit_reached"), "QuotaExceeded", FINAL, "no credit left"),
    Row("billing, 400", refusal(400, code="billing_hard_limit_reached"), "QuotaExceeded", FINAL, "no credit left"),
    Row("context, 413", refusal(413, code="context_length_exceeded"), "ContextTooLong", FINAL, "shorten"),
    Row("error page", Reply(status=502, body="<h1>Bad</h1>", headers=HTML), "ProviderUnavailable", AGAIN, "502"),
    Row("no error page", Reply(status=400, body=""), "RequestRefused", FINAL, "answered 400"),
    Row("cut before the answer", Reply(disconnect=True), "ProviderUnavailable", AGAIN, "cannot be reached"),
    Row("cut in the answer", Reply(text=LONG, pieces_max=0, disconnect=True), "ProviderUnavailable", AGAIN, LOCAL),
    Row("HTML", Reply(body="<html>log in</html>", headers=HTML), "UnusableAnswer", AGAIN, "OPENAI_BASE_URL"),
    Row("HTML called JSON", Reply(body="<html>log in</html>"), "UnusableAnswer", AGAIN, LOCAL),
    Row("empty body", Reply(body=""), "UnusableAnswer", AGAIN, LOCAL),
    Row("half a body", Reply(body='{"id": "1", "choi'), "UnusableAnswer", AGAIN, LOCAL),
    Row("a list", Reply(body="[]"), "UnusableAnswer", AGAIN, "chat completion"),
    Row("null", Reply(body="null"), "UnusableAnswer", AGAIN, "chat completion"),
    Row("an empty object", Reply(body="{}"), "UnusableAnswer", AGAIN, "chat completion"),
    Row("an error with 200", refusal(200), "ProviderUnavailable", AGAIN, "the endpoint's words"),
    Row("no choice", completion(choices=[]), "UnusableAnswer", AGAIN, LOCAL),
    Row("choices null", completion(choices=None), "UnusableAnswer", AGAIN, LOCAL),
    Row("choices a mapping", completion(choices={}), "UnusableAnswer", AGAIN, LOCAL),
    Row("a choice null", completion(choices=[None]), "UnusableAnswer", AGAIN, LOCAL),
    Row("a choice a text", completion(choices=["x"]), "UnusableAnswer", AGAIN, LOCAL),
    Row("message null", completion(choices=[{"message": None}]), "UnusableAnswer", AGAIN, LOCAL),
    Row("message a text", completion(choices=[{"message": "x"}]), "UnusableAnswer", AGAIN, LOCAL),
    Row("a call null", completion(choices=[{"message": {"tool_calls": [None]}}]), "UnusableAnswer", AGAIN, LOCAL),
    Row("a call that is no function", completion(choices=[CUSTOM]), "UnusableAnswer", AGAIN, LOCAL),
    Row("parts that are none", completion(choices=[{"message": {"content": ["x"]}}]), "UnusableAnswer", AGAIN, LOCAL),
    Row("a call without function", completion(choices=[NO_FUNCTION]), "UnusableAnswer", AGAIN, LOCAL),
    Row("text without end", Reply(body=parts(400)), "UnusableAnswer", AGAIN, LOCAL),
    Row("a body of 17 MB", completion(padding="x" * 17 * 1024 * 1024), "UnusableAnswer", AGAIN, LOCAL),
    Row("calls a number", completion(choices=[{"message": {"tool_calls": 5}}]), "UnusableAnswer", AGAIN, LOCAL),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
async def test_the_table_of_failures(row: Row) -> None:
    failure = await failure_of(row.turn)
    assert failure.kind == row.type
    assert failure.again is row.again
    assert row.told in failure.message
    assert "\n" not in failure.message
    assert failure.__cause__ is None
    assert failure.after is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        ("1.5", 1.5),
        ("-5", 0),
        ("36000", RETRY_AFTER_MAX.total_seconds()),
        ("1e300", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 2015 07:28:00 -0000", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", RETRY_AFTER_MAX.total_seconds()),
        ("Wed, 99 Foo 2015", None),
        ("Wed, 21 Oct 99999999999 07:28:00 GMT", None),
    ],
)
async def test_retry_after_is_read_in_either_form_and_bounded(value: str, seconds: float | None) -> None:
    delay = (await failure_of(Reply(status=429, headers={"retry-after": value}))).after
    assert (delay.total_seconds() if delay is not None else None) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "0"}, 0),
        ({"retry-after-ms": "1e12"}, RETRY_AFTER_MAX.total_seconds()),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9),
        ({"retry-after-ms": "nan"}, None),
    ],
)
async def test_milliseconds_are_read_where_they_are_given(headers: dict[str, str], seconds: float | None) -> None:
    delay = (await failure_of(Reply(status=429, headers=headers))).after
    assert (delay.total_seconds() if delay is not None else None) == seconds


@pytest.mark.parametrize(
    ("status_", "told", "again"),
    [(429, "false", FINAL), (500, "false", FINAL), (400, "true", AGAIN), (404, "true", AGAIN), (500, "odd", AGAIN)],
)
async def test_an_endpoint_can_say_itself_whether_to_ask_again(status_: int, told: str, *, again: bool) -> None:
    failure = await failure_of(Reply(status=status_, headers={"x-should-retry": told, "retry-after": "3"}))
    assert failure.again is again
    assert (failure.after is not None) is again


async def test_retry_after_as_a_date_is_the_time_until_then() -> None:
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    delay = (await failure_of(Reply(status=429, headers={"retry-after": then}))).after
    assert delay is not None
    assert timedelta(seconds=20) < delay <= timedelta(seconds=30)


async def test_retry_after_counts_for_an_overloaded_server_too() -> None:
    assert (await failure_of(Reply(status=503, headers={"retry-after": "7"}))).after == timedelta(seconds=7)


async def test_a_refusal_that_is_final_ignores_retry_after() -> None:
    assert (await failure_of(Reply(status=401, headers={"retry-after": "7"}))).after is None


async def test_an_endpoint_that_is_not_there_is_named_with_what_to_check() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        model = OpenAIChat(ProviderSettings(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, model="m"))
        failure = await failure_with(model)
        await model.close()
    assert (failure.kind, failure.again) == ("ProviderUnavailable", True)
    assert f"http://127.0.0.1:{port}/v1 cannot be reached (ConnectError)" in failure.message
    assert "OPENAI_BASE_URL" in failure.message


async def test_a_name_that_does_not_resolve_is_named_as_such() -> None:
    model = OpenAIChat(ProviderSettings(base_url="http://no-such-host.invalid/v1", api_key=KEY, model="m"))
    failure = await failure_with(model)
    await model.close()
    assert (failure.kind, failure.again) == ("ProviderUnavailable", True)
    assert "http://no-such-host.invalid/v1 cannot be reached (its name cannot be resolved)" in failure.message


def test_where_no_address_is_set_the_api_is_named_and_the_network_is_to_be_checked() -> None:
    usual, own = ProviderSettings(api_key=KEY), ProviderSettings(base_url="http://127.0.0.1:9/v1", api_key=KEY)
    assert usual.title == "the OpenAI API"
    assert usual.remedy_unreached.startswith("check this machine's network and proxy")
    assert own.title == "the model endpoint http://127.0.0.1:9/v1"
    assert own.remedy_unreached == "is it running, is OPENAI_BASE_URL right?"


async def test_an_endpoint_that_does_not_speak_tls_is_named_as_such() -> None:
    async with FakeOpenAI([]) as endpoint:
        address = endpoint.base_url.replace("http:", "https:")
        model = OpenAIChat(ProviderSettings(base_url=address, api_key=KEY, model="m"))
        failure = await failure_with(model)
        await model.close()
    assert (failure.kind, failure.again) == ("ProviderUnavailable", True)
    assert f"{address} cannot be reached (TLS: " in failure.message


async def test_a_connection_that_is_never_made_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.models.openai_endpoint.CONNECT_SECONDS", 0.1)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with socket.create_connection(address), _no_room(address):
            model = OpenAIChat(ProviderSettings(base_url=f"http://127.0.0.1:{address[1]}/v1", api_key=KEY, model="m"))
            failure = await failure_with(model)
            await model.close()
    assert (failure.kind, failure.again) == ("ProviderUnavailable", True)
    assert "did not answer in time" in failure.message


@contextmanager
def _no_room(address: tuple[str, int]) -> Generator[None]:
    """Fill the queue of a listener that accepts nobody: whoever comes then gets no answer at all."""
    with socket.socket() as second:
        second.settimeout(0)
        second.connect_ex(address)
        yield


async def test_an_error_of_a_hundred_megabytes_is_not_read_to_its_end() -> None:
    turn = Reply(status=500, body=(b"x" * 1_000_000,) * 100)
    async with asking(turn) as (endpoint, model):
        failure = await failure_with(model)
        await endpoint.until(lambda seen: seen[0].outcome == "disconnected-by-client", seconds_max=90)
    assert (failure.kind, failure.again) == ("ProviderUnavailable", True)
    assert "answered 500" in failure.message
    assert len(failure.message) < 1_000


async def test_silence_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.models.answer_transfer.FIRST_BYTE_SECONDS", 0.05)
    failure = await failure_of(Reply(hang=True))
    assert (failure.kind, failure.again) == ("ProviderUnavailable", True)
    assert "did not answer in time" in failure.message


@pytest.mark.parametrize("code", [400, 401, 429])
@pytest.mark.parametrize("where", ["message", "code", "headers"])
async def test_a_key_that_the_endpoint_repeats_is_never_told(code: int, where: str) -> None:
    turns = {
        "message": Reply(status=code, text=f"Incorrect API key provided: {KEY}."),
        "code": refusal(code, code=KEY, type=KEY),
        "headers": Reply(status=code, headers={"www-authenticate": KEY, "retry-after": KEY}),
    }
    failure = await failure_of(turns[where])
    assert KEY not in repr(failure)
    assert KEY not in failure.message


@pytest.mark.parametrize("headers", [HTML, {}], ids=["HTML", "JSON"])
@pytest.mark.parametrize("before", [0, 60, 72])
async def test_a_key_in_an_answer_that_is_none_is_not_told_in_whole_or_in_part(
    before: int, headers: dict[str, str]
) -> None:
    failure = await failure_of(Reply(body="<" * before + KEY, headers=headers))
    assert failure.kind == "UnusableAnswer"
    assert KEY[:4] not in failure.message


@pytest.mark.parametrize("visible", [4, 8, len(KEY) - 1])
async def test_a_key_at_the_edge_of_the_cut_is_not_told_in_part(visible: int) -> None:
    filling = "x" * (BODY_CHARS_MAX - visible)
    assert KEY[:visible] not in (await failure_of(Reply(status=400, text=filling + KEY))).message.replace("x", "")


async def test_the_endpoints_own_words_are_kept_and_bounded() -> None:
    failure = await failure_of(Reply(status=400, text="temperature\nmust be\x00 lower " + "x" * 10**5))
    assert "temperature must be" in failure.message
    assert len(failure.message) < BODY_CHARS_MAX + 200


async def test_an_address_with_a_password_is_told_without_it() -> None:
    settings = ProviderSettings(base_url="http://me:pass-canary@127.0.0.1:1/v1", api_key=KEY, model="m")
    model = OpenAIChat(settings)
    failure = await failure_with(model)
    await model.close()
    assert "pass-canary" not in failure.message
    assert "http://127.0.0.1:1/v1" in failure.message


async def test_a_worker_without_an_endpoint_or_a_model_says_what_to_set() -> None:
    nowhere = await failure_with(OpenAIChat(ProviderSettings()))
    assert (nowhere.kind, nowhere.again) == ("InvalidInput", False)
    assert "OPENAI_API_KEY" in nowhere.message
    unnamed = OpenAIChat(ProviderSettings(base_url="http://127.0.0.1:1/v1"))
    failure = await failure_with(unnamed, request())
    await unnamed.close()
    assert (failure.kind, failure.again) == ("InvalidInput", False)
    assert "HOLDFAST_MODEL" in failure.message


def test_what_is_no_failure_of_the_provider_is_left_to_others() -> None:
    assert provider_failure(RuntimeError("ours"), ProviderSettings()) is None
