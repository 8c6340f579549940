"""Tool calls as text: blocks at the end of an answer, written and read. Runs nothing and trusts nothing it reads.

    I look it up.
    <tool_call>
    {"name": "weather", "arguments": {"city": "Rome"}}
    </tool_call>

The form is the one that most small models have learned (Hermes, Qwen). It is read strictly: what is not exactly such
blocks, with nothing behind them, is no call, and whoever reads it says what was wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, cast

from holdfast.core.base.json_values import JsonMap
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.messages import ToolCall
from holdfast.models.prompted.answer_prompt import FENCE, unfenced
from holdfast.models.requested_calls import RequestedCall

CALL: Final = "<tool_call>"
CALL_END: Final = "</tool_call>"
RESULT: Final = "<tool_result"
RESULT_END: Final = "</tool_result>"

NAME_SHOWN_CHARS_MAX: Final = 80
"""How much of a name is repeated in what a model is told."""

_ATTEMPT: Final = re.compile(
    r"<tool_call\b[^<>\n]{0,200}>(?=\s*[{\[])"
    r"|(?<![^\n])[ \t]{0,8}</?(?:tool_call\b[^<>\n]{0,200}>|tool_result\b)"
    r"|</tool_call\s{0,8}>\s*\Z",
    re.IGNORECASE,
)
"""What is meant as a call or shown as a result, well written or not; a tag within a sentence is none."""

_TAG: Final = re.compile(r"<(?=\s{0,8}/?\s{0,8}tool_(?:call|result)\b)", re.IGNORECASE)
"""A tag of the form, or what a careless reader could take for one."""

_FENCE: Final = re.compile(r"[ \t]{0,8}(`{3,}|~{3,})(.*)")
"""A line that opens or closes a code fence: its marks, and what stands behind them."""

_THOUGHT: Final = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
"""Reasoning that a server has left in the text: what it says of calls is no call."""

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
"""What JSON allows between its parts."""

_VALUE: Final = json.JSONDecoder()


class AnswerText(NamedTuple):
    """An answer's words and the calls behind them; with a `problem` it cannot be used, and none of its calls runs."""

    words: str
    calls: tuple[RequestedCall, ...] = ()
    problem: str = ""


class _Malformed(Exception):
    """A block that is no call, with what to tell the model."""


def call_blocks(calls: Iterable[ToolCall]) -> str:
    """Return calls as the model writes them."""
    return "\n".join(
        f'{CALL}\n{{"name": "{call.name}", "arguments": {call.sent_arguments}}}\n{CALL_END}' for call in calls
    )


def result_block(name: str, text: str) -> str:
    """Return a tool's result as the model reads it."""
    return f'{RESULT} name="{name}">\n{without_tags(text)}\n{RESULT_END}'


def without_tags(text: str) -> str:
    """Return a foreign text with `[` for the `<` of tags of this form: a model must not find them ready to repeat."""
    return _TAG.sub("[", text)


def read_blocks(text: str, tools: Iterable[str], *, several: bool = True) -> AnswerText:
    """Return the words and the calls of an answer; `tools` are the names offered, `several` allows more than one call.

    Results that the model made up behind its calls are dropped: the real ones come.
    """
    thought = _THOUGHT.match(text)
    begun = thought.end() if thought else 0
    attempt = _ATTEMPT.search(text, begun)
    if attempt is None:
        bare = _is_bare_call(text, tools)
        return AnswerText(text, (), f"a tool call stands between {CALL} and {CALL_END}" if bare else "")
    words = text[: attempt.start()]
    try:
        calls = _calls(text, attempt.start(), in_fence=_in_fence(text[begun : attempt.start()]))
        if not several and len(calls) > 1:
            raise _Malformed(f"it has {len(calls)} tool calls; make one at a time")  # noqa: TRY301  # told as the others
    except _Malformed as malformed:
        return AnswerText(words.rstrip(), (), str(malformed))
    return AnswerText(words.rstrip(), tuple(calls))


def _calls(text: str, start: int, *, in_fence: bool) -> list[RequestedCall]:
    """Return the calls from `start`, where a code fence may be open, to the end of the text. Raises _Malformed."""
    at, calls = _behind_blanks(text, start), list[RequestedCall]()
    if text[at : at + len(RESULT)].lower() == RESULT:
        raise _Malformed("results come from tools alone; call one, or answer in words of your own")
    if not text.startswith((CALL, "</"), at):
        raise _Malformed(f"a tool call begins with {CALL}, in these letters and with nothing else in the tag")
    if text.startswith("</", at):
        raise _Malformed(f"there is {CALL_END} without {CALL} before it")
    if text[text.rfind("\n", 0, start) + 1 : start].strip():
        raise _Malformed(f"{CALL} must begin a line")
    if in_fence:
        raise _Malformed(f"a tool call in a code fence ({FENCE}) does not run; write it without a fence")
    while at < len(text) and not text.startswith(RESULT, at):
        if not text.startswith(CALL, at):
            raise _Malformed(f"nothing may follow a tool call but another one; end your answer with {CALL_END}")
        call, end = _call(text, _behind_blanks(text, at + len(CALL)))
        if not text.startswith(CALL_END, end):
            raise _Malformed(f"behind the JSON of a tool call there must be {CALL_END}")
        calls.append(call)
        at = _behind_blanks(text, end + len(CALL_END))
    return calls


def _in_fence(text: str) -> bool:
    """Return whether a code fence is open at the end of the text: a longer one may have others in it."""
    opened = ""
    for line in text.split("\n"):
        if (fence := _FENCE.match(line)) is None:
            continue
        marks, rest = fence.groups()
        if not opened:
            # a line such as ```x``` is no fence
            opened = "" if marks[0] in rest and marks[0] == "`" else marks
        elif marks.startswith(opened) and not rest.strip():
            opened = ""
    return bool(opened)


def _call(text: str, at: int) -> tuple[RequestedCall, int]:
    """Return the call whose JSON object begins at `at`, its arguments as they are written, and the place behind it."""
    fields: dict[str, str] = {}
    at = _behind(text, at, "{")
    while True:
        spelled, at = _value(text, at)
        key = json.loads(spelled)
        if key not in ("name", "arguments") or key in fields:
            shown = clamped(str(key), NAME_SHOWN_CHARS_MAX)
            raise _Malformed(f'a tool call is {{"name": ..., "arguments": {{...}}}}, without {shown!r}')
        fields[key], at = _value(text, _behind(text, at, ":"))
        if not text.startswith(",", at):
            break
        at = _behind(text, at, ",")
    at = _behind(text, at, "}")
    name: object = json.loads(fields.get("name", "null"))
    if not isinstance(name, str) or not name:
        raise _Malformed('a tool call needs the "name" of a tool, a text')
    return RequestedCall("", name, fields.get("arguments", "")), at


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the text of the JSON value that begins at `at`, and the place of what follows it."""
    try:
        _, end = _VALUE.raw_decode(text, at)
    except (ValueError, RecursionError):
        raise _Malformed("the JSON of a tool call is broken or not complete") from None
    return text[at:end], _behind_blanks(text, end)


def _behind(text: str, at: int, mark: str) -> int:
    if not text.startswith(mark, at):
        raise _Malformed(f"the JSON of a tool call is broken: {mark!r} is missing")
    return _behind_blanks(text, at + 1)


def _behind_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return at if blanks is None else blanks.end()


def _is_bare_call(text: str, tools: Iterable[str]) -> bool:
    """Return whether all of the text is the JSON of calls, without tags; Llama's models say `parameters`."""
    bare = unfenced(text).strip()
    if not bare.startswith(("{", "[")):
        return False
    try:
        value: object = json.loads(bare)
    except (ValueError, RecursionError):
        return False
    calls = cast("list[object]", value) if isinstance(value, list) else [value]
    names = set(tools)
    return bool(calls) and all(isinstance(each, dict) and _names_tool(cast("JsonMap", each), names) for each in calls)


def _names_tool(call: JsonMap, tools: Collection[str]) -> bool:
    """Return whether an object has the fields of a call, and the name of one of the tools."""
    keys, name = set(call), call.get("name")
    return keys in ({"name", "arguments"}, {"name", "parameters"}) and isinstance(name, str) and name in tools
