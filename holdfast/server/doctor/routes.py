"""The doctor's look at routes: whether each of `models.yaml` has its key here, and its endpoint answers; no token."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from http import HTTPStatus
from typing import Final

from holdfast.connection.settings import Settings
from holdfast.core.agent.definition import LLM
from holdfast.core.conversation.display_text import on_a_line
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.model_choice import EnvironmentModel
from holdfast.models.route_file import DEFAULT_FILE, read_routes
from holdfast.models.routed_model import RoutedModel
from holdfast.server.doctor import endpoint_facts
from holdfast.server.doctor.findings import Finding, fine, warned
from holdfast.server.doctor.machine_facts import apart

ROUTES: Final = "models"

PROBLEM_CHARS_MAX: Final = 200
"""How much of a problem is shown."""


async def examine_routes(settings: Settings) -> list[Finding]:
    """Return whether the routes of this folder's `models.yaml` can be called from here."""
    routes = await apart(partial(read_routes, settings.models_file))
    if not routes:
        return [fine(ROUTES, "no routes: agents name models of the worker's endpoint")]
    model = RoutedModel(EnvironmentModel(), routes, os.environ)
    results = await asyncio.gather(*(apart(partial(_looked_at, model, name)) for name in routes))
    problems = dict(zip(routes, results, strict=True))
    result = "; ".join(f"{name}: {problem or 'ok'}" for name, problem in problems.items())
    if not any(problems.values()):
        return [fine(ROUTES, result)]
    bad = next(name for name, problem in problems.items() if problem)
    file = settings.models_file or DEFAULT_FILE
    remedy = f"set what is missing, or correct {file}; then try it with `holdfast models {bad} --check`"
    return [warned(ROUTES, result, remedy)]


def _looked_at(model: RoutedModel, name: str) -> str:
    """Return why calls of that route would fail; empty when nothing is known. Blocks for some seconds."""
    if problem := model.route_problem(name):
        return on_a_line(problem, PROBLEM_CHARS_MAX)
    settings = model.provider_for(LLM(model=name))
    return "" if settings is None else on_a_line(_answer(settings), PROBLEM_CHARS_MAX)


def _answer(settings: ProviderSettings) -> str:
    facts = endpoint_facts.ask(settings)
    if facts.broken is not None:
        return f"unreachable ({facts.broken})"
    refused = facts.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    return f"the key is refused ({facts.status})" if refused else ""
