"""Both sides of a scripted conversation in OpenAI's format: requests, checked, and answers; it must not hold I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any, Literal, NoReturn, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from holdfast.core.agent.model import ModelRequest
from holdfast.core.conversation.messages import Message
from holdfast.models.openai_chat.content_parts import wire_content
from holdfast.models.openai_chat.request_options import wire_options, wire_tools
from holdfast.testing.file_checks import InputAudio, InputFile
from holdfast.testing.response_format_check import AskedFormat, FunctionSpec, RequestedObject
from holdfast.testing.script import Reply, call_ids, turn_number
from holdfast.testing.wire_format import Refusal, WireFormat, raw_pieces

CREATED = 1_700_000_000  # a constant, so that equal requests get equal answers
PIECE_CHARS_MIN = 12
PIECES_MAX = 256  # per text or argument string: a 2 MB text must not become 170 000 chunks
ERROR_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


def request_body(request: ModelRequest, model: str) -> dict[str, Any]:
    """Return `request` to `model` as the provider's client sends it, so that a script sees the same without HTTP."""
    prompt = [{"role": "system", "content": request.system_prompt}] if request.system_prompt else []
    settings = {"temperature": request.llm.temperature, "max_completion_tokens": request.max_output_tokens}
    tools = wire_tools(request)
    return {
        **wire_options(request),
        "model": model,
        "messages": [*prompt, *(_wire_message(message) for message in request.messages)],
        **({"tools": tools} if tools else {}),
        **{name: value for name, value in settings.items() if value is not None},
        **({"stream": True, "stream_options": {"include_usage": True}} if request.llm.stream else {}),
    }


def _wire_message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": wire_content(message.content)}
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        wire["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.sent_arguments}}
            for call in message.tool_calls
        ]
        wire["content"] = wire["content"] or None
    return wire


def answer_pieces(turn: Reply, request: Mapping[str, Any]) -> tuple[bytes, ...]:
    """Return the answer's body for the request, in the pieces in which it goes out."""
    if (raw := raw_pieces(turn)) is not None:
        return raw
    if turn.status >= HTTPStatus.BAD_REQUEST:
        return (error_body(turn.status, turn.text or f"The script answers with status {turn.status}."),)
    if not request.get("stream"):
        return (json.dumps(_completion(turn, request)).encode(),)
    return (*(b"data: " + _utf8(chunk) + b"\n\n" for chunk in answer_chunks(turn, request)), b"data: [DONE]\n\n")


def _utf8(chunk: Mapping[str, Any]) -> bytes:
    """Return `chunk` as JSON whose characters are bytes, not escapes, so that one can be cut; some cannot be such."""
    try:
        return json.dumps(chunk, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(chunk).encode()


def error_body(status: int, message: str, param: str | None = None, code: str | None = None) -> bytes:
    """Return an error in OpenAI's shape, with the status's usual type and code."""
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = "requests"
    error = {"message": message, "type": kind, "param": param, "code": code or ERROR_CODES.get(status)}
    return json.dumps({"error": error}).encode()


def _head(request: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{turn_number(request)}",
        "object": kind,
        "created": CREATED,
        "model": request["model"],
        "system_fingerprint": None,
    }


def usage_fields(turn: Reply) -> dict[str, Any]:
    """Return the field `usage` of an answer; no field where the turn leaves it out."""
    if turn.usage is None:
        return {}
    prompt, completion = turn.usage
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    return {"usage": {**usage, **turn.usage_details}}


def _completion(turn: Reply, request: Mapping[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text, "refusal": None}
    if turn.calls:
        message["tool_calls"] = [
            {"id": id_, "type": "function", "function": {"name": call.name, "arguments": call.arguments_text}}
            for id_, call in zip(call_ids(turn, turn_number(request)), turn.calls, strict=True)
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": turn.ending}
    return {**_head(request, "chat.completion"), "choices": [choice], **usage_fields(turn)}


def answer_chunks(turn: Reply, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return what a streamed answer to the request consists of, before it is put into bytes."""
    options: dict[str, Any] = request.get("stream_options") or {}
    wants_usage: bool = options.get("include_usage", False)
    # Where the caller asked for usage, every chunk but the one that carries it says null.
    head = {**_head(request, "chat.completion.chunk"), **({"usage": None} if wants_usage else {})}
    if turn.usage_in == "every":
        head |= usage_fields(turn)
    for delta in _deltas(turn, request):
        yield {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": turn.ending}]}
    if wants_usage and turn.usage is not None:
        yield {**head, "choices": [], **usage_fields(turn)}


def _deltas(turn: Reply, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if turn.text is None else "", "refusal": None}
    for piece in split_text(turn.text or "", turn.piece_chars):
        yield {"content": piece}
    for index, (id_, call) in enumerate(zip(call_ids(turn, turn_number(request)), turn.calls, strict=True)):
        opening = {"index": index, "id": id_, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield {"tool_calls": [opening]}
        for piece in split_text(call.arguments_text, turn.piece_chars):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def split_text(text: str, chars: int | None) -> Iterator[str]:
    """Return `text` in the pieces in which it streams: of so many characters, else as its length suggests."""
    size = chars or max(PIECE_CHARS_MIN, -(-len(text) // PIECES_MAX))
    return (text[start : start + size] for start in range(0, len(text), size))


# What may be asked. The rules come from the API's reference (platform.openai.com/docs/api-reference/chat/create) and
# from the errors it gives in practice, such as the one for more than 128 tools. Of call ids OpenAI takes 40 characters,
# others take 64.


def loaded(text: str | bytes) -> object:
    """Return the JSON value; raise ValueError where there is none, and for NaN and the like."""

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON value")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"this is not valid JSON ({problem})") from problem


def _json_object(text: str) -> str:
    # OpenAI takes any string back, but servers whose chat template reads the arguments answer 500 ever after.
    if not isinstance(loaded(text), dict):
        raise ValueError("tool call arguments must be a JSON object")  # noqa: TRY004 - pydantic wants ValueError
    return text


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Part(_Strict):
    type: Literal["text", "refusal", "image_url", "input_audio", "file"]
    text: str = ""
    refusal: str = ""
    image_url: dict[str, Any] | None = None
    input_audio: InputAudio | None = None
    file: InputFile | None = None

    @model_validator(mode="after")
    def _carries_what_it_says(self) -> Self:
        if self.model_fields_set != {"type", self.type}:
            raise ValueError(f"a part of type '{self.type}' has exactly the fields 'type' and '{self.type}'")
        return self


class _Named(_Strict):
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class _CalledFunction(_Named):
    arguments: Annotated[str, AfterValidator(_json_object)]


class _ToolCall(_Strict):
    id: Annotated[str, Field(min_length=1, max_length=64)]
    type: Literal["function"]
    function: _CalledFunction


# Per role: the fields it takes besides role and content, and the types of its content parts.
ROLES: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "system": (frozenset({"name"}), frozenset({"text"})),
    "developer": (frozenset({"name"}), frozenset({"text"})),
    "user": (frozenset({"name"}), frozenset({"text", "image_url", "input_audio", "file"})),
    "assistant": (
        frozenset({"name", "refusal", "tool_calls", "audio", "function_call"}),
        frozenset({"text", "refusal"}),
    ),
    "tool": (frozenset({"tool_call_id"}), frozenset({"text"})),
}


class _Message(_Strict):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[tuple[_Part, ...], Field(min_length=1)] | None = None
    name: str = ""
    refusal: str | None = None
    tool_calls: Annotated[tuple[_ToolCall, ...], Field(min_length=1)] = ()
    tool_call_id: str = ""
    audio: None = None
    function_call: None = None

    @model_validator(mode="after")
    def _suits_its_role(self) -> Self:
        fields, part_types = ROLES[self.role]
        if foreign := sorted(self.model_fields_set - fields - {"role", "content"}):
            raise ValueError(f"a message with role '{self.role}' does not take '{foreign[0]}'")
        parts = self.content if isinstance(self.content, tuple) else ()
        if wrong := [part.type for part in parts if part.type not in part_types]:
            raise ValueError(f"a message with role '{self.role}' does not take parts of type '{wrong[0]}'")
        if self.content is None and self.refusal is None and not self.tool_calls:
            raise ValueError("content may be null only beside an assistant's 'tool_calls'")
        if len({call.id for call in self.tool_calls}) < len(self.tool_calls):
            raise ValueError("'tool_calls' has duplicate ids")
        return self

    @property
    def mentions_json(self) -> bool:
        parts = self.content if isinstance(self.content, tuple) else (_Part(type="text", text=self.content or ""),)
        return any("json" in part.text.lower() for part in parts)


class _Function(FunctionSpec):
    parameters: dict[str, Any] = Field(default={"type": "object"})


class _Tool(_Strict):
    type: Literal["function"]
    function: _Function


class _NamedChoice(_Strict):
    type: Literal["function"]
    function: _Named


class _StreamOptions(_Strict):
    include_usage: bool = False
    include_obfuscation: bool = False


class _ChatRequest(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)  # UNCHECKED_FIELDS are its extras

    model: str
    messages: Annotated[tuple[_Message, ...], Field(min_length=1)]
    tools: Annotated[tuple[_Tool, ...], Field(min_length=1, max_length=128)] = ()
    tool_choice: Literal["none", "auto", "required"] | _NamedChoice = "auto"
    parallel_tool_calls: bool = True
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Literal[1] | None = None
    response_format: AskedFormat | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = [tool.function.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise ValueError("tool names must be unique")
        for dependent in ("tool_choice", "parallel_tool_calls"):
            if dependent in self.model_fields_set and not names:
                raise ValueError(f"'{dependent}' is only allowed when 'tools' are specified")
        if isinstance(self.tool_choice, _NamedChoice) and self.tool_choice.function.name not in names:
            raise ValueError(f"tool choice '{self.tool_choice.function.name}' is not among 'tools'")
        if self.stream_options is not None and not self.stream:
            raise ValueError("'stream_options' is only allowed when 'stream' is enabled")
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError("'max_tokens' and 'max_completion_tokens' exclude each other")
        if isinstance(self.response_format, RequestedObject) and not any(each.mentions_json for each in self.messages):
            raise ValueError("'messages' must contain the word 'json' to use 'response_format' of type 'json_object'")
        _check_pairing(self.messages)
        return self


# Fields of the API whose values mean nothing to a script; a field that is in neither list is unknown to the API.
UNCHECKED_FIELDS = frozenset(  # one string, because as a list they would fill 25 lines
    "audio frequency_penalty function_call functions logit_bias logprobs metadata modalities moderation prediction "  # noqa: SIM905
    "presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort "
    "safety_identifier seed service_tier stop store top_logprobs user verbosity web_search_options".split()
)


def _check_pairing(messages: Sequence[_Message]) -> None:
    asked_at, open_ids = 0, set[str]()
    for index, message in enumerate(messages):
        if message.role == "tool" and message.tool_call_id in open_ids:
            open_ids.discard(message.tool_call_id)
        elif message.role == "tool":
            raise ValueError(
                f"messages[{index}] with role 'tool' must answer a call of the assistant message right before it, "
                f"and only once; no call '{message.tool_call_id}' is open"
            )
        elif open_ids:
            break
        else:
            asked_at, open_ids = index, {call.id for call in message.tool_calls}
    if open_ids:
        raise ValueError(
            f"messages[{asked_at}] with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'; without an answer: {', '.join(sorted(open_ids))}"
        )


PROVIDER_FIELDS = ("reasoning_content", "reasoning_details", "extra_content", "thinking")
"""What providers behind this API want back with their answers; OpenAI's own refuses such fields of a message."""


def provider_fields(pieces: Sequence[bytes]) -> frozenset[str]:
    """Return which of PROVIDER_FIELDS an answer has, given its body."""
    whole = b"".join(pieces)
    return frozenset(name for name in PROVIDER_FIELDS if f'"{name}"'.encode() in whole)


def _plain(message: dict[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    """Return an assistant's message without `fields`, which the server takes back."""
    plain = {name: value for name, value in message.items() if name not in fields}
    if "extra_content" in fields and isinstance(calls := message.get("tool_calls"), list):
        wire_calls = cast("list[dict[str, Any]]", calls)
        plain["tool_calls"] = [{name: call[name] for name in call if name != "extra_content"} for call in wire_calls]
    if "thinking" in fields and isinstance(parts := message.get("content"), list):
        wire_parts = cast("list[dict[str, Any]]", parts)
        plain["content"] = [part for part in wire_parts if part.get("type") != "thinking"] or ""
    return plain


def request_object(content_type: str, raw: bytes) -> dict[str, Any] | Refusal:
    """Return a request's JSON object, its fields not checked yet, or the refusal that OpenAI's APIs would send."""
    if content_type != "application/json":
        return Refusal(f"Unsupported content type: '{content_type}'; send application/json.")
    try:
        body = loaded(raw)
    except ValueError as problem:
        return Refusal(f"We could not parse the JSON body of your request: {problem}.")
    if not isinstance(body, dict):
        return Refusal("The body of your request must be a JSON object.")
    return cast("dict[str, Any]", body)


def read_request(content_type: str, raw: bytes, fields: frozenset[str] = frozenset()) -> dict[str, Any] | Refusal:
    """Return the request's body, or the refusal the API would send: as strict as the strictest server behind it.

    Of PROVIDER_FIELDS an assistant's message may have `fields`: those that the server has sent itself.
    """
    request = request_object(content_type, raw)
    if isinstance(request, Refusal):
        return request
    if unknown := sorted(request.keys() - _ChatRequest.model_fields.keys() - UNCHECKED_FIELDS):
        return Refusal(f"Unrecognized request argument supplied: {unknown[0]}.", unknown[0])
    if fields:
        with suppress(AttributeError, TypeError, KeyError):  # another shape is refused below
            own = [_plain(each, fields) if each["role"] == "assistant" else each for each in request["messages"]]
            raw = json.dumps({**request, "messages": own}).encode()
    try:
        _ChatRequest.model_validate_json(raw)
    except ValidationError as problem:
        return problem_of(problem)
    return request


def problem_of(problem: ValidationError) -> Refusal:
    """Return the refusal for a request that is not valid."""
    # Of a union's errors the deepest belongs to the form that was meant.
    errors = problem.errors(include_url=False, include_input=False)
    error = max(reversed(errors), key=lambda error: len(error["loc"]))
    path, message = _path(error["loc"]), error["msg"].removeprefix("Value error, ")
    return Refusal(f"Invalid value for '{path}': {message}." if path else f"{message}.", path or None)


def _path(location: tuple[int | str, ...]) -> str:
    # pydantic names the members of a union in between: they are no part of the body.
    between = ("tuple[", "literal[", "tagged-union[", "function-after[", "_")
    parts = [part for part in location if part != "str" and not str(part).startswith(between)]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")


def _headers_problem(headers: Mapping[str, str], api_key: str | None) -> Refusal | None:
    if api_key is not None and headers.get("authorization") != f"Bearer {api_key}":
        return Refusal("Incorrect API key provided.", status=401)
    return None


def _model_list(names: Sequence[str]) -> dict[str, Any]:
    models = [{"id": name, "object": "model", "created": CREATED, "owned_by": "holdfast"} for name in names]
    return {"object": "list", "data": models}


OPENAI_WIRE = WireFormat(
    path="/v1/chat/completions",
    base_path="/v1",
    headers_problem=_headers_problem,
    read_request=read_request,
    fields_sent=provider_fields,
    answer_pieces=answer_pieces,
    error_body=lambda refusal: error_body(refusal.status, refusal.message, refusal.param, refusal.code),
    model_list=_model_list,
)
"""Chat completions."""
