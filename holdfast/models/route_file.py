"""`models.yaml`: the routes that a process knows. Read and checked here; nothing is connected, no key is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import InvalidInput
from holdfast.models.model_apis import api_named, api_names
from holdfast.models.routes import PYTHON_API, ROUTES_MAX, Route, RouteName
from holdfast.runtime.entry_file import SHOWN_CHARS_MAX, EntryFile, fields_of
from holdfast.runtime.imports import module_and_name

DEFAULT_FILE: Final = Path("models.yaml")

VARIABLE_OF_FILE: Final = "HOLDFAST_MODELS"
"""The environment variable that names the file."""

FILE_BYTES_MAX: Final = 256 * 1024
"""The largest such file."""

ModelRoutes: TypeAlias = str | Path | Mapping[str, Route | Mapping[str, Any]]
"""What lists routes: such a file, or the routes by name, each as an entry of one."""

FORM: Final = "write `models:` and below it a name, a colon, and the route's `api` and `model`"

_NAME: Final = TypeAdapter[str](RouteName)


def read_routes(file: Path | None) -> dict[str, Route]:
    """Return the routes of the file by name; without a file, those of DEFAULT_FILE, if that exists.

    Raises InvalidInput with every problem in one line.
    """
    return ROUTE_FILE.read(file)


def routes_from(given: ModelRoutes | None, environment: Mapping[str, str]) -> dict[str, Route]:
    """Return the routes that a program gives; by default those of the file of HOLDFAST_MODELS, else of DEFAULT_FILE.

    Raises InvalidInput with every problem in one line.
    """
    return ROUTE_FILE.given(given, "models", environment)


def routes_of(text: str | bytes, where: str) -> dict[str, Route]:
    """Return the routes that the text of a file called `where` describes. Raises InvalidInput."""
    return ROUTE_FILE.parsed(text, where)


def _route(name: str, fields: object) -> Route:
    try:
        _NAME.validate_python(name)
    except ValidationError:
        remedy = "begin it with a letter or digit and use letters, digits and . _ : / - only"
        raise InvalidInput(f"is no name for a route; {remedy}") from None
    if isinstance(fields, Route):
        return _checked(fields)
    values = fields_of(fields)
    if values is None:
        raise InvalidInput("is not a mapping; give it an `api` and a `model`")
    if isinstance(values.get("key"), str):  # perhaps the secret itself, so it is not repeated
        raise InvalidInput("`key` is {variable: NAME} or {file: PATH}; the key itself does not belong in this file")
    unknown = (each for each in values if each not in Route.model_fields)
    if problem := "; ".join(
        f"unknown field {each[:SHOWN_CHARS_MAX]!r}, {suggestion(each, Route.model_fields)}" for each in unknown
    ):
        raise InvalidInput(problem)
    return _checked(Route.model_validate(values))


def _checked(route: Route) -> Route:
    """Return the route. Raises InvalidInput for an API that is not there."""
    if route.is_custom:
        module_and_name(route.api.removeprefix(PYTHON_API), "model")
    elif api_named(route.api) is None:
        known = suggestion(route.api, [*api_names(), f"{PYTHON_API}MODULE:NAME"])
        raise InvalidInput(f"there is no model API {route.api[:SHOWN_CHARS_MAX]!r}; {known}")
    return route


ROUTE_FILE: Final = EntryFile(
    "models", VARIABLE_OF_FILE, DEFAULT_FILE, FORM, FILE_BYTES_MAX, ROUTES_MAX, _route, checked=Route, whole="the route"
)
