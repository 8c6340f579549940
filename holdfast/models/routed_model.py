"""`RoutedModel`: a worker's routes and its own model behind one `Model`; the name in a request decides."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from threading import Lock
from typing import Final

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import (
    AnswerPart,
    BackgroundAnswer,
    Model,
    ModelRequest,
    checked_response,
    file_kinds_of,
    problem_with,
)
from holdfast.core.base import frozen
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import HoldfastError, InvalidInput, MissingPart, ModelFailure
from holdfast.core.base.extras import install_command
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.attachments import FILE_KINDS, FileKind
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_transfer import report
from holdfast.models.endpoint import ProviderSettings, RoutingModel, provider_of
from holdfast.models.model_apis import ModelApi
from holdfast.models.model_choice import client_of, model_from
from holdfast.models.prompted.capability_options import capability_problem
from holdfast.models.prompted.model import PromptedModel
from holdfast.models.rate_limits.route_rate import RouteRate
from holdfast.models.route_choice import RouteChoice, chosen_route, provider_route, settings_of
from holdfast.models.route_prices import RoutedPrices
from holdfast.models.route_rests import RouteRests
from holdfast.models.routes import Route
from holdfast.runtime.prices import PriceList

NOT_FOUND: Final = "ModelNotFound"
"""The kind of failure of a model that the endpoint does not have."""

MISSING_SHOWN_MAX: Final = 5
"""How many routes a starting worker warns of."""


class RoutedModel(RoutingModel):
    """Answers by the route that `request.llm.model` names; any other name, and none, is for the worker's own model.

    Args:
        own: the worker's own model.
        routes: the routes by name; `route_file` reads them.
        environment: where keys are; they are read when a route is used for the first time.
        owned: whether `close` closes `own`, too.
    """

    def __init__(
        self,
        own: Model,
        routes: Mapping[str, Route],
        environment: Mapping[str, str] = os.environ,
        *,
        owned: bool = True,
    ) -> None:
        self._own, self._owned = own, owned
        self._routes, self._environment = routes, environment
        self._made: dict[str, Model] = {}
        self._rests = RouteRests()
        self._rates: dict[str, RouteRate] = {}
        self._making = Lock()  # a worker checks agents in threads

    @property
    def settings(self) -> ProviderSettings | None:
        """The address and key of the worker's own model; none for a custom one."""
        return provider_of(self._own)

    @property
    def routes(self) -> Mapping[str, Route]:
        """The routes by name."""
        return self._routes

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables with secrets of the routes."""
        return tuple(dict.fromkeys(name for each in self._routes.values() for name in each.variables))

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the answer of the route's model. Raises as that does; ModelFailure where it cannot be called."""
        name, choice = request.llm.model or "", self.choice(request.llm.model)
        if request.may_fall_back and request.resume is None:  # what goes on at the provider is paid for
            self._rests.check(name)
        if choice is None:
            try:
                return await self._asked(self._own, request, name)
            except ModelFailure as failure:
                raise self._with_nearest(failure, request.llm.model) from failure.__cause__
        try:
            model = self._model_of(choice)
        except HoldfastError as error:
            raise ModelFailure(error.message, kind=type(error).__name__, free=True) from None
        report(request, AnswerPart(sent=False, route=choice.name))  # for an answer that stays a part
        routed = _routed(request, choice)
        ask, rate = partial(self._asked, model, routed, name), self._rate_of(choice)
        response = await (ask() if rate is None else rate.call(routed, ask))
        return frozen.replace(response, route=choice.name)

    async def _asked(self, model: Model, request: ModelRequest, name: str) -> InferenceResponse:
        """Return the model's answer, and note how `name` has done: a wait for its rate limits is no failure."""
        try:
            response = checked_response(await model(request))
        except ModelFailure as failure:
            self._rests.note(name, failure)
            raise
        self._rests.note(name, None)
        return response

    def choice(self, name: str | None) -> RouteChoice | None:
        """Return the route that `llm.model` means; none where the worker's own model answers.

        PROVIDER/MODEL is one without a table, unless the worker's own endpoint has an address of its own: gateways name
        their models so.
        """
        if (choice := chosen_route(name, self._routes)) is not None or name is None or "/" not in name:
            return choice
        own = self.settings
        return None if own is None or own.base_url is not None else provider_route(name)

    def provider_for(self, llm: LLM) -> ProviderSettings | None:
        """Return the settings of the endpoint that answers for `llm`; none where they are wrong or it has none."""
        choice = self.choice(llm.model)
        if choice is None:
            return self.settings
        try:
            return settings_of(choice, self._environment)
        except InvalidInput:
            return None

    def routed_prices(self, prices: PriceList) -> PriceList:
        """Return the prices at the routes' endpoints; at the worker's own `prices`."""
        return RoutedPrices.beside(prices, self.choice)

    @property
    def missing(self) -> str:
        """What runs will fail for, shown when a worker starts; empty when nothing is missing."""
        problems = [problem for name in self._routes if (problem := self.route_problem(name))]
        more = [f"and {len(problems) - MISSING_SHOWN_MAX} more routes"] if len(problems) > MISSING_SHOWN_MAX else []
        own = self._own.missing
        if own and self._routes:
            own = f"{own} (agents that name a route are fine)"
        return "; ".join(filter(None, (own, *problems[:MISSING_SHOWN_MAX], *more)))

    def route_problem(self, name: str) -> str:
        """Return why calls of that route would fail, as far as this process knows; imports no client."""
        route = self._routes[name]
        return "" if route.is_custom else self._problem_of(RouteChoice(name, route, route.model), named=False)

    def problem(self, llm: LLM) -> str:
        """Return why a run with `llm` would fail at its first call; empty when nothing is known."""
        choice = self.choice(llm.model)
        if choice is None:
            return self._own_problem(llm)
        can = choice.route.capabilities
        # by the name that the definition has; the client knows the provider's alone
        if problem := self._problem_of(choice) or ("" if can is None else capability_problem(llm, can)):
            return problem
        try:
            model = self._model_of(choice)
        except HoldfastError as error:
            return error.message
        return problem_with(model, _routed_llm(llm, choice))

    def file_kinds(self, llm: LLM) -> Collection[FileKind]:
        """Return which kinds of files the model takes: those of its API and of the route's `capabilities`."""
        choice = self.choice(llm.model)
        if choice is None:
            return file_kinds_of(self._own, llm)
        try:
            taken = file_kinds_of(self._model_of(choice), _routed_llm(llm, choice))
        except HoldfastError:  # the call says why
            taken = FILE_KINDS
        can = choice.route.capabilities
        return taken if can is None else frozenset(each for each in taken if each == "text" or each in can)

    def _problem_of(self, choice: RouteChoice, *, named: bool = True) -> str:
        if named and choice.model is None and not choice.route.is_custom:
            return f"the route {choice.name!r} names no model; set llm.model to {choice.name}/MODEL"
        api = choice.api
        if api is None:
            return ""
        try:
            settings_of(choice, self._environment)
            _check_installed(api, choice.name)
        except HoldfastError as error:
            return error.message
        return ""

    def _own_problem(self, llm: LLM) -> str:
        own = self.settings
        if self._routes and own is not None and own.has_no_access:
            without = "and the worker has no model of its own"
            if llm.model is None:
                return f"it has no llm.model, {without}; set it to a route, {suggestion('', self._routes)}"
            return f"there is no route {llm.model!r}, {without}; {suggestion(llm.model, self._routes)}"
        return problem_with(self._own, llm)

    def _with_nearest(self, failure: ModelFailure, name: str | None) -> ModelFailure:
        """Return the failure; where the endpoint does not know a name that is close to a route's, that says so."""
        if failure.kind != NOT_FOUND or name is None or not self._routes:
            return failure
        near = suggestion(name, self._routes)
        text = f"{failure.message}; {name!r} is no route, {near}"
        return ModelFailure(
            text, kind=failure.kind, again=failure.again, after=failure.after, usage=failure.usage, free=failure.free
        )

    def _model_of(self, choice: RouteChoice) -> Model:
        """Return the client of a route, which is made once. Raises InvalidInput, MissingPart."""
        with self._making:
            if (model := self._made.get(choice.name)) is None:
                made = _model_of(choice, self._environment)
                model = self._made[choice.name] = _within_capabilities(made, choice.route)
            return model

    async def cancel(self, answer: BackgroundAnswer) -> Usage | None:
        """End an answer at its route's provider. Raises ModelFailure."""
        choice = self.choice(answer.model)
        if choice is None:
            return await self._own.cancel(answer)
        try:
            model = self._model_of(choice)
        except HoldfastError as error:
            raise ModelFailure(error.message, kind=type(error).__name__) from None
        return await model.cancel(frozen.replace(answer, model=choice.model))

    def _rate_of(self, choice: RouteChoice) -> RouteRate | None:
        """Return where calls of a route wait; none for a route without rate limits."""
        if not choice.route.is_limited:
            return None
        with self._making:
            if (rate := self._rates.get(choice.name)) is None:
                rate = self._rates[choice.name] = RouteRate(choice.name, choice.route.rate_limits)
            return rate

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        with self._making:
            models, self._made = [*self._made.values()], {}
        if self._owned:
            models.append(self._own)
        ends = await asyncio.gather(*(each.close() for each in models), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end


def _model_of(choice: RouteChoice, environment: Mapping[str, str]) -> Model:
    api = choice.api
    if api is None:
        return model_from(choice.route.api, environment)
    settings = settings_of(choice, environment)
    _check_installed(api, choice.name)
    return client_of(settings)


def _within_capabilities(model: Model, route: Route) -> Model:
    """Return the route's model, asked for no more than the route's `capabilities`, where it lists any."""
    return model if route.capabilities is None else PromptedModel(model, route.capabilities)


def _check_installed(api: ModelApi, route: str) -> None:
    if find_spec(api.package) is None:
        needs = f"the route {route!r} needs {api.package}, which is not installed"
        raise MissingPart(f"{needs}: {install_command(api.extra)}")


def _routed(request: ModelRequest, choice: RouteChoice) -> ModelRequest:
    """Return the request as the route's client gets it: with the provider's name of the model, within its bounds."""
    output_max, bound = request.max_output_tokens, choice.route.max_output_tokens if choice.is_own_model else None
    if bound is not None:
        output_max = bound if output_max is None else min(output_max, bound)
    return replace(request, llm=_routed_llm(request.llm, choice), max_output_tokens=output_max)


def _routed_llm(llm: LLM, choice: RouteChoice) -> LLM:
    can = choice.route.capabilities
    stream = llm.stream and (can is None or "stream" in can)
    return frozen.replace(llm, model=choice.model, stream=stream, fallback=())
