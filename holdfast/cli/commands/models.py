"""`holdfast models`: the models that agents may name, and whether each answers."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.markup import escape

from holdfast.cli.busy_indicator import busy
from holdfast.cli.options import AsJson, ModelApi, ModelsFile, settings_from
from holdfast.cli.screens import output
from holdfast.cli.screens.listing_table import Column, print_listing
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import InvalidInput, ModelFailure
from holdfast.core.base.safe_text import printable
from holdfast.core.conversation.display_text import on_a_line
from holdfast.models.model_choice import EnvironmentModel, chosen_api
from holdfast.models.route_file import DEFAULT_FILE, FORM, read_routes

if TYPE_CHECKING:  # slow to import
    from holdfast.models.route_listing import RouteListing, RouteTry
    from holdfast.models.routed_model import RoutedModel

OWN: Final = "(worker's own)"
"""The name of the worker's own model in the table."""

COLUMNS: Final = (
    Column("route", least=12),
    Column("api", rank=2),
    Column("model", least=12),
    Column("endpoint", least=21),
    Column("key"),
    Column("$ per M tokens", rank=1),
    Column("window", rank=3, right=True),
    Column("check"),
)
"""The table's columns; an endpoint keeps host and port of a server on this machine."""

PROBLEM_CHARS_MAX: Final = 300
"""How much of a problem is shown beside a table."""


def models(
    route: Annotated[str | None, typer.Argument(metavar="ROUTE", help="A route of the file; without one: all.")] = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Ask each for an answer of a few tokens, which costs.")
    ] = False,
    models_file: ModelsFile = None,
    model: ModelApi = None,
    as_json: AsJson = False,
) -> None:
    """List the models that agents may name, by their routes; with --check, ask each."""
    from holdfast.models.route_listing import listings
    from holdfast.models.routed_model import RoutedModel

    chosen_api(model)  # a wrong one is no worker without a model of its own
    file = settings_from(models_file=models_file).models_file
    routed = RoutedModel(EnvironmentModel(model), read_routes(file))
    lines = [each for each in listings(routed, os.environ) if route is None or each.name == route]
    if route is not None and not lines:
        where = f"the routes of {file or DEFAULT_FILE}"
        raise InvalidInput(f"{route[:80]!r} is none of {where}; {suggestion(route, routed.routes)}")
    tries: dict[str, RouteTry] = {}
    if check and lines:
        with busy("asking the models"):
            tries = asyncio.run(_tried(routed, [each.name for each in lines]))
    if as_json:
        output.as_json([_document(each, tries.get(each.name)) for each in lines])
    else:
        _table(lines, tries, file or DEFAULT_FILE)
    if any(each.error for each in tries.values()):
        raise typer.Exit(ModelFailure.exit_code)


async def _tried(model: RoutedModel, names: list[str]) -> dict[str, RouteTry]:
    from holdfast.models.route_listing import tried

    try:
        return await tried(model, names)
    finally:
        await model.close()


def _document(line: RouteListing, tried: RouteTry | None) -> dict[str, Any]:
    prices = None if line.prices is None else line.prices.model_dump(mode="json")
    return {**asdict(line), "prices": prices, "check": None if tried is None else asdict(tried)}


def _table(lines: list[RouteListing], tries: dict[str, RouteTry], file: Path) -> None:
    if not lines:
        text = f"no models: no endpoint is set in this environment, and there is no {file}; {FORM}"
        output.console().print(escape(text))
        return
    rows: list[list[str]] = []
    for each in lines:
        result = () if each.name not in tries else (_result(tries[each.name]),)
        texts = (each.name or OWN, each.api, each.model or "-", each.endpoint or "-", each.key, _prices(each))
        window = f"{each.context_window:,}" if each.context_window else "unknown"
        rows.append([escape(printable(text)) for text in (*texts, window, *result)])
    print_listing(output.tables(), COLUMNS if tries else COLUMNS[:-1], rows)
    for each in lines:
        tried = tries.get(each.name)
        if problem := (tried.error if tried else "") or each.problem:
            shown = on_a_line(printable(problem), PROBLEM_CHARS_MAX)
            output.console().print(escape(f"{each.name or OWN}: {shown}"))


def _prices(line: RouteListing) -> str:
    return "unknown" if line.prices is None else f"{line.prices.input_usd:g} in, {line.prices.output_usd:g} out"


def _result(tried: RouteTry) -> str:
    return "failed" if tried.error else f"{tried.seconds:.1f} s, {tried.tokens} tokens"
