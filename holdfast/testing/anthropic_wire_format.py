"""Both sides of a scripted conversation in the form of Anthropic's Messages API; it must not hold I/O.

Requests are checked by `anthropic_request_check`. Thinking is signed: whoever sends it back changed is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from holdfast.testing.openai_wire_format import split_text
from holdfast.testing.script import Reply, ServerCall, call_ids, turn_number
from holdfast.testing.wire_format import Refusal, raw_pieces

VERSION: Final = "2023-06-01"
CREATED: Final = "2023-11-14T22:13:20Z"  # a constant, so that equal requests get equal answers
STOP_REASONS: Final = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
SEALED: Final = "scripted:"
"""What only the server knows: a signature is a digest that begins with it."""


def signature(text: str) -> str:
    """Return the signature of a thought; only this text has it."""
    return hashlib.sha256((SEALED + text).encode("utf-8", "surrogatepass")).hexdigest()


def redacted_thinking(text: str = "hidden") -> dict[str, Any]:
    """Return a block of thinking that the provider keeps to itself, for `Reply.blocks`."""
    return {"type": "redacted_thinking", "data": f"{text.encode().hex()}.{signature(text)}"}


def is_redacted_data(data: str) -> bool:
    """Return whether `data` is that of a block of `redacted_thinking`."""
    hidden, _, signed = data.partition(".")
    try:
        return signature(bytes.fromhex(hidden).decode()) == signed
    except ValueError:
        return False


def answer_pieces(turn: Reply, request: Mapping[str, Any]) -> tuple[bytes, ...]:
    """Return the answer's body for the request, in the pieces in which it goes out: an event each."""
    if (raw := raw_pieces(turn)) is not None:
        return raw
    if turn.status >= HTTPStatus.BAD_REQUEST:
        text = turn.text or f"The script answers with status {turn.status}."
        return (error_body(Refusal(text, status=turn.status)),)
    if not request.get("stream"):
        return (json.dumps(message_of(turn, request)).encode(),)
    return tuple(event_bytes(event) for event in events_of(turn, request))


def event_bytes(event: Mapping[str, Any]) -> bytes:
    """Return an event as it is sent."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def error_body(refusal: Refusal) -> bytes:
    """Return an error in the API's shape, with the type of its status."""
    kind = ERROR_TYPES.get(refusal.status, "api_error")
    error = {"type": "error", "error": {"type": kind, "message": refusal.message}, "request_id": "req_scripted"}
    return json.dumps(error).encode()


def _content(turn: Reply, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    thought = turn.reasoning
    thinking = [] if thought is None else [{"type": "thinking", "thinking": thought, "signature": signature(thought)}]
    text = [{"type": "text", "text": turn.text, "citations": None}] if turn.text else []
    calls = [
        {"type": "tool_use", "id": id_, "name": call.name, "input": call.arguments}
        for id_, call in zip(call_ids(turn, turn_number(request)), turn.calls, strict=True)
    ]
    number = turn_number(request)
    ran = [block for place, each in enumerate(turn.server_calls) for block in _server_call(each, f"{number}_{place}")]
    return [*thinking, *ran, *(dict(block) for block in turn.blocks), *text, *calls]


def _server_call(call: ServerCall, place: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a call that the provider has made itself, and its result."""
    id_ = f"srvtoolu_{place}"
    match call.name:
        case "web_search":
            name, given = "web_search", {"query": call.text}
            found: object = [{
                "type": "web_search_result", "url": "https://example.org/", "title": call.result,
                "encrypted_content": signature(call.result), "page_age": None,
            }]  # fmt: skip
        case "web_fetch":
            name, given = "web_fetch", {"url": call.text}
            source = {"type": "text", "media_type": "text/plain", "data": call.result}
            page = {"type": "document", "source": source, "title": None, "citations": None}
            found = {"type": "web_fetch_result", "url": call.text, "retrieved_at": CREATED, "content": page}
        case "code_execution":
            name, given = "bash_code_execution", {"command": call.text}
            found = {
                "type": "bash_code_execution_result", "stdout": call.result, "stderr": "", "return_code": 0,
                "content": [],
            }  # fmt: skip
        case _:
            raise ValueError(f"the API runs no tool {call.name!r}")
    asked = {"type": "server_tool_use", "id": id_, "name": name, "input": given, "caller": {"type": "direct"}}
    return asked, {"type": f"{name}_tool_result", "tool_use_id": id_, "content": found}


def message_of(turn: Reply, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole answer to a request that does not stream."""
    return {
        "id": f"msg_{turn_number(request)}",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": [
            {**block, "input": _input_of(block["input"])} if block["type"] == "tool_use" else block
            for block in _content(turn, request)
        ],
        "stop_reason": stop_reason(turn),
        "stop_sequence": None,
        **_usage(turn, request),
    }


def stop_reason(turn: Reply) -> str:
    """Return the API's own word for how the turn ends; other words of a script go out as they are."""
    return STOP_REASONS.get(turn.ending, turn.ending)


def _input_of(arguments: Mapping[str, Any] | str) -> object:
    """Return what a plain answer has as a call's input: an object, or whatever a script has in its place."""
    if not isinstance(arguments, str):
        return dict(arguments)
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _usage(turn: Reply, request: Mapping[str, Any], output: int | None = None) -> dict[str, Any]:
    if turn.usage is None:
        return {}
    prompt, completion = turn.usage
    cached, written = marked_tokens(request, prompt)
    usage: dict[str, Any] = {
        "input_tokens": prompt - cached - written,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written,
        "output_tokens": completion if output is None else output,
    }
    if turn.server_calls:  # counted as they are made: at the beginning there are none
        names = [call.name for call in turn.server_calls] if output is None else []
        usage["server_tool_use"] = {f"{name}_requests": names.count(name) for name in ("web_search", "web_fetch")}
    return {"usage": usage}


def marked_tokens(request: Mapping[str, Any], prompt: int) -> tuple[int, int]:
    """Return how many of the prompt's tokens the cache has, and how many are written to it.

    It depends on the request alone: what precedes the last answer was sent before, and was cached where its end is
    marked; the rest up to the last mark is written. Tokens are shared out by bytes.
    """
    messages: list[dict[str, Any]] = request["messages"]
    answers = [place for place, each in enumerate(messages) if each["role"] == "assistant"]
    ends = [_size(messages[: place + 1]) for place, each in enumerate(messages) if _is_marked(each)]
    if request.get("cache_control"):  # marks the end of each request
        ends += [_size(messages[: answers[-1]])] if answers else []
        ends.append(_size(messages))
    if not ends or prompt <= 0:
        return 0, 0
    before = _size(messages[: answers[-1]]) if answers else 0
    head = len(json.dumps([request.get("tools"), request.get("system")]))
    whole = head + _size(messages)
    cached = prompt * (head + before) // whole if before in ends else 0
    return cached, prompt * (head + ends[-1]) // whole - cached


def _size(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the bytes of `messages` as JSON without their marks, which move on with each request."""
    bare = [{**each, "content": [_bare(block) for block in _listed(each["content"])]} for each in messages]
    return len(json.dumps(bare))


def _listed(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _bare(block: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _is_marked(message: Mapping[str, Any]) -> bool:
    return any("cache_control" in block for block in _listed(message["content"]))


def events_of(turn: Reply, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return what a streamed answer to the request consists of, before it is put into bytes."""
    start: dict[str, Any] = {"content": [], "stop_reason": None, **_usage(turn, request, output=1)}
    yield {"type": "message_start", "message": message_of(turn, request) | start}
    yield {"type": "ping"}
    for index, block in enumerate(_content(turn, request)):
        opening, deltas = _pieces(block, turn.piece_chars)
        yield {"type": "content_block_start", "index": index, "content_block": opening}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": stop_reason(turn), "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, **_usage(turn, request)}
    yield {"type": "message_stop"}


def _pieces(block: dict[str, Any], chars: int | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return how a block begins, and what it grows by."""
    match block["type"]:
        case "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in split_text(block["text"], chars)]
            return {**block, "text": ""}, deltas
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in split_text(block["thinking"], chars)]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "tool_use":
            arguments = block["input"]
            text = arguments if isinstance(arguments, str) else json.dumps(dict(arguments))
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in split_text(text, chars)]
            return {**block, "input": {}}, deltas
        case "server_tool_use":
            pieces = split_text(json.dumps(block.get("input", {})), chars)
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            return {**block, "input": {}}, deltas
        case _:
            return block, []


def headers_problem(headers: Mapping[str, str], api_key: str | None) -> Refusal | None:
    """Return why a request with these headers is refused; none where it is let in."""
    if "anthropic-version" not in headers:
        return Refusal("anthropic-version: header is required")
    given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
    return None if api_key in (None, given) else Refusal("invalid x-api-key", status=401)


def model_list(names: Sequence[str]) -> dict[str, Any]:
    """Return the answer to `GET /v1/models`."""
    models = [{"type": "model", "id": name, "display_name": name, "created_at": CREATED} for name in names]
    return {"data": models, "has_more": False, "first_id": names[0], "last_id": names[-1]}
