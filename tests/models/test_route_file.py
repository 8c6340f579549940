"""`models.yaml`: what it may say, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.usage import Prices
from holdfast.models.route_file import DEFAULT_FILE, FILE_BYTES_MAX, read_routes, routes_from, routes_of
from holdfast.models.routes import ROUTES_MAX, Route

WHOLE = """
models:
  fast:
    api: openai_chat
    model: gpt-5-mini
    base_url: https://gateway.example/v1
    key: {variable: GATEWAY_KEY}
    headers: {X-Team: support, X-Token: "${TOKEN}"}
    timeouts: {connect_seconds: 2, first_byte_seconds: 30, silence_seconds: 20}
    prices: {input_usd: 1, output_usd: 4}
    context_window: 128000
    max_output_tokens: 8000
    capabilities: [stream, tools, images]
    rate_limits: {requests_per_minute: 60, tokens_per_minute: 100000}
  mine: {api: "python:my_models:mirror"}
"""


def refused(text: str) -> str:
    with pytest.raises(InvalidInput) as error:
        routes_of(text, "models.yaml")
    return error.value.message


def test_a_route_says_where_a_model_is_and_what_it_can_do() -> None:
    routes = routes_of(WHOLE, "models.yaml")
    fast = routes["fast"]
    assert (list(routes), fast.model, fast.context_window) == (["fast", "mine"], "gpt-5-mini", 128_000)
    assert fast.prices == Prices(input_usd=1, output_usd=4)
    assert fast.variables == ("GATEWAY_KEY", "TOKEN")
    assert (fast.rate_limits.requests_per_minute, fast.timeouts.connect_seconds) == (60, 2)
    assert routes["mine"].is_custom
    assert routes_from(routes, {}) == routes  # a program gives them as they are


def test_every_problem_stands_in_one_line_and_with_its_route() -> None:
    problem = refused("models: {a: {api: opneai, model: m}, b: {api: openai, modle: m}, c: 3, d: {model: m}}")
    assert problem.count("\n") == 0
    for part in (
        "models.a: there is no model API 'opneai'; did you mean 'openai'?",
        "models.b: unknown field 'modle', did you mean 'model'?",
        "models.c: is not a mapping",
        "models.d: api: is missing",
    ):
        assert part in problem


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        ("{api: openai, model: m, key: {}}", "a key is in a `variable` or in a `file`"),
        ("{api: openai, model: m, key: {variable: A, file: b}}", "give one of them"),
        ('{api: openai, model: m, key: {file: "a\\0b"}}', "key.file: it holds the character NUL"),
        ('{api: openai, model: m, headers: {X-Key: "${file:a\\0b}"}}', "it holds the character NUL"),
        ("{api: openai, model: m, base_url: 'ftp://x'}", "base_url"),
        ("{api: openai, model: m, base_url: 'https://me:secret@x/v1'}", "holds a name or password"),
        *(
            (f"{{api: openai, model: m, base_url: {url!r}}}", "base_url: it is no address like https://host:port/v1")
            for url in ("http://x:99999/v1", "http://x:port/v1", "http://[::1/v1", "http://[x]/v1", "http://:9/v1", "x")
        ),
        ('{api: openai, model: m, base_url: "http://x\\a/v1"}', "it is no address"),
        ("{api: openai, model: m, base_url: 'https://x/v1?key=secret@'}", "it has a query or fragment"),
        ("{api: openai, model: m, headers: {a b: c}}", "it is no name of an HTTP header"),
        ("{api: openai, model: m, headers: {Content-Length: '3'}}", "the client sends this header itself"),
        ("{api: openai, prices: {input_usd: 1, output_usd: 1}}", "`prices` are those of `model`"),
        ("{api: 'python:m:n', base_url: 'https://x'}", "`base_url` means nothing for a model of your own"),
        ("{api: 'python:m:n', timeouts: {connect_seconds: 1}}", "`timeouts` means nothing"),
        ("{api: 'python:m'}", "names no model"),
        (
            "{api: openai, model: m, capabilities: [speech]}",
            "capabilities.0: 'speech' is not a value of it, there are: audio",
        ),
        ("{api: openai, model: m, key: {env: A}}", "unknown field 'key.env', there are: file, variable"),
        (
            "{api: openai, model: m, prices: {input: 1, output_usd: 1}}",
            "unknown field 'prices.input', did you mean 'input_usd'?",
        ),
        (
            "{api: openai, model: m, context_window: 128k}",
            "context_window: Input should be a valid integer, unable to parse string as an integer (it is '128k')",
        ),
        ("{api: openai, model: m, timeouts: {connect_seconds: 601}}", "connect_seconds"),
        ("{api: openai, model: m, context_window: 0}", "context_window"),
        ("{api: openai, model: m, rate_limits: {tokens_per_minute: -1}}", "tokens_per_minute"),
    ],
)
def test_what_a_route_cannot_be_is_refused(route: str, problem: str) -> None:
    text = refused(f"models: {{gpt: {route}}}")
    assert text.startswith("models.yaml: models.gpt: ")
    assert problem in text
    assert "secret@" not in text


def test_a_key_in_the_file_itself_is_refused_and_not_repeated() -> None:
    problem = refused("models: {gpt: {api: openai, model: m, key: sk-canary-0123456789}}")
    assert "the key itself does not belong in this file" in problem
    assert "canary" not in problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("servers: {}", "unknown field 'servers'; write `models:` and below it a name"),
        ("gpt: {api: openai, model: m}", "unknown field 'gpt'; write `models:` and below it a name"),
        ("model: {gpt: {api: openai, model: m}}", "unknown field 'model', did you mean 'models'?"),
        ("models: [{api: openai, model: m}]", "`models` is a list; write `models:` and below it a name"),
        ("models: {}", "names no models"),
        ("", "names no models"),
        ("models: [", "the YAML cannot be read"),
        ("models: {a: &x {api: openai}, b: *x}", "aliases"),
        ("models: {'a b': {api: openai, model: m}}", "is no name for a route"),
        (r'models: {"\e[31m": {api: openai, model: m}}', r"models.\x1b[31m: is no name for a route"),
        (f"models: {{{', '.join(f'm{n}: {{api: openai}}' for n in range(ROUTES_MAX + 1))}}}", "at most 64"),
    ],
)
def test_a_file_that_is_none_says_why(text: str, problem: str) -> None:
    assert problem in refused(text)


def test_the_file_beside_the_agents_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_routes(None) == routes_from(None, {}) == {}
    Path(DEFAULT_FILE).write_text("models: {gpt: {api: openai, model: m}}")
    other = tmp_path / "other.yaml"
    other.write_text("models: {other: {api: openai_chat, model: m}}")
    assert read_routes(None) == {"gpt": Route(api="openai", model="m")}
    assert list(routes_from(None, {"HOLDFAST_MODELS": str(other)})) == list(routes_from(other, {})) == ["other"]
    with pytest.raises(InvalidInput, match=r"none\.yaml: cannot be read"):
        read_routes(tmp_path / "none.yaml")
    other.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(InvalidInput, match="is larger than"):
        read_routes(other)
