"""By which means a route's model is asked for an answer in JSON: its own, a function call, or words."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace as changed
from enum import Enum, auto
from typing import assert_never

from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.policies import JsonObjectFormat, JsonSchemaFormat, TextFormat
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.prompted.answer_call import answer_tool, read_answer_call, takes_call, with_answer_tool
from holdfast.models.prompted.answer_prompt import BESIDE_TOOLS, answer_instruction, unfenced, with_instruction
from holdfast.models.routes import Capability


class AnswerMode(Enum):
    """How an answer is asked for."""

    NATIVE = auto()
    """The endpoint is given the form as it is; so is any answer in words."""
    OBJECT = auto()
    """The endpoint holds the answer to be a JSON object, and the prompt says which."""
    CALL = auto()
    """The answer is the arguments of a function."""
    PROMPT = auto()
    """The prompt alone asks for it."""


def answer_mode(request: ModelRequest, can: Collection[Capability]) -> AnswerMode:
    """Return the best mode that a model with these capabilities has for the request.

    An endpoint that holds an answer to JSON keeps a model from writing calls as text. Beside tools a function is
    better than JSON without a schema, which several providers refuse together with tools.
    """
    form = request.response_format
    if isinstance(form, TextFormat):
        return AnswerMode.NATIVE
    if request.tools and "tools" not in can:
        return AnswerMode.PROMPT
    if form.type in can:
        return AnswerMode.NATIVE
    if isinstance(form, JsonObjectFormat) or not takes_call(form):
        return AnswerMode.PROMPT
    if "json_object" in can and not request.tools:
        return AnswerMode.OBJECT
    return AnswerMode.CALL if "tools" in can else AnswerMode.PROMPT


def asked_by(mode: AnswerMode, request: ModelRequest) -> ModelRequest:
    """Return the request as its answer is asked for in that mode."""
    form = request.response_format
    match mode:
        case AnswerMode.NATIVE:
            return request
        case AnswerMode.CALL:
            return with_answer_tool(request, form) if isinstance(form, JsonSchemaFormat) else request
        case AnswerMode.OBJECT | AnswerMode.PROMPT:
            words = (answer_instruction(form), *((BESIDE_TOOLS,) if request.tools else ()))
            return changed(
                request,
                system_prompt=with_instruction(request.system_prompt, "\n".join(words)),
                response_format=JsonObjectFormat() if mode is AnswerMode.OBJECT else TextFormat(),
            )
        case _:
            assert_never(mode)


def read_by(mode: AnswerMode, response: InferenceResponse, request: ModelRequest) -> InferenceResponse:
    """Return the answer to `request`, which was asked for in that mode, as the loop knows it: its text is the JSON."""
    if mode is AnswerMode.NATIVE:
        return response
    if mode is AnswerMode.CALL:
        response = read_answer_call(response, answer_tool(request.tools))
    return response if response.tool_calls else replace(response, text=unfenced(response.text))
