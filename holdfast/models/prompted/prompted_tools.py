"""Tools for a model without function calling: described in its prompt, called by blocks of text, answered as a user.

The prompt follows from the tools alone, and what was sent before is sent in the same bytes again: prompt caches hold.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace as changed
from typing import Final

from holdfast.core.agent.model import ModelRequest
from holdfast.core.base.frozen import replace, trusted
from holdfast.core.base.model_options import NONE, REQUIRED, forces_calls
from holdfast.core.conversation.attachments import kind_of
from holdfast.core.conversation.messages import CUT_OFF, FILTERED, Content, FilePart, Message, Part, TextPart
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.tools.tool_traits import ToolSchema
from holdfast.models.prompted.answer_prompt import with_instruction
from holdfast.models.prompted.call_blocks import CALL, CALL_END, call_blocks, read_blocks, result_block, without_tags
from holdfast.models.requested_calls import read_calls
from holdfast.runtime.answer_check import unusable
from holdfast.runtime.files.file_types import framed_text

TOOLS_HEADING: Final = "You can call these tools:"

FORM: Final = (
    "To call one, end your answer with\n"
    f'{CALL}\n{{"name": "NAME", "arguments": {{"ARGUMENT": "VALUE"}}}}\n{CALL_END}\n'
    "The next message has its result."
)
"""How a call is written. It stays within the tokens that a budget reserves for the description of a single tool."""

SEVERAL: Final = "Repeat the block for more calls."


def with_prompted_tools(request: ModelRequest) -> ModelRequest:
    """Return the request without tools and without messages about calls, for an endpoint that takes neither.

    Tools that the provider runs itself stay, unless no tool may be called.
    """
    ran = () if request.llm.tool_choice == NONE else request.llm.server_tools
    return changed(
        request,
        llm=replace(request.llm, tool_choice=None, parallel_tool_calls=None, strict=None, server_tools=ran),
        system_prompt=with_instruction(request.system_prompt, *_tools_prompt(request)),
        messages=prompted_messages(request.messages),
        tools=(),
    )


def offered(request: ModelRequest) -> tuple[ToolSchema, ...]:
    """Return the tools that the model may call now."""
    return () if request.llm.tool_choice == NONE else request.tools


def allows_several(request: ModelRequest) -> bool:
    """Return whether an answer may have several calls."""
    return request.llm.parallel_tool_calls is not False


def read_prompted_calls(response: InferenceResponse, request: ModelRequest) -> InferenceResponse:
    """Return the answer to `request` with the calls that its text has, or as one that cannot be used."""
    tools = offered(request)
    if not tools or response.tool_calls:
        return response
    text = read_blocks(response.text, (tool.name for tool in tools), several=allows_several(request))
    if text.calls:
        return replace(response, text=text.words, tool_calls=read_calls(text.calls, cut=False))
    if not text.problem:
        return response
    if response.finish_reason == FILTERED:  # it would be broken off again
        return replace(response, text=text.words)
    if response.finish_reason in CUT_OFF:
        cut = "it was cut at the output limit within a tool call, which did not run; answer more briefly"
        return unusable(response, f"{cut} ({text.problem})")
    return unusable(response, text.problem)


def prompted_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation with calls in the model's own words and their results in a user's message.

    Everything else that is not the model's own loses the tags of the form.
    """
    sent: list[Message] = []
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if message.role == "assistant":
            sent.append(_in_words(message) if message.tool_calls else message)
            results = _results(messages, place)
            place += len(results)
            if results:
                sent.append(_results_message(message, results))
        elif message.role == "tool":  # its call was left out of what is shown
            sent.append(trusted(Message, role="user", content=result_block("tool", message.text)))
        else:
            sent.append(replace(message, content=_foreign(message.content)))
    return tuple(sent)


def _tools_prompt(request: ModelRequest) -> tuple[str, ...]:
    tools = offered(request)
    if not tools:
        return ()
    lines = (_described(tool) for tool in tools)
    form = f"{FORM} {SEVERAL}" if allows_several(request) else FORM
    return ("\n".join((TOOLS_HEADING, *lines)), form, _forced(request.llm.tool_choice))


def _described(tool: ToolSchema) -> str:
    fields = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    # an MCP server's words are foreign as well
    return without_tags(json.dumps(fields, ensure_ascii=False, separators=(",", ":")))


def _forced(choice: str | None) -> str:
    if not forces_calls(choice):
        return ""
    return "Call a tool now." if choice == REQUIRED else f"Call {choice} now."


def _in_words(message: Message) -> Message:
    words = message.text.rstrip()
    text = "\n".join(filter(None, (words, call_blocks(message.tool_calls))))
    return trusted(Message, role="assistant", content=text, items=message.items)


def _results(messages: Sequence[Message], start: int) -> list[Message]:
    end = start
    while end < len(messages) and messages[end].role == "tool":
        end += 1
    return list(messages[start:end])


def _results_message(asked: Message, results: Sequence[Message]) -> Message:
    """Return the results of one answer's calls as one message, in the order of the calls."""
    places = {call.id: place for place, call in enumerate(asked.tool_calls)}
    names = {call.id: call.name for call in asked.tool_calls}
    ordered = sorted(results, key=lambda result: places.get(result.tool_call_id or "", len(places)))
    blocks = (result_block(names.get(result.tool_call_id or "", "tool"), result.text) for result in ordered)
    return trusted(Message, role="user", content="\n".join(blocks))


def _foreign(content: Content) -> Content:
    return without_tags(content) if isinstance(content, str) else tuple(_foreign_part(part) for part in content)


def _foreign_part(part: Part) -> Part:
    if isinstance(part, TextPart):
        return replace(part, text=without_tags(part.text))
    if isinstance(part, FilePart) and kind_of(part.media_type) == "text":
        return TextPart(text=without_tags(framed_text(part)))
    return part
