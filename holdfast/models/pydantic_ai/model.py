"""`PydanticAIModel`: any model of Pydantic AI as a `Model`. Translates requests and answers; retries nothing."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import Any, Final

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model as AnyModel
from pydantic_ai.models import infer_model
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart, Model, ModelRequest
from holdfast.core.agent.usage_estimates import input_bound
from holdfast.core.base.bounds import OUTPUT_TOKENS_MAX
from holdfast.core.base.errors import HoldfastError, InvalidInput, MissingPart, ModelFailure
from holdfast.core.base.retries import MODEL_SECONDS_MAX
from holdfast.core.conversation.attachments import FILE_KINDS, FileKind
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_errors import AnswerCut
from holdfast.models.answer_transfer import report
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.http_model import NO_MODEL, UNUSED_KEY
from holdfast.models.model_apis import PYDANTIC_AI
from holdfast.models.options import options_problem
from holdfast.models.output_limits import StatedLimits
from holdfast.models.pydantic_ai.answer import read_answer
from holdfast.models.pydantic_ai.answer_stream import CUT_STATES, AnswerReader
from holdfast.models.pydantic_ai.conversation import history
from holdfast.models.pydantic_ai.model_errors import failure_of, with_status
from holdfast.models.pydantic_ai.request_options import (
    known_files,
    known_options,
    parameters_of,
    settings_of,
    tier_problem,
)
from holdfast.models.pydantic_ai.response_hook import show_error, show_responses

MODELS_MAX: Final = 64
"""The most models of one route that are kept with their connections; the one that was not asked for longest goes."""


class _Opened:
    """A model of Pydantic AI, and the event loop that its connections belong to."""

    def __init__(self, model: AnyModel[Any]) -> None:
        self.model = model
        self._loop: asyncio.AbstractEventLoop | None = None

    async def on_this_loop(self) -> AnyModel[Any]:
        """Return the model with connections of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            await self.close()
            self._loop = loop
            await self.model.__aenter__()
        return self.model

    async def close(self) -> None:
        """Close the connections that the model has opened itself."""
        if self._loop is not None:
            self._loop = None
            with suppress(RuntimeError):  # of a loop that has ended
                await self.model.__aexit__(None, None, None)


class PydanticAIModel(Model):
    """Asks a model of Pydantic AI, with its clients' retries off.

    Args:
        model: a model of Pydantic AI; or the name of one, as it has it: `groq:llama-3.3-70b-versatile`. Settings name
            one, and give address and key to providers that take them; by default those of the environment. A name is
            only a default: agents may name another model in `llm.model`.
    """

    def __init__(self, model: AnyModel[Any] | str | ProviderSettings | None = None) -> None:
        """Raises InvalidInput for unusable settings. A named model is made when it is first asked."""
        self._given = _Opened(model) if isinstance(model, AnyModel) else None
        if isinstance(model, AnyModel):
            api = replace(PYDANTIC_AI, provider=model.system)
            self.settings = ProviderSettings(api=api, model=model.model_name)
        elif isinstance(model, ProviderSettings):
            self.settings = model
        else:
            settings = ProviderSettings.from_environment(api=PYDANTIC_AI)
            self.settings = settings if model is None else replace(settings, model=model)
        self._limits = StatedLimits()
        self._made = OrderedDict[str, _Opened]()
        self._making = Lock()  # a worker checks agents in threads

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the model's answer; raise ModelFailure as `model_errors` lists them, and a script's own errors."""
        try:
            is_made = self._given is not None or (request.llm.model or self.settings.model) in self._made
            # importing a provider's client takes a second
            opened = self._opened(request.llm) if is_made else await asyncio.to_thread(self._opened, request.llm)
            model = await opened.on_this_loop()
        except HoldfastError as error:
            raise ModelFailure(error.message, kind=type(error).__name__, free=True) from None
        streamed, reader = _streams(model, request.llm), AnswerReader(request.listener)
        report(request, AnswerPart(unseen=not streamed))

        async def ask(output_max: int | None) -> InferenceResponse:
            most = output_max or OUTPUT_TOKENS_MAX
            response = await self._response(model, request, most, reader if streamed else None)
            input_max, route = (lambda: input_bound(request)), self.settings.route
            return read_answer(response, route=route, system=model.system, input_max=input_max, output_max=most)

        try:
            wanted = request.max_output_tokens or OUTPUT_TOKENS_MAX
            bound = self._limits.first(model.model_name, wanted, lambda: input_bound(request))
            response = await self._limits.answer(model.model_name, bound, ask)
        except Exception as error:
            failure = failure_of(error, model, self.settings, reader.usage)
            if failure is None:
                raise
            raise failure from None  # the cause may hold the request with its key
        if not streamed:
            seen = (response.text, response.reasoning, response.usage, response.model, response.response_id)
            report(request, AnswerPart(*seen))
        return response

    async def _response(
        self, model: AnyModel[Any], request: ModelRequest, output_max: int, reader: AnswerReader | None
    ) -> ModelResponse:
        """Return what the model answers; `reader` takes it where it streams. Raises Pydantic AI's errors."""
        url = None if model.provider is None else model.provider.base_url
        parameters = parameters_of(request, model)
        settings = settings_of(request, model, output_max, self.settings.headers)
        messages = history(
            request.messages, request.system_prompt, route=self.settings.route, system=model.system, url=url
        )
        with suppress(NotImplementedError):  # one that stands for several prepares them for each
            messages = model.prepare_messages(messages, parameters)
        remote = model.provider is not None
        show_responses(model)
        try:
            if reader is not None:
                opened = model.request_stream(messages, settings, parameters)
                return await reader.received(opened, self.settings.timeouts, remote=remote)
            async with asyncio.timeout(MODEL_SECONDS_MAX):
                response = await model.request(messages, settings, parameters)
        except Exception as error:
            show_error(error)
            own = with_status(error)
            if own is error:
                raise
            raise own from error
        if response.state in CUT_STATES:
            raise AnswerCut
        return response

    def problem(self, llm: LLM) -> str:
        """Return why no run can ask the model with `llm`; empty where one can. It may import a provider's client."""
        try:
            model = self._opened(llm).model
        except HoldfastError as error:
            return error.message
        if self.settings.headers and "extra_headers" in model.unsupported_settings:
            return f"Pydantic AI's provider {model.system!r} takes no `headers`; leave them out"
        if self.settings.timeouts.connect_seconds is not None:
            return "Pydantic AI's clients have a `connect_seconds` of their own; leave it out"
        title = f"Pydantic AI's model {model.model_name!r} of {model.system!r}"
        known = replace(self.settings.api, title=title, options=known_options(model))
        return options_problem(llm, known) or tier_problem(llm)

    def file_kinds(self, llm: LLM) -> Collection[FileKind]:
        """Return which kinds of files the model takes; all of them for one that cannot be asked at all."""
        try:
            return known_files(self._opened(llm).model)
        except HoldfastError:  # the call says why
            return FILE_KINDS

    @property
    def missing(self) -> str:
        """What runs will fail for, shown before any does; empty when nothing is known to be missing."""
        named = self._given is not None or self.settings.model
        return "" if named else f"{NO_MODEL} (agents that name one are fine)"

    async def close(self) -> None:
        """Close the connections that models have opened themselves."""
        with self._making:
            opened = [*self._made.values()]
            self._made.clear()
        for each in (*opened, *([self._given] if self._given else [])):
            await each.close()

    def _opened(self, llm: LLM) -> _Opened:
        """Return the model that `llm` names. Raises InvalidInput, MissingPart."""
        if self._given is not None:
            model = self._given.model
            if llm.model not in (None, model.model_name, model.model_id):
                raise InvalidInput(f"llm.model is {llm.model!r}, but the model is {model.model_id!r}; leave it out")
            return self._given
        name = llm.model or self.settings.model
        if name is None:
            raise InvalidInput(NO_MODEL)
        with self._making:
            if name not in self._made:
                self._made[name] = _Opened(self._inferred(name))
                if len(self._made) > MODELS_MAX:
                    self._made.popitem(last=False)  # its connections end with it
            self._made.move_to_end(name)
            return self._made[name]

    def _inferred(self, name: str) -> AnyModel[Any]:
        try:
            return infer_model(name, self._provider if self._access else infer_provider)
        except (UserError, ValueError) as error:
            raise InvalidInput(str(error)) from None
        except ImportError as error:
            raise MissingPart(str(error)) from None

    @property
    def _access(self) -> dict[str, str]:
        """The address and the key that are given to the provider; empty where it finds its own."""
        base_url, key = self.settings.base_url, self.settings.api_key
        if base_url is None:
            return {} if key is None else {"api_key": key}
        return {"base_url": base_url, "api_key": key or UNUSED_KEY}

    def _provider(self, name: str) -> Provider[Any]:
        make: Callable[..., Provider[Any]] = infer_provider_class(name)
        try:
            made: Provider[Any] = make(**self._access)
        except TypeError:
            given = "`base_url` and `key`" if self.settings.base_url else "`key`"
            raise InvalidInput(f"Pydantic AI's provider {name!r} does not take {given}; leave them out") from None
        return made


def _streams(model: AnyModel[Any], llm: LLM) -> bool:
    """Return whether the answer is to stream: some models of Pydantic AI cannot, and some cannot otherwise."""
    if isinstance(model, FunctionModel) and None in (model.function, model.stream_function):
        return model.function is None
    return llm.stream and type(model).request_stream is not AnyModel.request_stream
