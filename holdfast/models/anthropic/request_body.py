"""A model request as the body of `POST /v1/messages`. Sends nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal, cast

from anthropic import transform_schema

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.policies import JsonSchemaFormat, ResponseFormat
from holdfast.core.base.bounds import OUTPUT_TOKENS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.model_options import forces_calls
from holdfast.core.conversation.model_call_changes import CALL_ONLY
from holdfast.core.tools.tool_traits import ToolSchema
from holdfast.models.anthropic.conversation import Block, Turn, begins_with_thinking, system_texts, turns
from holdfast.models.anthropic.server_call_pairs import with_pairs_alone
from holdfast.models.anthropic.server_tools import wire_tools
from holdfast.models.prompted.answer_prompt import answer_instruction
from holdfast.models.strict_tools import can_be_strict

THINKING_TOKENS_MIN: Final = 1_024
"""The least that the API takes as the most tokens of thinking."""

MARKED_TURNS: Final = 2
"""How many of the last user turns are marked for the cache.

Tools and prompt have a mark each, and the API takes four. It looks for what it has cached at most 20 blocks before a
mark, and a step can have more: the mark of the turn before is then where the last call ended.
"""

CHOICES: Final = {"required": "any", "auto": "auto", "none": "none"}
"""The API's words for `llm.tool_choice`; any other is a tool's name."""

Thinking = int | Literal["adaptive"] | None
"""How a model thinks: with so many tokens at the most, as it sees fit, or as it does by itself."""


def request_body(
    request: ModelRequest,
    *,
    output_max: int | None = None,
    route: str = "",
    thinking: Thinking = None,
    cache: bool = True,
) -> dict[str, Any]:
    """Return the body for `request` but the model's name: its conversation, its tools and its options.

    `cache` marks what stays the same in the next call for the provider's cache. Raises InvalidInput for a strict schema
    that the API has no form for.
    """
    llm, limit = request.llm, output_max or request.max_output_tokens or OUTPUT_TOKENS_MAX
    conversation = with_pairs_alone(turns(request.messages, route), [tool.name for tool in llm.server_tools])
    native, instruction = _form(request.response_format)
    texts = [*system_texts(request.system_prompt, request.messages), *([instruction] if instruction else [])]
    system: list[Block] = [{"type": "text", "text": text} for text in texts]
    # the agent's own come last: the mark for the cache is on the last one
    tools = [*wire_tools(llm.server_tools), *(_tool(tool, strict=bool(llm.strict)) for tool in request.tools)]
    if cache:
        _mark(tools[-1:])
        _mark(system[-1:])
        _mark(_kept_ends(conversation, request)[-MARKED_TURNS:])
    output = {"effort": _effort(llm), "format": native}
    body = {
        "max_tokens": limit,
        "messages": conversation,
        "system": system,
        "tools": tools,
        # the API takes no forced call together with thinking
        "thinking": {} if tools and forces_calls(llm.tool_choice) else _thinking(llm, thinking, limit, conversation),
        "output_config": {name: value for name, value in output.items() if value is not None},
        **_options(llm, has_tools=bool(tools)),
        "stream": llm.stream or None,
    }
    return {**(llm.extra or {}), **{name: value for name, value in body.items() if value not in (None, [], {})}}


def _options(llm: LLM, *, has_tools: bool) -> dict[str, Any]:
    choice, parallel = llm.tool_choice, llm.parallel_tool_calls
    wire: dict[str, Any] = {}
    if has_tools and (choice is not None or parallel is not None):
        kind = CHOICES.get(choice or "auto", "tool")
        wire = {"type": kind, **({"name": choice} if kind == "tool" else {})}
        if parallel is not None and kind != "none":
            wire["disable_parallel_tool_use"] = not parallel
    return {
        "temperature": llm.temperature,
        "top_p": llm.top_p,
        "stop_sequences": None if llm.stop is None else list(llm.stop),
        "service_tier": llm.service_tier,
        "tool_choice": wire,
    }


def _effort(llm: LLM) -> str | None:
    """Return the API's word for how much the model thinks; `none` turns thinking off, `minimal` is its `low`."""
    effort = llm.reasoning_effort
    return None if effort in (None, "none") else {"minimal": "low"}.get(effort, effort)


def _thinking(llm: LLM, chosen: Thinking, limit: int, conversation: Sequence[Turn]) -> dict[str, Any]:
    """Return how the model thinks; nothing where that is left to it.

    With a number of tokens, answers whose calls have results now must begin with their thinking. Where that is gone
    (another route gave the answer), the model goes on without thinking until the user's next words.
    """
    effort = llm.reasoning_effort
    if effort == "none":
        return {"type": "disabled"}
    if effort is not None or chosen == "adaptive":
        return {"type": "adaptive"}
    tokens = min(chosen or 0, limit - 1)
    if tokens < THINKING_TOKENS_MIN or not _may_think(conversation):
        return {}
    return {"type": "enabled", "budget_tokens": tokens}


def _may_think(conversation: Sequence[Turn]) -> bool:
    """Return whether the answers since the user's last words, which the API takes as one, begin with thinking."""
    answered = len(conversation) - 1
    while answered > 0 and conversation[answered]["content"][0]["type"] == "tool_result":
        answered -= 2
    first = answered + 1
    return first == len(conversation) or begins_with_thinking(conversation[first])


def _kept_ends(conversation: Sequence[Turn], request: ModelRequest) -> list[Block]:
    """Return the last block of each of the user's turns that the next call has, too."""
    ends = [turn["content"][-1] for turn in conversation if turn["role"] == "user"]
    if request.messages and CALL_ONLY in request.messages[-1].metadata:
        # the last block is a text for this call alone; what stands before it in its turn stays
        ends[-1:] = conversation[-1]["content"][-2:-1]
    return ends


def _mark(blocks: Sequence[Block]) -> None:
    """Mark `blocks` as the ends of what is to be cached."""
    for block in blocks:
        block["cache_control"] = {"type": "ephemeral"}


def _tool(tool: ToolSchema, *, strict: bool) -> Block:
    wire: Block = {"name": tool.name, "input_schema": dict(tool.parameters)}
    described = {"description": tool.description} if tool.description else {}
    return wire | described | ({"strict": True} if strict and can_be_strict(tool.parameters) else {})


def _form(form: ResponseFormat) -> tuple[dict[str, Any] | None, str]:
    """Return the API's own form of the answer, where it is to enforce it, and the words that ask for it otherwise."""
    if isinstance(form, JsonSchemaFormat) and form.strict:
        schema = cast("dict[str, Any]", json.loads(json.dumps(dict(form.json_schema))))
        try:
            return {"type": "json_schema", "schema": transform_schema(schema)}, ""
        except ValueError as error:
            raise InvalidInput(f"the API cannot enforce the response format: {error}; drop `strict`") from None
    return None, answer_instruction(form)
