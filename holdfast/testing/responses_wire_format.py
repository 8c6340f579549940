"""Answers of a scripted conversation in the form of the Responses API, streamed and plain; it must not hold I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from itertools import count
from typing import Any

from holdfast.testing.openai_wire_format import CREATED, OPENAI_WIRE, split_text
from holdfast.testing.openai_wire_format import answer_pieces as other_pieces
from holdfast.testing.responses_request_check import encrypted, read_request
from holdfast.testing.script import Reply, ServerCall, call_ids, turn_number
from holdfast.testing.wire_format import WireFormat

FAILED = "failed"
"""The finish reason of a turn that is a failed response; its text is the error's."""

RESPONSE_ID = "id"
"""The field of a checked request that has the response's id, where it is not that of its turn."""

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def answer_pieces(turn: Reply, request: Mapping[str, Any]) -> tuple[bytes, ...]:
    """Return the answer's body for the request, in the pieces in which it goes out: one for each event."""
    if turn.body is not None or turn.status >= HTTPStatus.BAD_REQUEST:
        return other_pieces(turn, request)
    if not request.get("stream"):
        return (json.dumps(response_object(turn, request)).encode(),)
    return tuple(map(event_bytes, answer_events(turn, request)))


def event_bytes(event: Mapping[str, Any]) -> bytes:
    """Return an event as it goes out."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def response_object(turn: Reply, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole response that a turn is."""
    if turn.ending == FAILED:
        error = {"code": "server_error", "message": turn.text or "The model has failed."}
        return begun(request) | {"status": FAILED, "error": error, "usage": _usage(turn)}
    reason = INCOMPLETE.get(turn.ending)
    return begun(request) | {
        "status": "completed" if reason is None else "incomplete",
        "incomplete_details": None if reason is None else {"reason": reason},
        "completed_at": CREATED if reason is None else None,
        "output": _output(turn, request),
        "usage": _usage(turn),
    }


def begun(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response that has just begun."""
    return {
        "id": request.get(RESPONSE_ID, f"resp_{turn_number(request)}"),
        "object": "response",
        "created_at": CREATED,
        "status": "queued" if request.get("background") else "in_progress",
        "background": request.get("background", False),
        "error": None,
        "incomplete_details": None,
        "instructions": request.get("instructions"),
        "max_output_tokens": request.get("max_output_tokens"),
        "metadata": {},
        "model": request["model"],
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": request.get("store", True),
        "temperature": request.get("temperature", 1.0),
        "text": request.get("text", {"format": {"type": "text"}}),
        "tool_choice": "auto",
        "tools": request.get("tools", []),
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
    }


def _usage(turn: Reply) -> dict[str, Any] | None:
    if turn.usage is None:
        return None
    sent, made = turn.usage
    return {
        "input_tokens": sent,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sent + made,
        **turn.usage_details,
    }


def _output(turn: Reply, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    number = turn_number(request)
    items = list[dict[str, Any]]()
    if turn.reasoning is not None:
        items.append({
            "id": f"rs_{number}",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": turn.reasoning}],
            "encrypted_content": encrypted(request["model"], turn.reasoning, number),
        })  # fmt: skip
    items += (_server_call(each, f"{number}_{place}") for place, each in enumerate(turn.server_calls))
    items += map(dict, turn.blocks)
    status = "incomplete" if turn.ending in INCOMPLETE else "completed"
    if turn.text is not None:
        part: dict[str, Any] = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        if turn.ending == "refusal":
            part = {"type": "refusal", "refusal": turn.text}
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": status, "content": [part]}
        items.append(message)
    for place, (id_, call) in enumerate(zip(call_ids(turn, number), turn.calls, strict=True)):
        items.append({
            "id": f"fc_{number}_{place}",
            "type": "function_call",
            "call_id": id_,
            "name": call.name,
            "arguments": call.arguments_text,
            "status": status,
        })  # fmt: skip
    return items


def _server_call(call: ServerCall, id_: str) -> dict[str, Any]:
    """Return the item of a call that the provider has made itself; its result is in no item unless it is asked for."""
    done: dict[str, Any] = {"type": f"{call.name}_call", "status": "completed"}
    match call.name:
        case "web_search":
            return {"id": f"ws_{id_}", **done, "action": {"type": "search", "query": call.text}}
        case "file_search":
            return {"id": f"fs_{id_}", **done, "queries": [call.text], "results": None}
        case "code_interpreter":
            return {"id": f"ci_{id_}", **done, "code": call.text, "container_id": "cntr_1", "outputs": None}
        case _:
            raise ValueError(f"the API runs no tool {call.name!r}")


def answer_events(turn: Reply, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the events of a streamed answer, numbered from 0."""
    numbers = count()
    for event in _events(turn, request):
        yield {**event, "sequence_number": next(numbers)}


def _events(turn: Reply, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    frame, whole = begun(request), response_object(turn, request)
    yield {"type": "response.created", "response": frame}
    if frame["status"] == "queued":
        yield {"type": "response.queued", "response": frame}
        frame = frame | {"status": "in_progress"}
    yield {"type": "response.in_progress", "response": frame}
    for index, item in enumerate(whole["output"]):
        yield from _item_events(turn, index, item)
    yield {"type": f"response.{whole['status']}", "response": whole}


def _item_events(turn: Reply, index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"output_index": index}
    inside = {**place, "item_id": item.get("id", "")}
    added = {"type": "response.output_item.added", **place}
    match item["type"]:
        case "message":
            yield {**added, "item": item | {"content": [], "status": "in_progress"}}
            part = item["content"][0]
            kind = "refusal" if part["type"] == "refusal" else "text"
            named, field = ("refusal", "refusal") if kind == "refusal" else ("output_text", "text")
            inside |= {"content_index": 0}
            more: dict[str, Any] = {} if kind == "refusal" else {"logprobs": []}
            yield {"type": "response.content_part.added", **inside, "part": part | {field: ""}}
            for piece in split_text(part[field], turn.piece_chars):
                yield {"type": f"response.{named}.delta", **inside, "delta": piece, **more}
            yield {"type": f"response.{named}.done", **inside, field: part[field], **more}
            yield {"type": "response.content_part.done", **inside, "part": part}
        case "function_call":
            yield {**added, "item": item | {"arguments": "", "status": "in_progress"}}
            for piece in split_text(item["arguments"], turn.piece_chars):
                yield {"type": "response.function_call_arguments.delta", **inside, "delta": piece}
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **inside, **done}
        case "reasoning":
            yield {**added, "item": item | {"summary": [], "encrypted_content": "enc.begun"}}
            inside |= {"summary_index": 0}
            (part,) = item["summary"]
            yield {"type": "response.reasoning_summary_part.added", **inside, "part": part | {"text": ""}}
            for piece in split_text(part["text"], turn.piece_chars):
                yield {"type": "response.reasoning_summary_text.delta", **inside, "delta": piece}
            yield {"type": "response.reasoning_summary_text.done", **inside, "text": part["text"]}
            yield {"type": "response.reasoning_summary_part.done", **inside, "part": part}
        case "web_search_call" | "file_search_call" | "code_interpreter_call":
            yield from _server_call_events(turn, item, added, inside)
        case _:
            yield {**added, "item": item}
    yield {"type": "response.output_item.done", **place, "item": item}


def _server_call_events(
    turn: Reply, item: dict[str, Any], added: dict[str, Any], inside: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield how a call that the provider makes itself begins and goes on."""
    kind = item["type"]
    if kind != "code_interpreter_call":
        yield {**added, "item": item | {"status": "in_progress"}}
        for stage in ("in_progress", "searching", "completed"):
            yield {"type": f"response.{kind}.{stage}", **inside}
        return
    yield {**added, "item": item | {"code": "", "status": "in_progress"}}
    yield {"type": f"response.{kind}.in_progress", **inside}
    for piece in split_text(item["code"], turn.piece_chars):
        yield {"type": f"response.{kind}_code.delta", **inside, "delta": piece}
    yield {"type": f"response.{kind}_code.done", **inside, "code": item["code"]}
    for stage in ("interpreting", "completed"):
        yield {"type": f"response.{kind}.{stage}", **inside}


RESPONSES_WIRE = WireFormat(
    path="/v1/responses",
    base_path="/v1",
    headers_problem=OPENAI_WIRE.headers_problem,
    read_request=lambda content_type, raw, _: read_request(content_type, raw),
    answer_pieces=answer_pieces,
    error_body=OPENAI_WIRE.error_body,
    model_list=OPENAI_WIRE.model_list,
)
"""Responses, without state."""
