"""Which route a name means, and the settings of its endpoint, secrets included. Opens no connection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.mcp_servers import REFERENCE
from holdfast.models.endpoint import ProviderSettings, check_header
from holdfast.models.model_apis import ModelApi, api_named
from holdfast.models.routes import Route

CREDENTIALS: Final = re.compile("auth|key|token|secret|cookie|password", re.IGNORECASE)
"""In the name of a header whose value is one."""

SECRET_BYTES_MAX: Final = 64 * 1024
"""The longest file with a key."""


@dataclass(frozen=True, slots=True)
class RouteChoice:
    """A route and the model that is asked for there; none where neither the route nor the agent names one."""

    name: str
    route: Route
    model: str | None

    @property
    def api(self) -> ModelApi | None:
        """The API that it speaks; none for a model of your own."""
        return None if self.route.is_custom else api_named(self.route.api)

    @property
    def is_own_model(self) -> bool:
        """Whether the model is the route's own: its prices and its window are known of that one alone."""
        return self.model == self.route.model


def chosen_route(name: str | None, routes: Mapping[str, Route]) -> RouteChoice | None:
    """Return what `llm.model` means: a route's name, or ROUTE/MODEL for another model there; none for anything else."""
    if name is None:
        return None
    if name in routes:
        return RouteChoice(name, routes[name], routes[name].model)
    prefix, slash, model = name.partition("/")
    return RouteChoice(prefix, routes[prefix], model) if slash and model and prefix in routes else None


def provider_route(name: str | None) -> RouteChoice | None:
    """Return the route of PROVIDER/MODEL: the address and key of its API's variables; none for any other name."""
    prefix, slash, model = (name or "").partition("/")
    return RouteChoice(prefix, Route(api=prefix), model) if slash and model and api_named(prefix) else None


def settings_of(choice: RouteChoice, environment: Mapping[str, str]) -> ProviderSettings:
    """Return the settings of a route's endpoint. Raises InvalidInput for a key that is not there or cannot be used."""
    route, api = choice.route, choice.api
    if api is None:
        raise InvalidInput(f"the route {choice.name!r} is a model of your own, which has no endpoint")
    where = f"the route {choice.name!r}"
    if route.base_url is None and route.key is None:
        read = ProviderSettings.from_environment(environment, api)
        base_url, key = read.base_url, read.api_key
        if base_url is None and key is None and not api.finds_access:
            raise InvalidInput(f"{where} needs the variable {api.key_variable}, which is not set; {_SET_IT}")
    else:
        base_url, key = route.base_url, _key(route, environment, where)
    headers, hidden = _headers(route, environment, where)
    return ProviderSettings(
        base_url=base_url,
        api_key=key,
        model=choice.model,
        api=api,
        route=choice.name,
        headers=headers,
        hidden=hidden,
        timeouts=route.timeouts,
    )


_SET_IT: Final = "set it where the worker or LocalDriver starts, and start it again"


def _key(route: Route, environment: Mapping[str, str], where: str) -> str | None:
    if route.key is None:
        return None
    named = route.key.variable
    text = _variable(named, environment, where) if named else _file(route.key.file or "", where)
    check_header(text, f"the key of {where} in {route.key.source}")
    return text


def _variable(name: str, environment: Mapping[str, str], where: str) -> str:
    value = (environment.get(name) or "").strip()
    if not value:
        raise InvalidInput(f"{where} needs the variable {name}, which is not set; {_SET_IT}")
    return value


def _file(path: str, where: str) -> str:
    try:
        with Path(path).open("rb") as opened:
            data = opened.read(SECRET_BYTES_MAX + 1)
        text = data.decode("utf-8").strip()
    except OSError as error:
        raise InvalidInput(f"{where} needs the file {path!r}, which cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{where}: the file {path!r} is not UTF-8 text") from None
    except ValueError:  # no file system can have it
        raise InvalidInput(f"{where}: no file can be called {path!r}; correct the path") from None
    if not text or len(data) > SECRET_BYTES_MAX:
        problem = "is empty" if not text else f"is longer than {SECRET_BYTES_MAX:,} bytes"
        raise InvalidInput(f"{where}: the file {path!r} {problem}; is it the right one?")
    return text


def _headers(route: Route, environment: Mapping[str, str], where: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the headers with what their references stand for, and those values, which are secrets."""
    hidden: dict[str, None] = {}

    def resolved(path: str | None, variable: str | None) -> str:
        value = _file(path, where) if path else _variable(variable or "", environment, where)
        hidden[value] = None
        return value

    headers: dict[str, str] = {}
    for name, text in route.headers.items():
        headers[name] = REFERENCE.sub(lambda match: resolved(match[1], match[2]), text).strip()
        check_header(headers[name], f"the header {name!r} of {where}")
        if CREDENTIALS.search(name):  # also where the file itself has it
            hidden.update((word, None) for word in headers[name].split())
    return headers, tuple(hidden)
