"""`models.yaml`: the routes that a process knows. Read and checked here; nothing is connected, no key is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from pydantic import TypeAdapter, ValidationError

from holdfast.core.base.bounds import REPORT_CHARS_MAX
from holdfast.core.base.did_you_mean import nearest, suggestion
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.validation_errors import problems_text
from holdfast.models.model_apis import api_named, api_names
from holdfast.models.routes import PYTHON_API, ROUTES_MAX, Route, RouteName
from holdfast.runtime.imports import module_and_name

DEFAULT_FILE: Final = Path("models.yaml")

VARIABLE_OF_FILE: Final = "HOLDFAST_MODELS"
"""The environment variable that names the file."""

FILE_BYTES_MAX: Final = 256 * 1024
"""The largest such file."""

SHOWN_CHARS_MAX: Final = 80
"""How much of a wrong name an error repeats."""

ModelRoutes: TypeAlias = str | Path | Mapping[str, Route | Mapping[str, Any]]
"""What lists routes: such a file, or the routes by name, each as an entry of one."""

FORM: Final = "write `models:` and below it a name, a colon, and the route's `api` and `model`"

_NAME: Final = TypeAdapter[str](RouteName)


def read_routes(file: Path | None) -> dict[str, Route]:
    """Return the routes of the file by name; without a file, those of DEFAULT_FILE, if that exists.

    Raises InvalidInput with every problem in one line.
    """
    path = file or DEFAULT_FILE
    if file is None and not path.exists():
        return {}
    try:
        with path.open("rb") as opened:
            text = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}; {FORM}") from None
    if len(text) > FILE_BYTES_MAX:
        raise InvalidInput(f"{path}: is larger than {FILE_BYTES_MAX:,} bytes; no list of models is")
    return routes_of(text, str(path))


def routes_from(given: ModelRoutes | None, environment: Mapping[str, str]) -> dict[str, Route]:
    """Return the routes that a program gives; by default those of the file of HOLDFAST_MODELS, else of DEFAULT_FILE.

    Raises InvalidInput with every problem in one line.
    """
    if given is None:
        given = environment.get(VARIABLE_OF_FILE) or None
    if given is None or isinstance(given, str | Path):
        return read_routes(None if given is None else Path(given))
    return _routes(given, "models")


def routes_of(text: str | bytes, where: str) -> dict[str, Route]:
    """Return the routes that the text of a file called `where` describes. Raises InvalidInput."""
    import yaml  # noqa: PLC0415  # most programs have no such file

    from holdfast.runtime.plain_yaml import PlainLoader  # noqa: PLC0415  # the same

    try:
        data: object = yaml.load(text, PlainLoader)  # noqa: S506  # a SafeLoader without aliases
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{where}: the YAML cannot be read: {' '.join(str(error).split())[:300]}") from None
    whole = _mapping(data) or {}
    for unknown in (each for each in whole if each != "models"):
        raise InvalidInput(f"{where}: unknown field {unknown[:SHOWN_CHARS_MAX]!r}, {nearest(unknown, ['models'])}")
    named = _mapping(whole.get("models"))
    if not named:
        raise InvalidInput(f"{where}: names no models; {FORM}")
    return _routes(named, where)


def _routes(named: Mapping[str, object], where: str) -> dict[str, Route]:
    if len(named) > ROUTES_MAX:
        raise InvalidInput(f"{where}: names {len(named)} models, at most {ROUTES_MAX} are allowed")
    routes: dict[str, Route] = {}
    problems: list[str] = []
    for name, fields in named.items():
        try:
            routes[name] = _route(name, fields)
        except ValidationError as error:
            problems.append(f"models.{name[:SHOWN_CHARS_MAX]}: {problems_text(error, 'the route')}")
        except InvalidInput as error:
            problems.append(f"models.{name[:SHOWN_CHARS_MAX]}: {error.message}")
    if problems:
        raise InvalidInput(f"{where}: {' '.join(clamped('; '.join(problems), REPORT_CHARS_MAX).split())}")
    return routes


def _route(name: str, fields: object) -> Route:
    try:
        _NAME.validate_python(name)
    except ValidationError:
        remedy = "begin it with a letter or digit and use letters, digits and . _ : / - only"
        raise InvalidInput(f"is no name for a route; {remedy}") from None
    if isinstance(fields, Route):
        return _checked(fields)
    values = _mapping(fields)
    if values is None:
        raise InvalidInput("is not a mapping; give it an `api` and a `model`")
    if isinstance(values.get("key"), str):  # perhaps the secret itself, so it is not repeated
        raise InvalidInput("`key` is {variable: NAME} or {file: PATH}; the key itself does not belong in this file")
    unknown = (each for each in values if each not in Route.model_fields)
    if problem := "; ".join(
        f"unknown field {each[:SHOWN_CHARS_MAX]!r}, {nearest(each, Route.model_fields)}" for each in unknown
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


def _mapping(value: object) -> dict[str, object] | None:
    """Return a YAML mapping with its names as texts; none for anything else."""
    if not isinstance(value, Mapping):
        return None
    return {str(name): each for name, each in cast("Mapping[object, object]", value).items()}
