"""The model call as an activity: what the agent's definition says goes out, and the answer comes back checked."""

from __future__ import annotations

import pytest
from temporalio.testing import ActivityEnvironment

from activities.inference import Inference
from activities.transcripts import TranscriptCache
from holdfast.core.contracts import InferenceInput
from holdfast.core.definition import AgentDefinition
from holdfast.core.messages import Message
from holdfast.core.offer import Offer
from holdfast.core.policies import JsonSchemaFormat, ResponseFormat, TextFormat
from holdfast.core.transcript import Opening, advanced, root
from holdfast.testing.script import Turn, call, say
from tests.activities.asking import asking

SAID = (Message(role="user", content="What is it?"),)
SUM = JsonSchemaFormat(name="sum", json_schema={"type": "object", "required": ["sum"]})


def wanted(response_format: ResponseFormat) -> InferenceInput:
    opening = Opening(definition=AgentDefinition(name="agent", response_format=response_format), tools=())
    base = root(opening)
    return InferenceInput(opening=opening, base=base, delta=SAID, target=advanced(base, SAID))


@pytest.mark.parametrize(
    ("turn", "problem"),
    [
        (say('{"sum": 3}'), None),
        (say("{}"), "the answer does not fit the schema: $: 'sum' is a required property"),
        (call("add"), None),
    ],
)
async def test_an_answer_comes_back_with_what_is_wrong_with_its_form(turn: Turn, problem: str | None) -> None:
    async with asking(turn) as (endpoint, model):
        answer = await ActivityEnvironment().run(Inference(model, Offer(), TranscriptCache()).run, wanted(SUM))
        assert endpoint.requests[0].body["response_format"]["json_schema"]["name"] == "sum"
    assert answer.response.format_problem == problem


async def test_an_answer_in_words_is_never_wrong() -> None:
    async with asking(say("{")) as (endpoint, model):
        answer = await ActivityEnvironment().run(Inference(model, Offer(), TranscriptCache()).run, wanted(TextFormat()))
        assert "response_format" not in endpoint.requests[0].body
    assert answer.response.format_problem is None
