"""Metrics for every request to a model's endpoint, and a span if traces are on. Decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Final

from temporalio import activity

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import Model, ModelRequest, file_kinds_of
from holdfast.core.base.errors import ModelFailure
from holdfast.core.conversation.attachments import FileKind
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.wire import metric_definitions
from holdfast.core.wire.metric_definitions import Labels
from holdfast.models.endpoint import provider_of

if TYPE_CHECKING:  # an extra
    from holdfast.telemetry.spans import Spans

MODELS: Final = Labels()
KINDS: Final = Labels()

REFUSED: Final = ("NotAuthorised", "QuotaExceeded", "ModelNotFound")
"""Failures to alert on. Their counters start at 0 before any failure: a rate misses a counter that starts at 1."""


class InstrumentedModel:
    """A model that calls `model` and records the outcome."""

    def __init__(self, model: Model, spans: Spans | None) -> None:
        self._model = model
        self._spans = spans
        provider = provider_of(model)
        self._default_name = (provider and provider.model) or metric_definitions.DEFAULT_MODEL

    def file_kinds(self, llm: LLM) -> Collection[FileKind]:
        """Return which kinds of files the model takes."""
        return file_kinds_of(self._model, llm)

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        """Return the endpoint's answer; raises as the model does."""
        name = request.llm.model or self._default_name
        provider = provider_of(self._model, request.llm) if self._spans else None
        server = None if provider is None else provider.server
        timed = self._spans.model_call(request, name, server) if self._spans else nullcontext()
        label = MODELS.of(request.llm.model or metric_definitions.DEFAULT_MODEL)
        started_at, outcome = perf_counter(), "failed"
        for kind in REFUSED:
            _count_failures(0, label, kind)
        try:
            with timed as span:
                response = await self._model(request)
                if span is not None:
                    span.answered(response)
            outcome = "answered"
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as error:
            kind = error.kind if isinstance(error, ModelFailure) else type(error).__name__
            _count_failures(1, label, KINDS.of(kind))
            raise
        finally:
            calls, meter = metric_definitions.MODEL_CALLS, activity.metric_meter()
            histogram = meter.create_histogram_float(calls.name, calls.about)
            histogram.record(perf_counter() - started_at, {"model": label, "outcome": outcome})
        return response


def _count_failures(count: int, model: str, kind: str) -> None:
    failures, meter = metric_definitions.MODEL_FAILURES, activity.metric_meter()
    meter.create_counter(failures.name, failures.about).add(count, {"model": model, "type": kind})
