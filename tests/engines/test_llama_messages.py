"""llama.cpp's own `/v1/messages`, asked by our Anthropic client and by Pydantic AI's: what it does of the API."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from holdfast.core.agent.definition import LLM
from holdfast.models import Anthropic, Model, ProviderSettings, PydanticAIModel
from holdfast.models.model_apis import ANTHROPIC
from holdfast.runtime.answer_check import checked
from tests.activities.asking import request
from tests.engines.engine import Llama
from tests.engines.forecast import TOWN, forecast_by

pytestmark = [pytest.mark.engines]


@pytest.fixture(params=["ours", "pydantic_ai"])
async def model(engine: Llama, request: pytest.FixtureRequest) -> AsyncGenerator[Model]:
    made: Model
    if request.param == "ours":
        made = Anthropic(ProviderSettings(base_url=engine.base_url, api_key="any", model="smollm2", api=ANTHROPIC))
    else:
        provider = AnthropicProvider(base_url=engine.address, api_key="any")
        made = PydanticAIModel(AnthropicModel("smollm2", provider=provider))
    yield made
    await made.close()


@pytest.mark.slow
@pytest.mark.parametrize("streamed", [True, False])
async def test_it_answers_in_words_and_counts_what_it_counts(
    engine: Llama,
    model: Model,
    streamed: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    made, read = engine.tokens_made, engine.tokens_read
    answer = await model(request(llm=LLM(temperature=0, stream=streamed), max_output_tokens=20))
    assert answer.text.strip()
    assert (answer.finish_reason, answer.usage.estimated_tokens) == ("length", 0)
    assert answer.usage.output_tokens == engine.tokens_made - made == 20
    assert answer.usage.input_tokens == engine.tokens_read - read


@pytest.mark.slow
async def test_its_tool_calls_run_and_their_results_go_back(model: Model) -> None:
    state = await forecast_by(model)
    assert state.usage.cached_tokens > 0


@pytest.mark.slow
async def test_it_ignores_a_schema(model: Model) -> None:
    answer = await model(request(llm=LLM(temperature=0), response_format=TOWN, max_output_tokens=24))
    assert checked(answer, TOWN).format_problem
