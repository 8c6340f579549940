"""An API of models is a row of a table: what asks, pays, traces and examines follows it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType

import pytest

from activities import guardian_link
from holdfast import models
from holdfast.client import Settings
from holdfast.core.agent.model import ModelRequest
from holdfast.core.base.errors import InvalidInput, MissingPart
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models import Model, model_choice
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.model_apis import OPENAI, ModelApi
from holdfast.models.model_choice import model_from
from holdfast.runtime.prices import PriceList, table_prices
from holdfast.server.doctor import endpoint_facts, machine_findings
from holdfast.server.doctor.checks import examine
from holdfast.server.doctor.findings import Level
from holdfast.server.worker_process import check_parts, worker_parts

ANTHROPIC = ModelApi(
    name="anthropic",
    title="the Anthropic API",
    base_url="https://api.anthropic.com/v1",
    variables="ANTHROPIC",
    package="no_such_client",
    extra="anthropic",
    model="Messages",
    headers=lambda key: {"x-api-key": key, "anthropic-version": "2023-06-01"},
)


class Messages(Model):
    def __init__(self, settings: ProviderSettings) -> None:
        self.settings = settings

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def two_apis(monkeypatch: pytest.MonkeyPatch) -> None:
    both = MappingProxyType({OPENAI.name: OPENAI, ANTHROPIC.name: ANTHROPIC})
    monkeypatch.setattr(model_choice, "APIS", both)
    monkeypatch.setattr(guardian_link, "APIS", both)
    monkeypatch.setattr(models, "Messages", Messages, raising=False)


class Listing(BaseHTTPRequestHandler):
    """Lists one model to whoever brings the key."""

    def do_GET(self) -> None:  # the base class's name
        let_in = (
            self.path == "/v1/models" and self.headers["x-api-key"] == "secret" and "Authorization" not in self.headers
        )
        body = b'{"data": [{"id": "claude"}]}' if let_in else b"{}"
        self.send_response(200 if let_in else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        pass


@pytest.fixture
def endpoint() -> Generator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Listing) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def test_its_variables_say_where_it_is() -> None:
    environment = {
        "HOLDFAST_MODEL_API": "anthropic",
        "HOLDFAST_MODEL": "claude",
        "ANTHROPIC_API_KEY": "secret",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    }
    model = model_from(None, environment)
    assert isinstance(model, Messages)
    assert (model.settings.base_url, model.settings.api_key, model.settings.model) == (None, "secret", "claude")
    assert model.settings.endpoint == "the Anthropic API"
    assert tuple(model.settings.server) == ("anthropic", "api.anthropic.com", None)


def test_what_is_wrong_with_a_variable_is_said_of_its_own() -> None:
    with pytest.raises(InvalidInput, match="ANTHROPIC_BASE_URL is not an address"):
        ProviderSettings.from_environment({"ANTHROPIC_BASE_URL": "nowhere"}, ANTHROPIC)
    with pytest.raises(InvalidInput, match="the key in ANTHROPIC_API_KEY has characters"):
        ProviderSettings.from_environment({"ANTHROPIC_API_KEY": "é"}, ANTHROPIC)
    with pytest.raises(InvalidInput, match=r"there is no model API .antropic.; did you mean .anthropic.\?"):
        model_from("antropic", {})


def test_the_guardian_gets_none_of_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "HOLDFAST_DATA_DIR"):
        monkeypatch.setenv(name, "x")
    given = guardian_link._environment()  # pyright: ignore[reportPrivateUsage]
    assert [name for name in given if name.startswith(("ANTHROPIC_", "OPENAI_"))] == []
    assert given["HOLDFAST_DATA_DIR"] == "x"


def test_a_worker_needs_its_client_and_no_other() -> None:
    assert worker_parts("anthropic")["no_such_client"] == "anthropic"
    assert "openai" not in worker_parts("anthropic")
    assert set(worker_parts("python:mine:model")) == {"temporalio", "obstore"}
    with pytest.raises(InvalidInput, match="'python:' names no model; write python:MODULE:NAME"):
        worker_parts("python:")
    with pytest.raises(MissingPart, match=r"needs no_such_client, .* pip install '/path/to/holdfast\[anthropic\]'"):
        check_parts(worker_parts("anthropic"))


def test_prices_begin_with_the_default_api() -> None:
    assert PriceList().provider == OPENAI.name


def test_its_prices_count_where_no_address_is_named() -> None:
    paid = PriceList(model="claude-sonnet-4-0", provider=ANTHROPIC.name).of(None)
    assert paid == table_prices("claude-sonnet-4-0", "https://api.anthropic.com") is not None


@pytest.mark.parametrize(
    ("key", "level", "words"),
    [
        ("secret", Level.OK, "1 model, 'claude' among them"),
        ("wrong", Level.ERROR, "the key is refused: check ANTHROPIC_API_KEY of the worker"),
        (None, Level.ERROR, "a key is required: set ANTHROPIC_API_KEY of the worker"),
    ],
)
def test_doctor_asks_it_in_its_own_way(endpoint: str, key: str | None, level: Level, words: str) -> None:
    facts = endpoint_facts.ask(ProviderSettings(base_url=endpoint, api_key=key, model="claude", api=ANTHROPIC))
    found = machine_findings.model_endpoint(facts)
    assert found.level is level
    assert words in f"{found.result} {found.remedy}"


async def test_doctor_asks_no_endpoint_for_a_model_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_MODEL_API", "python:my_models:mirror")
    found = await examine(Settings(data_dir=tmp_path / "data", agents_dir=tmp_path / "agents"))
    told = next(each for each in found if each.check == machine_findings.MODEL)
    assert (told.level, told.result.startswith("your own model my_models:mirror")) == (Level.OK, True)
