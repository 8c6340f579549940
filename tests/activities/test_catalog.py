"""What `resolve_tools` refuses of an agent's model, before a run has asked it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import pytest
from temporalio.exceptions import ApplicationError

from activities.tools import Catalog
from holdfast import LLM, AgentDefinition
from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.wire.tool_catalog import ToolsRequest
from holdfast.models import Model
from holdfast.runtime.prices import PriceList

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Cold(Model):
    """A model that knows no temperature above 1."""

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        raise NotImplementedError

    def problem(self, llm: LLM) -> str:
        return "it is too hot" if (llm.temperature or 0) > 1 else ""


class Bare:
    """A model that inherits from nothing."""

    missing = ""

    async def __call__(self, request: ModelRequest) -> InferenceResponse:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class Broken(Cold):
    def problem(self, llm: LLM) -> str:
        raise ValueError(f"no idea of {llm.model}")


async def test_a_model_that_cannot_judge_refuses_nothing_and_one_that_fails_says_so() -> None:
    request = ToolsRequest.of(AgentDefinition(name="clerk", llm=LLM(model="m")), AT)
    assert (await Catalog(Toolset(), PriceList(), model=cast("Model", Bare())).resolve(request)).tools == ()
    with pytest.raises(ApplicationError, match="agent 'clerk': ValueError: no idea of m") as refused:
        await Catalog(Toolset(), PriceList(), model=Broken()).resolve(request)
    assert refused.value.non_retryable


async def test_a_model_is_shown_all_of_an_agents_settings_and_its_refusal_is_final() -> None:
    catalog = Catalog(Toolset(), PriceList(), model=Cold())
    for llm in (LLM(), LLM(model="m"), LLM(model="m", temperature=0.5)):
        request = ToolsRequest.of(AgentDefinition(name="clerk", llm=llm), AT)
        assert ToolsRequest.model_validate_json(request.model_dump_json()) == request
        assert (await catalog.resolve(request)).tools == ()
    hot = AgentDefinition(name="clerk", llm=LLM(model="m", temperature=1.5))
    with pytest.raises(ApplicationError, match="agent 'clerk': it is too hot") as refused:
        await catalog.resolve(ToolsRequest.of(hot, AT))
    assert (refused.value.type, refused.value.non_retryable) == ("InvalidInput", True)
