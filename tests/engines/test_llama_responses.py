"""llama.cpp's own `/v1/responses`, asked through the real client: what it does of the API, and what it does not."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from holdfast.core.agent.definition import LLM
from holdfast.models import OpenAIResponses, ProviderSettings
from holdfast.runtime.answer_check import checked
from tests.activities.asking import request
from tests.engines.engine import Llama
from tests.engines.forecast import TOWN, forecast_by

pytestmark = [pytest.mark.engines]


@pytest.fixture
async def model(engine: Llama) -> AsyncGenerator[OpenAIResponses]:
    made = OpenAIResponses(ProviderSettings(base_url=engine.base_url, api_key="any", model="smollm2"))
    yield made
    await made.close()


@pytest.mark.slow
@pytest.mark.parametrize("streamed", [True, False])
async def test_it_answers_in_words_and_counts_what_it_counts(
    engine: Llama,
    model: OpenAIResponses,
    streamed: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    made, read = engine.tokens_made, engine.tokens_read
    llm = LLM(temperature=0, stream=streamed)
    answer = await model(request(llm=llm, max_output_tokens=40))
    assert answer.text.strip()
    assert (answer.usage.output_tokens, answer.usage.estimated_tokens) == (engine.tokens_made - made, 0)
    assert answer.usage.input_tokens == engine.tokens_read - read


@pytest.mark.slow
async def test_its_tool_calls_run_and_their_results_go_back(model: OpenAIResponses) -> None:
    await forecast_by(model)


@pytest.mark.slow
async def test_it_ignores_a_schema_and_does_not_say_that_the_limit_cut_its_answer(model: OpenAIResponses) -> None:
    answer = await model(request(llm=LLM(temperature=0), response_format=TOWN, max_output_tokens=24))
    assert checked(answer, TOWN).format_problem
    assert (answer.finish_reason, answer.usage.output_tokens) == ("completed", 24)
