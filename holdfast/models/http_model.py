"""`HttpModel`: what the models that a vendor's HTTP client calls have in common. Retries nothing, knows no client."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, Protocol, TypeVar

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart, Model, ModelRequest
from holdfast.core.agent.usage_estimates import input_bound
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.attachments import FileKind
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_transfer import HttpBody, received, report, report_rest
from holdfast.models.endpoint import ProviderSettings
from holdfast.models.event_stream import AnswerStream
from holdfast.models.http_errors import leaving_redirects_unread, refuse_errors, staying_at
from holdfast.models.options import options_problem
from holdfast.models.output_limits import StatedLimits
from holdfast.models.provider_errors import provider_failure
from holdfast.models.rate_limits.response_observer import show_response
from holdfast.models.request_sent import calling_when_sent, trace_sending

WHERE: Final = "where the worker or LocalDriver starts, and start it again"
"""Where to set a variable, as errors say it."""

NO_MODEL: Final = f"no model is named: set llm.model in the agent's definition, or HOLDFAST_MODEL {WHERE}"
"""Why a call fails for which neither the agent nor the environment names a model."""

HEADERS: Final = {"Accept-Encoding": "identity"}
"""Received bytes are counted as they are: no compressed bombs."""

UNUSED_KEY: Final = "unused"
"""The key for an address without one.

A local server needs none, but the clients require one, and must not take the environment's, which is for another
endpoint.
"""


class HttpClient(Protocol):
    """The part of a vendor's client that this module uses."""

    async def close(self) -> None:
        """Close the connections."""
        ...


ClientT = TypeVar("ClientT", bound=HttpClient)


def event_hooks(base_url: str) -> dict[str, list[Callable[..., Any]]]:
    """Return the hooks of the transport of a client for the endpoint at `base_url`.

    They let nothing go elsewhere, tell when a request is sent, and read errors before the client does.
    """
    import httpx2  # noqa: PLC0415  # the clients' own: whoever gets here has imported it

    return {
        "request": [staying_at(httpx2.URL(base_url)), trace_sending],
        "response": [show_response, refuse_errors, leaving_redirects_unread(httpx2.ByteStream(b""))],
    }


class HttpModel(Model, Generic[ClientT]):
    """Calls an endpoint by its vendor's client, with retries off. An API says what is sent, and reads the answers."""

    def __init__(self, settings: ProviderSettings) -> None:
        self.settings = settings
        self._limits = StatedLimits()
        key = settings.api_key or (UNUSED_KEY if settings.base_url else None)
        self._client: ClientT | None = None if key is None else self._made_client(key)

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the endpoint's answer; raise ModelFailure as `provider_errors` lists them."""
        stream = self._stream(request)
        # until the transport sends it a failure is free: no name, no connection, no TLS
        report(request, AnswerPart(sent=False))
        try:
            with calling_when_sent(lambda: report(request, AnswerPart(unseen=not request.llm.stream))):
                return await self._answer(request, stream)
        except asyncio.CancelledError:
            report_rest(request, stream)
            raise
        except Exception as error:
            report_rest(request, stream)
            if (answer := self._answer_in(error, request, stream.usage)) is not None:
                return answer
            # usage that came before the break is reported, and better than a bound
            failure = provider_failure(error, self.settings, stream.usage or NOTHING_USED)
            if failure is None:
                raise
            raise failure from None  # the cause may hold the request with its key

    @abstractmethod
    def _made_client(self, key: str) -> ClientT:
        """Return the vendor's client for the endpoint. Opens no connection."""
        ...

    @abstractmethod
    def _stream(self, request: ModelRequest) -> AnswerStream:
        """Return what reads the answer to `request` while it arrives."""
        ...

    @abstractmethod
    def _sent(
        self, client: ClientT, model: str, request: ModelRequest, output_max: int | None
    ) -> AbstractAsyncContextManager[HttpBody]:
        """Return `request` as the client sends it; entered, it waits for the answer's headers."""
        ...

    @abstractmethod
    def _read(self, answer: object, request: ModelRequest, output_max: int | None) -> InferenceResponse:
        """Return the answer that a stream's JSON is. Raises UnusableAnswer and ErrorInAnswer."""
        ...

    def _output_max(self, request: ModelRequest) -> int | None:
        """Return the bound of the answer to `request`; none where the API needs none."""
        return request.max_output_tokens

    def _unwrapped(self, error: Exception) -> Exception:
        """Return the error as `provider_errors` knows it."""
        return error

    def _answer_in(self, error: Exception, request: ModelRequest, reported: Usage | None) -> InferenceResponse | None:  # noqa: ARG002  # an API's own
        """Return the answer that an error is in truth; none for an error that is one."""
        return None

    async def _answer(self, request: ModelRequest, stream: AnswerStream) -> InferenceResponse:
        client = self._client
        if client is None:
            raise InvalidInput(self._no_endpoint)
        model = request.llm.model or self.settings.model
        if model is None:
            raise InvalidInput(NO_MODEL)
        bound = self._limits.first(model, self._output_max(request), lambda: input_bound(request))

        async def ask(output_max: int | None) -> InferenceResponse:
            try:
                body = await self._received(
                    client, request, stream, lambda: self._sent(client, model, request, output_max)
                )
                # our own reading: the client's types are not validated
                return self._read(body, request, output_max)
            except Exception as error:
                own = self._unwrapped(error)
                if own is error:
                    raise
                raise own from error.__cause__

        response = await self._limits.answer(model, bound, ask)
        if stream.plain:
            part = AnswerPart(response.text, response.reasoning, stream.usage, response.model, response.response_id)
            report(request, part)
        return response

    async def _received(
        self,
        client: ClientT,  # noqa: ARG002  # for those that ask for an answer more than once
        request: ModelRequest,
        stream: AnswerStream,
        send: Callable[[], AbstractAsyncContextManager[HttpBody]],
    ) -> object:
        """Return the answer's JSON. Raises UnusableAnswer, ErrorInAnswer, AnswerCut, and the client's errors."""
        await received(send(), stream, streamed=request.llm.stream, timeouts=self.settings.timeouts)
        return stream.end()

    def problem(self, llm: LLM) -> str:
        """Return why no run can ask this endpoint with `llm`; empty where one can."""
        return options_problem(llm, self.settings.api)

    def file_kinds(self, llm: LLM) -> Collection[FileKind]:  # noqa: ARG002  # the API's
        """Return which kinds of files the API takes."""
        return self.settings.api.files

    @property
    def _no_endpoint(self) -> str:
        api = self.settings.api
        return f"no model endpoint is set: set {api.key_variable} (or {api.base_url_variable}) {WHERE}"

    @property
    def missing(self) -> str:
        """What runs will fail for, shown before any does; empty when nothing is missing."""
        if self._client is None:
            return self._no_endpoint
        return "" if self.settings.model else f"{NO_MODEL} (agents that name one are fine)"

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
