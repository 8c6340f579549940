"""The items of a conversation in the API's terms, and the provider's own among them. Sends nothing.

An answer that has only a text and calls behind it needs no items of the provider. Any other keeps all its items in
order: the provider's own verbatim, without their ids (nothing is stored there that an id could name), and a
placeholder for each text, `{"text": characters}`, and each call, `{"call": its place among the calls}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, assert_never, cast

from holdfast.core.conversation.attachments import PDF_TYPE, kind_of, not_shown, why_left_out
from holdfast.core.conversation.messages import (
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    StoredFilePart,
    StoredImagePart,
    TextPart,
    ToolCall,
)
from holdfast.core.conversation.provider_items import ITEMS_MAX, ProviderItem
from holdfast.models.answer_errors import UnusableAnswer
from holdfast.models.lenient_values import item_bodies, json_of
from holdfast.runtime.files.file_types import framed_text, pdf_name

API: Final = "openai_responses"
"""The name of the API in provider items."""

Item = dict[str, Any]


def kept_items(order: Sequence[Item], *, route: str, model: str) -> tuple[ProviderItem, ...]:
    """Return what goes back with an answer whose items and placeholders are `order`; nothing where those say nothing.

    Raises UnusableAnswer for more than ITEMS_MAX, and for one that JSON does not have.
    """
    if all(set(each) <= {"text", "call"} for each in order) and _is_plain(order):
        return ()
    if len(order) > ITEMS_MAX:
        raise UnusableAnswer(f"the answer has {len(order):,} items, at most {ITEMS_MAX} are kept")
    bodies = [json_of(each) for each in order]
    if None in bodies:
        raise UnusableAnswer("the answer has an item that is no JSON, which could not go back")
    return tuple(ProviderItem(route=route, api=API, model=model, body=body) for body in bodies if body is not None)


def own_item(item: dict[str, object]) -> Item:
    """Return an item of the provider as it goes back: without its id."""
    return {name: value for name, value in item.items() if name != "id"}


def input_items(messages: Sequence[Message], route: str) -> list[Item]:
    """Return the `input` of a request: the conversation, with the provider's own items where `route` made them."""
    return [item for message in messages for item in _items(message, route)]


def _items(message: Message, route: str) -> Iterator[Item]:
    match message.role:
        case "assistant":
            yield from _answer_items(message, route)
        case "tool":
            yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": _content(message.content)}
        case "system" | "user":
            yield {"role": message.role, "content": _content(message.content)}
        case _:
            assert_never(message.role)


def _answer_items(message: Message, route: str) -> list[Item]:
    """Return an answer of the model; a reasoning item with nothing behind it is refused, so it is left out."""
    items, at = list[Item](), 0
    for each in _order(message, route):
        if "type" in each:
            items.append(each)
        elif "call" in each:
            place = cast("int", each["call"])
            items.append(_call(message.tool_calls[place]) | each.get("fields", {}))
        else:
            text = message.text[at : at + each["text"]]
            at += each["text"]
            items += [{"role": "assistant", "content": text, **each.get("fields", {})}] if text else []
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    return items or [{"role": "assistant", "content": ""}]


def _order(message: Message, route: str) -> list[Item]:
    """Return the items and placeholders of an answer; reasoning first where its text or calls were changed since."""
    order = [body for body in item_bodies(message.items, api=API, route=route) if _is_readable(body)]
    if order and _length(order) == len(message.text) and _calls(order) == [*range(len(message.tool_calls))]:
        return order
    own = [item for item in order if "type" in item]
    return [*own, {"text": len(message.text)}, *({"call": place} for place in range(len(message.tool_calls)))]


def _is_readable(body: Item) -> bool:
    """Return whether a body is an item of the provider or a placeholder."""
    return isinstance(body.get("type"), str) or any(type(body.get(name)) is int for name in ("text", "call"))


def _length(order: Sequence[Item]) -> int:
    return sum(cast("int", each["text"]) for each in order if "type" not in each and "text" in each)


def _calls(order: Sequence[Item]) -> list[int]:
    return [each["call"] for each in order if "type" not in each and "text" not in each]


def _is_plain(order: Sequence[Item]) -> bool:
    """Whether the order is what it would be without items: at most one text, then the calls."""
    return all("call" in each for each in order[1:])


def _content(content: Content) -> str | list[Item]:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: Part) -> Item:
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart():
            return {"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"}
        case FilePart():
            return _file(part)
        case StoredImagePart() | StoredFilePart():  # whoever calls a model without a store
            return {"type": "input_text", "text": part.attachment.line}
        case _:
            assert_never(part)


def _file(part: FilePart) -> Item:
    if part.media_type == PDF_TYPE:
        data = f"data:{PDF_TYPE};base64,{part.data}"
        return {"type": "input_file", "filename": pdf_name(part), "file_data": data}
    is_text = kind_of(part.media_type) == "text"
    text = framed_text(part) if is_text else not_shown(part.name, why_left_out("audio"))
    return {"type": "input_text", "text": text}


def _call(call: ToolCall) -> Item:
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.sent_arguments}
