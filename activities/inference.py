"""The `inference` activity: one model call. Retries belong to Temporal, the conversation to the workflow."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.provider import OpenAIModel
from activities.transcripts import TranscriptCache
from holdfast.core.contracts import (
    INFERENCE_ACTIVITY,
    TRANSCRIPT_QUERY,
    InferenceInput,
    TranscriptPage,
    TranscriptRequest,
)
from holdfast.core.errors import ModelFailure
from holdfast.core.inference import ModelRequest
from holdfast.core.steps import InferenceResponse
from holdfast.core.texts import error_record
from holdfast.core.tools import AnyTool
from holdfast.local.formats import checked

QUERY_TIMEOUT: Final = timedelta(seconds=10)
"""How long reading a page of the transcript may take before the attempt is given up."""


class Inference:
    """The model call with what it needs: the endpoint, the tools' schemas, the transcripts."""

    def __init__(self, model: OpenAIModel, tools: Mapping[str, AnyTool], cache: TranscriptCache) -> None:
        self._model = model
        self._tools = tools
        self._cache = cache

    @activity.defn(name=INFERENCE_ACTIVITY)
    async def run(self, wanted: InferenceInput) -> InferenceResponse:
        """Ask the model and return its answer; failures are typed as `activities.failures` lists them."""
        try:
            return await self._answer(wanted)
        except ModelFailure as failure:
            raise ApplicationError(
                failure.message, type=failure.kind, non_retryable=not failure.again, next_retry_delay=failure.after
            ) from None
        except Exception as error:  # noqa: BLE001  # nothing that is not bounded and encodable goes into a failure
            record = error_record(error, "model")
            raise ApplicationError(record.message, type=record.type) from None

    async def _answer(self, wanted: InferenceInput) -> InferenceResponse:
        transcript = await self._cache.transcript(activity.info().workflow_id or "", wanted, _fetch)
        opening = transcript.opening
        request = ModelRequest(
            llm=opening.definition.llm,
            system_prompt=opening.definition.system_prompt,
            messages=transcript.messages,
            tools=tuple(self._tools[name].schema for name in opening.tools if name in self._tools),
            max_output_tokens=wanted.max_output_tokens,
            response_format=opening.definition.response_format,
        )
        return checked(await self._model(request), request.response_format)


async def _fetch(request: TranscriptRequest) -> TranscriptPage:
    """Read a page from this activity's own workflow; a query writes no history."""
    info = activity.info()
    workflow = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
    page: TranscriptPage = await workflow.query(
        TRANSCRIPT_QUERY, request, result_type=TranscriptPage, rpc_timeout=QUERY_TIMEOUT
    )
    return page
