"""Where a model's prices come from: a file of one's own, the table, nobody."""

from __future__ import annotations

import socket
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    PriceVariant,
    StartDateConstraint,
)

from holdfast.core.agent.definition import LLM, AgentDefinition, FallbackRoute
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.usage import Prices, Usage
from holdfast.local import LocalDriver
from holdfast.runtime.prices import PriceList, in_tier, prices_applying, read_prices, table_prices
from holdfast.testing import ScriptedModel, say

DEEPSEEK = "https://api.deepseek.com"


def test_the_table_knows_models_by_their_provider_and_by_the_dated_names_that_answers_bring() -> None:
    assert table_prices("gpt-4o") == Prices(input_usd=2.5, output_usd=10, cached_usd=1.25)
    assert table_prices("gpt-4o-2024-08-06", "https://api.openai.com/v1") == table_prices("gpt-4o")


def test_behind_an_address_that_nobody_knows_the_models_name_says_what_it_costs() -> None:
    for name in ("gpt-4o", "openai/gpt-4o"):
        assert table_prices(name, "http://127.0.0.1:4000/v1") == table_prices("gpt-4o")


@pytest.mark.parametrize("name", ["no-such-model", "scripted", "", "openai/", "text-embedding-3-small"])
def test_a_model_that_is_not_in_the_table_or_is_not_paid_by_its_words_has_no_prices(name: str) -> None:
    assert table_prices(name) is None


def test_of_prices_by_length_the_dearest_counts() -> None:
    prices = table_prices("gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/openai/")
    assert prices == Prices(input_usd=2.5, output_usd=15, cached_usd=0.25), "beyond 200,000 tokens; 1.25 and 10 below"


def test_of_prices_by_the_hour_the_dearest_counts() -> None:
    assert table_prices("deepseek-chat", DEEPSEEK) == Prices(input_usd=0.27, output_usd=1.1, cached_usd=0.07)


def test_what_a_provider_reads_from_and_writes_to_its_cache_has_prices_of_its_own() -> None:
    claude = table_prices("claude-3-5-sonnet", None, "anthropic")
    assert claude == Prices(input_usd=3, output_usd=15, cached_usd=0.3, cache_write_usd=3.75)
    used = Usage(input_tokens=1_000_000, output_tokens=10_000, cached_tokens=900_000, cache_write_tokens=100_000)
    assert claude is not None
    assert claude.cost(used) == pytest.approx(0.27 + 0.375 + 0.15)


def test_where_one_of_several_prices_names_none_for_the_cache_a_cached_token_costs_as_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = ModelPrice(input_mtok=Decimal(4), output_mtok=Decimal(8), cache_read_mtok=Decimal(1))
    other = ModelPrice(input_mtok=Decimal(2), output_mtok=Decimal(8))

    def applying(model: object, today: object) -> list[ModelPrice]:  # noqa: ARG001  # the function's own parameters
        return [named, other]

    monkeypatch.setattr("holdfast.runtime.prices.prices_applying", applying)
    assert table_prices("gpt-4o") == Prices(input_usd=4, output_usd=8)


def test_a_price_that_has_given_way_to_another_counts_no_more() -> None:
    def at(usd: int, start: date | None) -> ConditionalPrice:
        constraint = None if start is None else StartDateConstraint(start_date=start)
        return ConditionalPrice(constraint, prices=ModelPrice(input_mtok=Decimal(usd)))

    model = ModelInfo(
        id="m", match=ClauseEquals("m"), prices=[at(9, None), at(3, date(2025, 1, 1)), at(5, date(2026, 1, 1))]
    )
    applying = prices_applying(model, date(2025, 6, 1))
    assert [each.input_mtok for each in applying] == [3, 5], "the next one may begin while a run is under way"
    assert [each.input_mtok for each in prices_applying(model, date(2026, 6, 1))] == [5]


def test_a_definitions_prices_come_first_then_the_workers_then_the_tables() -> None:
    mine, ours = Prices(input_usd=1, output_usd=1), Prices(input_usd=2, output_usd=2)
    known = PriceList({"gpt-4o": ours}, model="gpt-4o")
    assert known.priced(LLM(model="gpt-4o", prices=mine)).prices == mine
    assert known.priced(LLM(model="gpt-4o")).prices == ours
    assert known.priced(LLM()).prices == ours, "the worker's own model"
    assert known.priced(LLM(model="gpt-4o-mini")).prices == table_prices("gpt-4o-mini")
    assert PriceList().priced(LLM()) == LLM()


def test_a_definitions_window_comes_first_then_the_tables() -> None:
    assert PriceList().priced(LLM(model="gpt-4o")).context_window == PriceList().window_of("gpt-4o") == 128_000
    assert PriceList().priced(LLM(model="gpt-4o", context_window=4_096)).context_window == 4_096
    assert PriceList().priced(LLM(model="no-such-model-x", context_window=4_096)).context_window == 4_096


@pytest.mark.parametrize(
    "text", ["my-model: {input_usd: 1.5, output_usd: 6}\n", '{"my-model": {"input_usd": 1.5, "output_usd": 6}}']
)
def test_a_file_of_prices_is_yaml_or_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "prices.yaml").write_text(text, encoding="utf-8")
    known = PriceList.from_environment({"HOLDFAST_PRICES": str(tmp_path / "prices.yaml")})
    assert known.of("my-model") == Prices(input_usd=1.5, output_usd=6)


def test_a_file_of_prices_may_name_those_of_the_providers_cache(tmp_path: Path) -> None:
    text = "m: {input_usd: 1.5, output_usd: 6, cached_usd: 0.15, cache_write_usd: 1.875}"
    (tmp_path / "prices.yaml").write_text(text, encoding="utf-8")
    expected = Prices(input_usd=1.5, output_usd=6, cached_usd=0.15, cache_write_usd=1.875)
    assert read_prices(tmp_path / "prices.yaml") == {"m": expected}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("m: {input_usd: -1, output_usd: 1}", "m.input_usd: Input should be greater than or equal to 0"),
        ("m: {input_usd: 1}", "m.output_usd: Field required"),
        ("m: {input_usd: 1, output_usd: 1, cached: 1}", "m.cached: Extra inputs are not permitted"),
        ("- m", "the file: Input should be a mapping of names to values"),
        ("m: [", "is neither YAML nor JSON"),
        ("m: {input_usd: .nan, output_usd: 1}", "m.input_usd: Input should be a finite number"),
    ],
)
def test_what_is_wrong_with_a_file_of_prices_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        read_prices(path)
    assert str(path) in refused.value.message
    assert told in refused.value.message
    assert "\n" not in refused.value.message


def test_a_file_of_prices_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        PriceList.from_environment({"HOLDFAST_PRICES": str(tmp_path / "none.yaml")})
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="is not UTF-8 text"):
        read_prices(tmp_path / "binary")
    (tmp_path / "long").write_text("# " + "x" * 2**20, encoding="utf-8")
    with pytest.raises(InvalidInput, match="has more than 1,048,576 bytes"):
        read_prices(tmp_path / "long")


async def test_a_run_in_process_knows_the_prices_that_the_table_has() -> None:
    agent = AgentDefinition(name="priced", llm=LLM(model="gpt-4o"))
    state = await LocalDriver(agent, model=ScriptedModel([say("done", usage=(1_000_000, 1_000))])).execute("Now?")
    assert state.cost == pytest.approx(2.5 + 0.01)
    assert state.warnings == ()


def test_no_price_is_fetched_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("somebody wanted a network")

    monkeypatch.setattr(socket.socket, "connect", refused)
    assert table_prices("gpt-4o-mini") is not None


def test_importing_holdfast_does_not_read_the_table() -> None:
    program = "import holdfast, holdfast.runtime.prices, sys; sys.exit('genai_prices' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_service_tier_costs_what_the_table_says_of_it() -> None:
    usual, flex, priority = (table_prices("gpt-5", tier=tier) for tier in (None, "flex", "priority"))
    assert usual is not None
    assert flex is not None
    assert priority is not None
    assert flex.input_usd < usual.input_usd < priority.input_usd
    assert flex.output_usd < usual.output_usd < priority.output_usd
    assert table_prices("gpt-5", tier="auto") == table_prices("gpt-5", tier="no-such-tier") == usual
    known = PriceList().priced(LLM(model="gpt-5", service_tier="priority", fallback=(FallbackRoute(model="gpt-5"),)))
    assert known.prices == known.fallback[0].prices == priority


def test_a_price_of_ones_own_holds_for_every_tier() -> None:
    mine = Prices(input_usd=1, output_usd=2)
    assert PriceList({"gpt-5": mine}).of("gpt-5", "priority") == mine


def test_of_a_tiers_prices_the_latest_that_began_counts_and_those_to_come() -> None:
    base = ModelPrice(input_mtok=Decimal(4), output_mtok=Decimal(8), cache_read_mtok=Decimal(1))
    begins = ((5, date(2027, 1, 1)), (2, date(2026, 2, 1)), (9, date(2026, 1, 1)))
    flex = {"service_tier": "flex"}
    variants = [
        *(PriceVariant(flex, ModelPrice(input_mtok=Decimal(usd)), StartDateConstraint(day)) for usd, day in begins),
        PriceVariant({**flex, "route": "eu"}, ModelPrice(input_mtok=Decimal(99))),
    ]
    model = ModelInfo(id="m", match=ClauseEquals(equals="m"), prices=base, price_variants=variants)
    inputs = [each.input_mtok for each in in_tier([base], model, date(2026, 6, 1), "flex")]
    assert inputs == [5, 2]
    assert [each.cache_read_mtok for each in in_tier([base], model, date(2026, 6, 1), "flex")] == [1, 1]
    assert [each.input_mtok for each in in_tier([base], model, date(2025, 6, 1), "flex")] == [4, 5, 2, 9]
    assert in_tier([base], model, date(2026, 6, 1), None) == [base]
