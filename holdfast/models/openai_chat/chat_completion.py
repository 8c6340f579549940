"""Parses a chat completion into our terms. Nothing in it is trusted.

`chat_stream` assembles a streamed answer first; then both are parsed alike.

The openai client builds its types without validating them; servers that call themselves compatible send HTML, nulls,
wrong types and no usage. Parsing is lenient where it can be; what is not an answer at all is UnusableAnswer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Final, cast

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from holdfast.core.agent.usage_estimates import answered_usage
from holdfast.core.base.bounds import (
    CALLS_KEPT_MAX,
    REASONING_BYTES_MAX,
    RESPONSE_BYTES_MAX,
    WORD_CHARS_MAX,
)
from holdfast.core.base.frozen import is_none
from holdfast.core.base.safe_text import clamped, clamped_json, encodable
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import CUT_OFF, FILTERED
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.answer_errors import ErrorInAnswer, UnusableAnswer
from holdfast.models.event_stream import fields_of, parsed
from holdfast.models.lenient_values import count_of, text_of
from holdfast.models.openai_chat.chat_items import items_of, not_kept, thinking_of
from holdfast.models.openai_chat.think_tags import split
from holdfast.models.requested_calls import RequestedCall, read_calls

TOO_LARGE: Final = "reasoning (more than is kept)"
"""What an answer names that lacks the reasoning its provider wants back."""

NO_COMPLETION: Final = "the answer is JSON but not a chat completion; check OPENAI_BASE_URL"


def content_of(value: object) -> str:
    """A text, or a list of content parts as their texts."""
    if not isinstance(value, list):
        return text_of(value)
    parts = cast("list[object]", value)
    # Mistral and others answer in content parts, as one may ask in them
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError("a content part is not an object")
    texts = [cast("dict[str, object]", part).get("text", "") for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a content part's text is not a text")
    return "".join(text_of(text) for text in texts)


def arguments_of(value: object) -> str:
    """Arguments are a JSON text; some servers send the object itself."""
    if not isinstance(value, dict):
        return text_of(value)
    compact = (",", ":")  # in our own spelling: there is no text of the model's to keep
    text = json.dumps(value, ensure_ascii=False, separators=compact)
    return text if encodable(text) == text else json.dumps(value, separators=compact)


Text = Annotated[str, BeforeValidator(text_of)]
Count = Annotated[int | None, BeforeValidator(count_of)]


class _Function(BaseModel):
    name: Text = ""
    arguments: Annotated[str, BeforeValidator(arguments_of)] = ""


def _old_function(value: object) -> object:
    return value if fields_of(value) else None


class _Call(BaseModel):
    id: Text = ""
    function: _Function


def _first_calls(value: object) -> object:
    """Cut before validating: an answer of megabytes can hold hundreds of thousands of calls."""
    # null and a missing list mean none; validation refuses anything else
    return cast("list[object]", value)[:CALLS_KEPT_MAX] if isinstance(value, list) else value or []


class _Message(BaseModel):
    content: Annotated[str, BeforeValidator(content_of)] = ""
    reasoning: Text = ""
    reasoning_content: Text = ""
    refusal: Text = ""
    tool_calls: Annotated[list[_Call], BeforeValidator(_first_calls)] = Field(default_factory=list[_Call])
    function_call: Annotated[_Function | None, BeforeValidator(_old_function)] = Field(default=None, exclude_if=is_none)

    @property
    def calls(self) -> list[_Call]:
        """The calls; of a server from before there were tools, its one call, without an id."""
        if self.tool_calls or self.function_call is None:
            return self.tool_calls
        return [_Call(function=self.function_call)]


class _Choice(BaseModel):
    message: _Message
    finish_reason: Text = ""


def _with_message(choice: object) -> object:
    """Azure's filter leaves nothing of an answer but its finish reason: no message at all."""
    fields = fields_of(choice)
    if fields.get("message") is None and fields.get("finish_reason") == FILTERED:
        return {**fields, "message": {}}
    return choice


def _first_choice(value: object) -> object:
    return [_with_message(each) for each in cast("list[object]", value)[:1]] if isinstance(value, list) else value


def _details(value: object) -> object:
    return fields_of(value)


class _PromptDetails(BaseModel):
    cached_tokens: Count = None
    cache_write_tokens: Count = None


class _CompletionDetails(BaseModel):
    reasoning_tokens: Count = None


class _Usage(BaseModel):
    prompt_tokens: Count = None
    completion_tokens: Count = None
    prompt_tokens_details: Annotated[_PromptDetails, BeforeValidator(_details)] = _PromptDetails()
    completion_tokens_details: Annotated[_CompletionDetails, BeforeValidator(_details)] = _CompletionDetails()
    prompt_cache_hit_tokens: Count = None  # DeepSeek's word for the cached ones

    @property
    def parts(self) -> Usage:
        """What is reported, zero where nothing is, with the parts: whatever a provider says, they fit their whole."""
        details = self.prompt_tokens_details
        cached = details.cached_tokens if details.cached_tokens is not None else self.prompt_cache_hit_tokens
        whole = Usage(input_tokens=self.prompt_tokens or 0, output_tokens=self.completion_tokens or 0)
        hidden = self.completion_tokens_details.reasoning_tokens
        return whole.with_parts(cached or 0, details.cache_write_tokens or 0, hidden or 0)


def _usage(value: object) -> object:
    return cast("object", value) if isinstance(value, dict) else _Usage()


class _Completion(BaseModel):
    id: Text = ""
    model: Text = ""
    choices: Annotated[list[_Choice], BeforeValidator(_first_choice)] = Field(min_length=1)
    usage: Annotated[_Usage, BeforeValidator(_usage)] = _Usage()


def reported(usage: object) -> Usage | None:
    """Return the usage that an answer's `usage` reports, none where it reports nothing."""
    if not isinstance(usage, dict):
        return None
    # zeros in both are a report; nulls in both are none, and an upper bound counts
    counts = _Usage.model_validate(usage)
    if counts.prompt_tokens is None and counts.completion_tokens is None:
        return None
    return counts.parts


def completion_in(body: bytes) -> object:
    """Return the JSON in `body`; raise UnusableAnswer, and ErrorInAnswer for an error instead of an answer."""
    data = parsed(body)
    fields = fields_of(data)
    # gateways answer 200 with an error object; some add `error: null` to good answers
    if fields.get("error") and not fields.get("choices"):
        raise ErrorInAnswer(fields["error"])
    return data


def read_answer(
    completion: object,
    *,
    input_max: Callable[[], int],
    output_max: int | None = None,
    route: str = "",
    think_tags: bool = False,
) -> InferenceResponse:
    """Return the answer that a parsed `completion` of `route` is; raise UnusableAnswer.

    Usage that is missing or impossible is replaced by what the call can have used at the most: `input_max`, and a token
    for each byte received, up to `output_max` (a budget must hold with an endpoint that reports none).
    A refusal is the answer's text; its finish reason is what the provider says. With `think_tags` what the text has
    between these is reasoning.
    """
    try:
        data = _Completion.model_validate(completion)
    except ValidationError:  # its text could quote the endpoint, and with it a key
        raise UnusableAnswer(NO_COMPLETION) from None
    choice = data.choices[0]
    message, usage = choice.message, data.usage
    raw_choice = fields_of(cast("list[object]", fields_of(completion)["choices"])[0])
    raw, model = fields_of(raw_choice.get("message")), clamped(data.model, WORD_CHARS_MAX)
    items, whole = items_of(raw, route=route, model=model)
    thought = message.reasoning_content or message.reasoning or encodable(thinking_of(raw.get("content")))
    text, tagged = split(message.content) if think_tags else (message.content, "")
    # an answer with words that reports 0 tokens is counted by its bytes
    silent = usage.completion_tokens == 0 and message == _Message() and not items
    received = 0 if usage.completion_tokens or silent else len(message.model_dump_json().encode())
    if received:  # signed or encrypted reasoning was produced as well; its plain text is counted already
        received += max(0, sum(len(item.body) for item in items) - len(message.reasoning_content))
    return InferenceResponse(
        # a refusal comes in place of content, as the answer that the user is to read
        text=clamped_json(text + message.refusal, RESPONSE_BYTES_MAX),
        reasoning=clamped_json(thought or tagged, REASONING_BYTES_MAX),
        tool_calls=read_calls(
            [RequestedCall(call.id, call.function.name, call.function.arguments) for call in message.calls],
            cut=choice.finish_reason in CUT_OFF,
        ),
        finish_reason=choice.finish_reason[:WORD_CHARS_MAX],
        usage=answered_usage(usage.parts, input_max, received, output_max),
        model=model,
        response_id=clamped(data.id, WORD_CHARS_MAX),
        items=items,
        dropped=not_kept(raw, raw_choice) if whole else (*not_kept(raw, raw_choice), TOO_LARGE),
    )
