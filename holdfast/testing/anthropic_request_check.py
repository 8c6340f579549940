"""What Anthropic's Messages API refuses of a request, as strict as the API itself; it must not hold answers or I/O.

The rules come from the API's reference (https://docs.claude.com/en/api/messages), its guides on tool use, thinking,
prompt caching and structured outputs, and the errors that the API gives in practice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, NoReturn, Self, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from holdfast.testing.anthropic_wire_format import (
    answer_pieces,
    error_body,
    headers_problem,
    is_redacted_data,
    model_list,
    signature,
)
from holdfast.testing.file_checks import PdfData
from holdfast.testing.wire_format import Refusal, WireFormat

MARKS_MAX: Final = 4
THINKING_TOKENS_MIN: Final = 1_024
SERVER_RESULTS: Final = frozenset({
    "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
})  # fmt: skip
KEPT_BLOCKS: Final = frozenset({"server_tool_use", "container_upload"}) | SERVER_RESULTS
"""Types of blocks that go back as they came and that a script does not look into."""
REFUSED_KEYWORDS: Final = frozenset({"minimum", "maximum", "multipleOf", "minLength", "maxLength", "maxItems", "oneOf"})


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _CacheControl(_Strict):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class _Markable(_Strict):
    cache_control: _CacheControl | None = None


class _Text(_Markable):
    type: Literal["text"]
    text: str
    citations: Any = None

    @model_validator(mode="after")
    def _has_words(self) -> Self:
        if not self.text.strip():
            raise ValueError("text content blocks must contain non-whitespace text")
        return self


class _Base64(_Strict):
    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]+={0,2}$")]


class _Url(_Strict):
    type: Literal["url"]
    url: Annotated[str, Field(pattern="^https?://")]


class _Image(_Markable):
    type: Literal["image"]
    source: Annotated[_Base64 | _Url, Field(discriminator="type")]


class _Pdf(_Strict):
    type: Literal["base64"]
    media_type: Literal["application/pdf"]
    data: PdfData


class _Words(_Strict):
    type: Literal["text"]
    media_type: Literal["text/plain"]
    data: Annotated[str, Field(pattern=r"\S")]


class _Document(_Markable):
    type: Literal["document"]
    source: Annotated[_Pdf | _Words, Field(discriminator="type")]
    title: Annotated[str, Field(min_length=1, max_length=500)] | None = None


class _ToolUse(_Markable):
    type: Literal["tool_use"]
    id: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]+$")]
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    input: dict[str, Any]


class _ToolResult(_Markable):
    type: Literal["tool_result"]
    tool_use_id: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]+$")]
    content: str | tuple[Annotated[_Text | _Image | _Document, Field(discriminator="type")], ...] = ()
    is_error: bool = False


class _Thinking(_Strict):
    type: Literal["thinking"]
    thinking: str
    signature: str

    @model_validator(mode="after")
    def _is_as_it_came(self) -> Self:
        if self.signature != signature(self.thinking):
            raise ValueError("Invalid `signature` in `thinking` block")
        return self


class _Redacted(_Strict):
    type: Literal["redacted_thinking"]
    data: str

    @model_validator(mode="after")
    def _is_as_it_came(self) -> Self:
        if not is_redacted_data(self.data):
            raise ValueError("Invalid `data` in `redacted_thinking` block")
        return self


class _ForeignBlock(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    type: str


def _tag(value: Any) -> str:  # noqa: ANN401  # any JSON value
    kind = cast("dict[str, Any]", value).get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "kept" if kind in KEPT_BLOCKS else str(kind)


_Block = Annotated[
    Annotated[_Text, Tag("text")]
    | Annotated[_Image, Tag("image")]
    | Annotated[_Document, Tag("document")]
    | Annotated[_ToolUse, Tag("tool_use")]
    | Annotated[_ToolResult, Tag("tool_result")]
    | Annotated[_Thinking, Tag("thinking")]
    | Annotated[_Redacted, Tag("redacted_thinking")]
    | Annotated[_ForeignBlock, Tag("kept")],
    Discriminator(_tag),
]
USER_BLOCKS: Final = frozenset({"text", "image", "document", "tool_result"})


class _Turn(_Strict):
    role: Literal["user", "assistant"]
    content: Annotated[str, Field(min_length=1)] | Annotated[tuple[_Block, ...], Field(min_length=1)]

    @property
    def blocks(self) -> tuple[Any, ...]:
        return () if isinstance(self.content, str) else self.content

    @property
    def results(self) -> list[str]:
        return [block.tool_use_id for block in self.blocks if block.type == "tool_result"]

    @property
    def calls(self) -> list[str]:
        return [block.id for block in self.blocks if block.type == "tool_use"]

    @property
    def begins_with(self) -> str:
        return str(self.blocks[0].type) if self.blocks else "text"

    @model_validator(mode="after")
    def _suits_its_role(self) -> Self:
        for block in self.blocks:
            if (block.type in USER_BLOCKS - {"text"}) is (self.role == "assistant") and block.type != "text":
                raise ValueError(f"`{block.type}` blocks are not allowed in {self.role} messages")
        places = [place for place, block in enumerate(self.blocks) if block.type == "tool_result"]
        if places != list(range(len(places))):
            raise ValueError("`tool_result` blocks must come first in the content of a message")
        return self


def _check_server_calls(turns: Sequence[_Turn], offered: Sequence[str]) -> None:
    """What the provider found goes back behind the call that found it, and as it came; no call goes back alone.

    One beside calls of the client's waits for their results, and for nothing else.
    """
    waiting = dict[str, str]()
    for place, turn in enumerate(turns):
        if turn.role == "user" and len(turn.results) < max(1, len(turn.blocks)) and waiting:
            id_, name = next(iter(waiting.items()))
            raise ValueError(
                f"messages.{place - 1}: `{name}` tool use with id `{id_}` was found without a corresponding "
                f"`{name}_tool_result` block"
            )
        for block in turn.blocks:
            if block.type == "server_tool_use":
                waiting[block.id] = block.name
            elif block.type in SERVER_RESULTS:
                if waiting.pop(block.tool_use_id, None) is None:
                    raise ValueError(
                        f"messages.{place}: unexpected `tool_use_id` found in `{block.type}` blocks: "
                        f"{block.tool_use_id}. Each `{block.type}` block must have a corresponding `server_tool_use` "
                        "block before it."
                    )
                _check_found(block.content)
    for name in waiting.values():
        if not any(name.endswith(each) for each in offered):
            raise ValueError(f"messages: a `{name}` tool use waits, but no `{name}` tool was provided")


def _check_found(content: object) -> None:
    if not isinstance(content, list):
        return
    for page in cast("list[dict[str, Any]]", content):
        if "encrypted_content" in page and page["encrypted_content"] != signature(page["title"]):
            raise ValueError("Invalid `encrypted_content` in `search_result` block")


class _Tool(_Markable):
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    description: str = ""
    input_schema: dict[str, Any]
    strict: bool | None = None
    type: Literal["custom"] | None = None

    @model_validator(mode="after")
    def _takes_an_object(self) -> Self:
        if self.input_schema.get("type") != "object":
            raise ValueError("input_schema.type: Input should be 'object'")
        return self


class _Location(_Strict):
    type: Literal["approximate"]
    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class _ServerTool(_Markable):
    """A tool that the provider runs; each has a name of its own."""

    allowed_callers: tuple[str, ...] = ()


class _WebTool(_ServerTool):
    allowed_domains: tuple[str, ...] | None = None
    blocked_domains: tuple[str, ...] | None = None
    max_uses: Annotated[int, Field(ge=1)] | None = None
    response_inclusion: str | None = None

    @model_validator(mode="after")
    def _has_one_list(self) -> Self:
        if self.allowed_domains and self.blocked_domains:
            raise ValueError("Only one of `allowed_domains` and `blocked_domains` may be specified")
        return self


class _SearchTool(_WebTool):
    type: Literal["web_search_20250305", "web_search_20260209", "web_search_20260318"]
    name: Literal["web_search"]
    user_location: _Location | None = None


class _FetchTool(_WebTool):
    type: Literal["web_fetch_20250910", "web_fetch_20260209", "web_fetch_20260309", "web_fetch_20260318"]
    name: Literal["web_fetch"]
    citations: dict[str, bool] | None = None
    max_content_tokens: Annotated[int, Field(ge=1)] | None = None
    url_sources: dict[str, Any] | None = None
    use_cache: bool = True


class _CodeTool(_ServerTool):
    type: Literal[
        "code_execution_20250522", "code_execution_20250825", "code_execution_20260120", "code_execution_20260521"
    ]
    name: Literal["code_execution"]


def _tool_tag(value: Any) -> str:  # noqa: ANN401  # any JSON value
    kind = cast("dict[str, Any]", value).get("type") if isinstance(value, dict) else getattr(value, "type", None)
    named = {"web_search": "search", "web_fetch": "fetch", "code_execution": "code"}
    return next((tag for name, tag in named.items() if str(kind).startswith(name)), "own")


_AnyTool = Annotated[
    Annotated[_Tool, Tag("own")]
    | Annotated[_SearchTool, Tag("search")]
    | Annotated[_FetchTool, Tag("fetch")]
    | Annotated[_CodeTool, Tag("code")],
    Discriminator(_tool_tag),
]


class _ThinkingConfig(_Strict):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Field(ge=THINKING_TOKENS_MIN)] | None = None
    display: Literal["summarized", "omitted"] | None = None

    @model_validator(mode="after")
    def _has_a_budget(self) -> Self:
        if (self.type == "enabled") is (self.budget_tokens is None):
            raise ValueError("`budget_tokens` is required for, and only for, thinking of type 'enabled'")
        return self


class _OutputFormat(_Strict):
    type: Literal["json_schema"]
    body: Annotated[dict[str, Any], Field(alias="schema")]

    @model_validator(mode="after")
    def _can_be_enforced(self) -> Self:
        for schema in _within(self.body):
            if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
                raise ValueError("For 'object' type, 'additionalProperties' must be explicitly set to false")
            if refused := sorted(REFUSED_KEYWORDS & schema.keys()):
                raise ValueError(f"property '{refused[0]}' is not supported")
        return self


def _within(schema: object) -> Iterator[dict[str, Any]]:
    """Yield the schema and those inside it."""
    if not isinstance(schema, dict):
        return
    fields = cast("dict[str, Any]", schema)
    yield fields
    inner: list[object] = [fields.get("items"), *fields.get("anyOf", ()), *fields.get("allOf", ())]
    inner += [*fields.get("properties", {}).values(), *fields.get("$defs", {}).values()]
    for each in inner:
        yield from _within(each)


class _OutputConfig(_Strict):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: _OutputFormat | None = None


class _ToolChoice(_Strict):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class _Request(_Strict):
    model: Annotated[str, Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)]
    messages: Annotated[tuple[_Turn, ...], Field(min_length=1)]
    system: str | Annotated[tuple[_Text, ...], Field(min_length=1)] = ""
    tools: tuple[_AnyTool, ...] = ()
    tool_choice: _ToolChoice | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    stop_sequences: tuple[Annotated[str, Field(pattern=r"\S")], ...] = ()
    thinking: _ThinkingConfig | None = None
    output_config: _OutputConfig | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    metadata: dict[str, Any] | None = None
    cache_control: _CacheControl | None = None
    stream: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise ValueError("tools: Tool names must be unique.")
        chosen = self.tool_choice.name if self.tool_choice is not None else None
        if self.tool_choice is not None and not names:
            raise ValueError("tool_choice: may only be specified while providing tools")
        if chosen is not None and chosen not in names:
            raise ValueError(f"Tool '{chosen}' not found in provided tools")
        marked = [self, *self.tools, *(self.system if isinstance(self.system, tuple) else ())]
        marked += [block for turn in self.messages for block in turn.blocks]
        marks = sum(getattr(each, "cache_control", None) is not None for each in marked)
        if marks > MARKS_MAX:
            raise ValueError(f"A maximum of {MARKS_MAX} blocks with cache_control may be provided. Found {marks}.")
        _check_turns(self.messages)
        _check_server_calls(self.messages, names)
        self._check_thinking()
        return self

    def _check_thinking(self) -> None:
        thinking = self.thinking
        if thinking is None or thinking.type == "disabled":
            return
        if self.temperature not in (None, 1):
            raise ValueError("`temperature` may only be set to 1 when thinking is enabled")
        if self.tool_choice is not None and self.tool_choice.type in ("any", "tool"):
            raise ValueError("Thinking may not be enabled when tool_choice forces tool use.")
        if thinking.budget_tokens is None:
            return
        if thinking.budget_tokens >= self.max_tokens:
            raise ValueError("`max_tokens` must be greater than `thinking.budget_tokens`")
        first = _first_of_loop(self.messages)
        if first is not None and first.begins_with not in ("thinking", "redacted_thinking"):
            raise ValueError(
                f"Expected `thinking` or `redacted_thinking`, but found `{first.begins_with}`. When `thinking` is "
                "enabled, a final `assistant` message must start with a thinking block (preceding the lastmost set of "
                "`tool_use` and `tool_result` blocks)"
            )


def _first_of_loop(turns: Sequence[_Turn]) -> _Turn | None:
    """Return the first answer of the tool loop that goes on with this request; none where none does."""
    first: _Turn | None = None
    for place in range(len(turns) - 1, 0, -2):
        if not turns[place].results:
            break
        first = turns[place - 1]
    return first


def _check_turns(turns: Sequence[_Turn]) -> None:
    if turns[0].role != "user":
        raise ValueError('messages: first message must use the "user" role')
    if turns[-1].role == "assistant":
        raise ValueError("This model does not support assistant message prefill. Use a user message last.")
    open_ids = list[str]()
    for place, turn in enumerate(turns):
        if missing := [each for each in open_ids if each not in turn.results]:
            raise ValueError(
                f"messages.{place - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block"
            )
        if unknown := [each for each in turn.results if each not in open_ids]:
            raise ValueError(
                f"messages.{place}.content: unexpected `tool_use_id` found in `tool_result` blocks: {unknown[0]}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        open_ids = turn.calls
        if len(set(turn.results)) < len(turn.results) or len(set(open_ids)) < len(open_ids):
            raise ValueError(f"messages.{place}: each id must be unique")


def read_request(content_type: str, raw: bytes) -> dict[str, Any] | Refusal:
    """Return the request's body, or the refusal that the API would send."""
    if content_type != "application/json":
        return Refusal(f"Unsupported content type: '{content_type}'; send application/json.")
    try:
        body = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as problem:
        return Refusal(f"The request body is not valid JSON: {problem}")
    if not isinstance(body, dict):
        return Refusal("The request body must be a JSON object.")
    try:
        _Request.model_validate_json(raw)
    except ValidationError as problem:
        errors = problem.errors(include_url=False, include_input=False)
        error = max(reversed(errors), key=lambda error: len(error["loc"]))  # the deepest is of the form that was meant
        path = ".".join(str(part) for part in error["loc"] if not str(part).startswith(("tuple[", "constrained")))
        message = error["msg"].removeprefix("Value error, ")
        return Refusal(f"{path}: {message}" if path else message)
    return cast("dict[str, Any]", body)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


ANTHROPIC_WIRE: Final = WireFormat(
    path="/v1/messages",
    base_path="",
    headers_problem=headers_problem,
    read_request=lambda content_type, raw, _: read_request(content_type, raw),
    answer_pieces=answer_pieces,
    error_body=error_body,
    model_list=model_list,
)
"""Messages."""
