"""An answer in JSON by a function call: the schema is one more function, whose arguments are the answer's text.

The loop never sees that call: nothing of it runs, and no history has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace as changed
from typing import Final

from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.policies import JsonSchemaFormat, TextFormat
from holdfast.core.base.frozen import replace
from holdfast.core.base.model_options import NONE, REQUIRED, forces_calls
from holdfast.core.conversation.messages import CUT_OFF
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.tools.tool_traits import ToolSchema
from holdfast.models.openai_chat.chat_items import with_calls_moved
from holdfast.runtime.answer_check import unusable

ANSWER_TOOL: Final = "final_answer"
"""The function's name; where the agent has a tool of that name, underscores follow."""

DESCRIPTION: Final = "Give your final answer by this call."


def takes_call(form: JsonSchemaFormat) -> bool:
    """Return whether arguments can be such an answer: APIs take objects alone as a function's arguments."""
    return form.json_schema.get("type") == "object"


def answer_tool(tools: Iterable[ToolSchema]) -> str:
    """Return the function's name beside `tools`."""
    names, name = {tool.name for tool in tools}, ANSWER_TOOL
    while name in names:
        name += "_"
    return name


def with_answer_tool(request: ModelRequest, form: JsonSchemaFormat) -> ModelRequest:
    """Return the request with the answer's function, where the model must call that or another one.

    With `tool_choice: none` it is the only one, and the provider runs none of its tools. A call that the definition
    forces comes first, so the function is offered after that.
    """
    choice, tools = request.llm.tool_choice, request.tools
    if tools and forces_calls(choice):
        return changed(request, response_format=TextFormat())
    function = ToolSchema(name=answer_tool(tools), description=DESCRIPTION, parameters=form.json_schema)
    alone = choice == NONE
    return changed(
        request,
        llm=replace(request.llm, tool_choice=REQUIRED, server_tools=() if alone else request.llm.server_tools),
        tools=(function,) if alone else (*tools, function),
        response_format=TextFormat(),
    )


def read_answer_call(response: InferenceResponse, name: str) -> InferenceResponse:
    """Return the answer whose text is the arguments of its call of `name`.

    Beside calls of other tools that call is left out: those run, and the model answers when it knows their results.
    """
    answers = [call for call in response.tool_calls if call.name == name]
    if not answers:
        return response
    if len(answers) < len(response.tool_calls):
        return _without(response, name)
    texts = {json.dumps(dict(call.arguments), sort_keys=True) for call in answers}
    response = replace(response, tool_calls=())
    if broken := next((call.malformed for call in answers if call.malformed is not None), None):
        if response.finish_reason in CUT_OFF:  # what that means is said where answers are checked
            return replace(response, text="")
        return unusable(response, broken)
    if len(texts) > 1:
        return unusable(response, f"it has {len(answers)} final answers; call {name} once")
    return replace(response, text=answers[0].sent_arguments)


def _without(response: InferenceResponse, name: str) -> InferenceResponse:
    places = [place for place, call in enumerate(response.tool_calls) if call.name != name]
    others = tuple(response.tool_calls[place] for place in places)
    return replace(response, tool_calls=others, items=with_calls_moved(response.items, places))
