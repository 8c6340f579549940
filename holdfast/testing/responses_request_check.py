"""What may be asked of the Responses API without state: requests, checked. It must not hold answers or I/O.

The rules come from the API's reference (platform.openai.com/docs/api-reference/responses) and from the errors that it
gives in practice: of calls without outputs, of reasoning without what followed it, of ids that nothing is stored for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from holdfast.testing.file_checks import PdfAddress, PdfName
from holdfast.testing.openai_wire_format import problem_of, request_object
from holdfast.testing.response_format_check import FunctionSpec, SchemaSpec
from holdfast.testing.wire_format import Refusal

OUTPUT_TOKENS_MIN = 16
STORED_IDS = ("rs_", "msg_", "fc_")
NOT_STORED = "Item with id '{}' not found. Items are not persisted when `store` is set to false."
ROLES = frozenset({"user", "assistant", "system", "developer"})


def encrypted(model: str, text: str, turn: int) -> str:
    """Return the encrypted reasoning of a turn: only what this endpoint made itself is taken back."""
    return f"enc.{turn}." + hashlib.sha256(f"{model}\n{turn}\n{text}".encode()).hexdigest()


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


PART_FIELDS: Mapping[str, set[str]] = {
    "input_text": {"type", "text"},
    "input_image": {"type", "image_url", "detail"},
    "input_file": {"type", "filename", "file_data"},
}


class _Part(_Strict):
    type: Literal["input_text", "input_image", "input_file"]
    text: str = ""
    image_url: str = ""
    filename: PdfName = "none.pdf"
    file_data: PdfAddress | None = None
    detail: Literal["auto", "low", "high", "original"] = "auto"

    @model_validator(mode="after")
    def _carries_what_it_says(self) -> Self:
        wanted = PART_FIELDS[self.type]
        if self.model_fields_set != wanted:
            raise ValueError(f"a part of type '{self.type}' has exactly the fields {sorted(wanted)}")
        return self


Parts = Annotated[tuple[_Part, ...], Field(min_length=1)]


class _Message(_Strict):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Parts
    phase: Literal["commentary", "final_answer"] | None = None

    @model_validator(mode="after")
    def _suits_its_role(self) -> Self:
        if self.role == "assistant" and not isinstance(self.content, str):
            raise ValueError("Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'")
        if self.phase is not None and self.role != "assistant":
            raise ValueError("only an assistant's message has a 'phase'")
        return self


class _Call(_Strict):
    type: Literal["function_call"]
    call_id: Annotated[str, Field(min_length=1, max_length=64)]
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    arguments: str
    namespace: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class _Output(_Strict):
    type: Literal["function_call_output"]
    call_id: Annotated[str, Field(min_length=1, max_length=64)]
    output: str | Parts


class _Summary(_Strict):
    type: Literal["summary_text"]
    text: str


class _Thought(_Strict):
    type: Literal["reasoning_text"]
    text: str


class _Reasoning(_Strict):
    type: Literal["reasoning"]
    summary: tuple[_Summary, ...]
    content: tuple[_Thought, ...] | None = None
    encrypted_content: str
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class _Compaction(_Strict):
    type: Literal["compaction"]
    encrypted_content: str


class _WebSearch(_Strict):
    type: Literal["web_search_call"]
    status: str
    action: dict[str, Any]


class _FileSearch(_Strict):
    type: Literal["file_search_call"]
    status: str
    queries: tuple[str, ...]
    results: tuple[dict[str, Any], ...] | None = None


class _Code(_Strict):
    type: Literal["code_interpreter_call"]
    status: str
    code: str | None
    container_id: str
    outputs: tuple[dict[str, Any], ...] | None


Item = Annotated[
    _Call | _Output | _Reasoning | _Compaction | _WebSearch | _FileSearch | _Code, Field(discriminator="type")
]


class _Tool(FunctionSpec):
    type: Literal["function"]
    strict: bool | None = True


class _Location(_Strict):
    type: Literal["approximate"]
    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class _Domains(_Strict):
    allowed_domains: tuple[str, ...] | None = None


class _SearchTool(_Strict):
    type: Literal["web_search", "web_search_2025_08_26"]
    external_web_access: bool = True
    filters: _Domains | None = None
    search_context_size: Literal["low", "medium", "high"] = "medium"
    user_location: _Location | None = None


class _PreviewTool(_Strict):
    type: Literal["web_search_preview", "web_search_preview_2025_03_11"]
    search_content_types: tuple[Literal["text", "image"], ...] = ("text",)
    search_context_size: Literal["low", "medium", "high"] = "medium"
    user_location: _Location | None = None


class _FilesTool(_Strict):
    type: Literal["file_search"]
    vector_store_ids: Annotated[tuple[str, ...], Field(min_length=1)]
    filters: dict[str, Any] | None = None
    max_num_results: Annotated[int, Field(ge=1, le=50)] | None = None
    ranking_options: dict[str, Any] | None = None


class _Container(_Strict):
    type: Literal["auto"]
    file_ids: tuple[str, ...] = ()
    memory_limit: Literal["1g", "4g", "16g", "64g"] | None = None
    network_policy: dict[str, Any] | None = None


class _CodeTool(_Strict):
    type: Literal["code_interpreter"]
    container: str | _Container


AnyTool = Annotated[_Tool | _SearchTool | _PreviewTool | _FilesTool | _CodeTool, Field(discriminator="type")]


class _Named(_Strict):
    type: Literal["function"]
    name: str


class _Words(_Strict):
    type: Literal["text"]


class _Object(_Strict):
    type: Literal["json_object"]


class _Schema(SchemaSpec):
    type: Literal["json_schema"]


class _Text(_Strict):
    format: Annotated[_Words | _Object | _Schema, Field(discriminator="type")] = _Words(type="text")
    verbosity: Literal["low", "medium", "high"] | None = None


class _Reason(_Strict):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponsesRequest(_Strict):
    """A request that the API takes."""

    model: str
    input: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)]
    instructions: str | None = None
    tools: Annotated[tuple[AnyTool, ...], Field(min_length=1, max_length=128)] = ()
    tool_choice: Literal["none", "auto", "required"] | _Named = "auto"
    parallel_tool_calls: bool = True
    stream: bool = False
    store: bool = True
    background: bool = False
    include: tuple[
        Literal[
            "reasoning.encrypted_content",
            "web_search_call.action.sources",
            "web_search_call.results",
            "file_search_call.results",
            "code_interpreter_call.outputs",
        ],
        ...,
    ] = ()
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Field(ge=OUTPUT_TOKENS_MIN)] | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    text: _Text = _Text()
    reasoning: _Reason | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    metadata: dict[str, str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    previous_response_id: None = None
    conversation: None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = [tool.name if isinstance(tool, _Tool) else tool.type for tool in self.tools]
        if len(set(names)) < len(names):
            raise ValueError("tool names must be unique")
        if self.background and not self.store:
            raise ValueError("'background' requires 'store' to be true")
        if isinstance(self.text.format, _Object) and "json" not in json.dumps(self.input).lower():
            raise ValueError(
                "Response input messages must contain the word 'json' in some form to use 'text.format' of type "
                "'json_object'"
            )
        return self


class _Input(_Strict):
    input: tuple[Item | _Message, ...]


def read_request(content_type: str, raw: bytes) -> dict[str, Any] | Refusal:
    """Return the request's body with its conversation as a script knows it, or the refusal that the API would send."""
    request = request_object(content_type, raw)
    if isinstance(request, Refusal):
        return request
    if isinstance(request.get("input"), str):
        request["input"] = [{"role": "user", "content": request["input"]}]
    if unknown := sorted(request.keys() - ResponsesRequest.model_fields.keys()):
        return Refusal(f"Unknown parameter: '{unknown[0]}'.", unknown[0], "unknown_parameter")
    if request.get("store") is not False and isinstance(request.get("input"), list):
        request["input"] = [_stored(item) for item in request["input"]]
    try:
        parsed = ResponsesRequest.model_validate_json(json.dumps(request))
        if refusal := _ids_problem(parsed):
            return refusal
        _Input.model_validate_json(json.dumps({"input": parsed.input}))
        check_items(parsed.input, parsed.model)
    except ValidationError as problem:
        return problem_of(problem)
    except ValueError as problem:
        return Refusal(f"{problem}.", "input")
    return {**request, "messages": script_messages(request)}


def _stored(item: object) -> object:
    """Return an item that the API has stored as it stands for: it may come back by its id, in the answer's form."""
    if not isinstance(item, dict):
        return item
    fields = cast("dict[str, Any]", item)
    if not str(fields.get("id", "")).startswith(STORED_IDS):
        return fields
    parts = cast("list[dict[str, Any]]", fields.get("content") or [])
    if fields.get("role") == "assistant" and isinstance(parts, list):  # pyright: ignore[reportUnnecessaryIsInstance]
        texts = [part["text"] for part in parts if part.get("type") == "output_text"]
        return {"role": "assistant", "content": "".join(texts)}
    return {name: value for name, value in fields.items() if name != "id"}


def _ids_problem(request: ResponsesRequest) -> Refusal | None:
    """An id is looked up, whatever stands beside it; and with `store` false nothing is there."""
    for item in request.input:
        if "id" in item:
            return Refusal(NOT_STORED.format(item["id"]), "input", status=404)
    return None


def check_items(items: Sequence[Mapping[str, Any]], model: str) -> None:
    """Raise ValueError for items that do not stand as the API made them, or answer nothing."""
    kinds = [item.get("type", "message") for item in items]
    called = {item["call_id"]: place for place, item in enumerate(items) if kinds[place] == "function_call"}
    if len(called) < kinds.count("function_call"):
        raise ValueError("Duplicate function call ids in the input")
    answered = [item["call_id"] for place, item in enumerate(items) if kinds[place] == "function_call_output"]
    for id_ in answered:
        if id_ not in called:
            raise ValueError(f"No tool call found for function call output with call_id {id_}")
    for id_ in called:
        if answered.count(id_) != 1:
            raise ValueError(f"No tool output found for function call {id_}")
    for place, item in enumerate(items):
        if kinds[place] == "reasoning":
            following = items[place + 1] if place + 1 < len(items) else {"role": "user"}
            if following.get("role", "assistant") != "assistant" or following.get("type") == "function_call_output":
                raise ValueError("Item of type 'reasoning' was provided without its required following item")
            _check_reasoning(item, items, place, model)


def _check_reasoning(item: Mapping[str, Any], items: Sequence[Mapping[str, Any]], place: int, model: str) -> None:
    turn = _turns(items[:place], ended=False)
    text = "".join(part["text"] for part in item["summary"])
    if item["encrypted_content"] != encrypted(model, text, turn):
        raise ValueError("The encrypted content could not be verified: it is not of this model, or not in its place")


def _made(item: Mapping[str, Any]) -> bool:
    """Whether the model made the item."""
    return item.get("role", "assistant") == "assistant" and item.get("type") != "function_call_output"


def _turns(items: Sequence[Mapping[str, Any]], *, ended: bool) -> int:
    """Return how many turns of the model stand in `items`; the last one counts only if it has `ended`."""
    made = [_made(item) for item in items]
    turns = sum(now and not (place and made[place - 1]) for place, now in enumerate(made))
    return turns if ended or not (made and made[-1]) else turns - 1


def script_messages(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the conversation as a script knows it, in the terms of chat completions: one message for each turn."""
    messages = list[dict[str, Any]]()
    if request.get("instructions"):
        messages.append({"role": "system", "content": request["instructions"]})
    inside = False
    for item in request["input"]:
        if not _made(item):
            inside = False
            messages.append(
                {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
                if item.get("type") == "function_call_output"
                else {"role": item["role"], "content": item["content"]}
            )
            continue
        if not inside:
            inside = True
            messages.append({"role": "assistant", "content": None})
        turn = messages[-1]
        if item.get("role") == "assistant":
            turn["content"] = (turn["content"] or "") + item["content"]
        elif item["type"] == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            turn.setdefault("tool_calls", []).append({"id": item["call_id"], "type": "function", "function": function})
    return messages
