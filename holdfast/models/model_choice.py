"""The model that `--model` or HOLDFAST_MODEL_API selects: an API's name, or `python:MODULE:NAME`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, Final, cast

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import BackgroundAnswer, Model, ModelRequest, file_kinds_of, problem_with
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import HoldfastError, InvalidInput
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.attachments import FILE_KINDS, FileKind
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.function_model import FunctionModel
from holdfast.models.model_apis import ALIASES, APIS, OPENAI, ModelApi
from holdfast.models.options import options_problem
from holdfast.runtime.imports import imported_object, module_and_name

MODEL_VARIABLE: Final = "HOLDFAST_MODEL_API"
PYTHON: Final = "python"
TEXT_CHARS_MAX: Final = 200
"""How much of the selection an error repeats."""


def model_from(text: str | None = None, environment: Mapping[str, str] = os.environ) -> Model:
    """Return the model that `text` names, else the one of HOLDFAST_MODEL_API, else OpenAI's Chat Completions API.

    Nothing is sent yet. Raises InvalidInput for an unknown model; MissingPart.
    """
    chosen = chosen_api(text, environment)
    if isinstance(chosen, ModelApi):
        return client_of(ProviderSettings.from_environment(environment, chosen))
    return _python_model(chosen)


def chosen_api(text: str | None = None, environment: Mapping[str, str] = os.environ) -> ModelApi | str:
    """Return the API that `model_from` would use, or the MODULE:NAME of a custom model; imports neither.

    Raises InvalidInput for anything else.
    """
    chosen = text or environment.get(MODEL_VARIABLE) or OPENAI.name
    kind, _, place = chosen.partition(":")
    if kind == PYTHON:
        module_and_name(place, "model")
        return place
    kind = ALIASES.get(kind, kind)
    if place or kind not in APIS:
        known = suggestion(kind, [*APIS, f"{PYTHON}:MODULE:NAME"])
        raise InvalidInput(f"there is no model API {chosen[:TEXT_CHARS_MAX]!r}; {known}")
    return APIS[kind]


class EnvironmentModel(Model):
    """The model that the environment names, created at the first call, and again at the first one after `close`.

    `chosen` is what `--model` says, which wins over the environment.
    """

    def __init__(self, chosen: str | None = None) -> None:
        self._chosen = chosen
        self._model: Model | None = None

    @property
    def settings(self) -> ProviderSettings | None:
        """The address and key that the environment names now; none for a custom model, or where they are wrong."""
        with suppress(InvalidInput):  # said when the model is asked
            api = chosen_api(self._chosen)
            return ProviderSettings.from_environment(api=api) if isinstance(api, ModelApi) else None
        return None

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the model's answer. Raises as `model_from` does, and as the model does."""
        if self._model is None:
            self._model = model_from(self._chosen)
        return await self._model(request)

    def problem(self, llm: LLM) -> str:
        """Return why a run with `llm` would fail at its first call; empty when nothing is known."""
        try:
            chosen = chosen_api(self._chosen)
            if isinstance(chosen, ModelApi):
                return options_problem(llm, chosen)
            return problem_with(self._model or _python_model(chosen), llm)
        except HoldfastError:  # said when the model is asked
            return ""

    def file_kinds(self, llm: LLM) -> Collection[FileKind]:
        """Return which kinds of files the model takes; all of them where that is not known yet."""
        try:
            chosen = chosen_api(self._chosen)
            if isinstance(chosen, ModelApi):
                return chosen.files
            return file_kinds_of(self._model or _python_model(chosen), llm)
        except HoldfastError:  # said when the model is asked
            return FILE_KINDS

    async def cancel(self, answer: BackgroundAnswer) -> Usage | None:
        """End an answer at the provider. Raises as `model_from` does, and as the model does."""
        if self._model is None:
            self._model = model_from(self._chosen)
        return await self._model.cancel(answer)

    async def close(self) -> None:
        """Close the connections."""
        model, self._model = self._model, None
        if model is not None:
            await model.close()


def client_of(settings: ProviderSettings) -> Model:
    """Return the client of an endpoint; imports its vendor's package, and opens no connection."""
    make: Callable[[ProviderSettings], Model] = getattr(import_module("holdfast.models"), settings.api.model)
    return make(settings)


def _python_model(place: str) -> Model:
    value: Any = imported_object(place, "model")
    if iscoroutinefunction(value):
        return FunctionModel(value)
    shown = f"{PYTHON}:{place[:TEXT_CHARS_MAX]}"
    try:
        model: Any = value() if isinstance(value, type) else value
    except HoldfastError:
        raise
    except Exception as error:
        record = error_record(error, shown)
        text = " ".join(f"{record.type}: {record.message}".split())
        raise InvalidInput(f"{shown} cannot be made without arguments: {text}; name an instance of it") from error
    there = {
        "__call__": callable(model),
        "close": callable(getattr(model, "close", None)),
        "missing": hasattr(model, "missing"),
    }
    if lacking := [name for name, is_there in there.items() if not is_there]:
        remedy = "write an async function, or inherit from holdfast.models.Model"
        raise InvalidInput(f"{shown} is not a model: it lacks {', '.join(lacking)}; {remedy}")
    return cast("Model", model)
