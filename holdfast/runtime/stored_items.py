"""Puts large provider items into the record store and back into the messages of one model call, for every driver."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from pydantic import TypeAdapter

from holdfast.core.base.call_digest import SHORT_CHARS
from holdfast.core.base.errors import ModelFailure, ObjectDamaged, ObjectMissing
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.provider_items import (
    ITEMS_BYTES_MAX,
    STORED_ITEMS_BYTES_MAX,
    ProviderItem,
    ProviderItems,
    items_size,
)
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.wire.record_store import AttachmentStore

LOGGER: Final = logging.getLogger("holdfast.model")

ITEMS_TOO_LARGE: Final = "ItemsTooLarge"
"""Why a run fails whose provider sends more reasoning with one answer than is kept."""

_ITEMS: Final = TypeAdapter[tuple[ProviderItem, ...]](ProviderItems)


async def with_items_stored(response: InferenceResponse, store: AttachmentStore | None) -> InferenceResponse:
    """Return the answer with one reference in place of items that take more than ITEMS_BYTES_MAX.

    Without a store they stay. Raises StorageFailed, and ModelFailure, which is final, beyond STORED_ITEMS_BYTES_MAX.
    """
    size = items_size(response.items)
    if size <= ITEMS_BYTES_MAX:
        return response
    if size > STORED_ITEMS_BYTES_MAX:
        text = (
            f"the provider's own items of one answer take {size:,} bytes, at most {STORED_ITEMS_BYTES_MAX:,} are kept"
        )
        remedy = "have the model reason less, or use a model that needs none of it back"
        raise ModelFailure(f"{text}; {remedy}", kind=ITEMS_TOO_LARGE, usage=response.usage)
    if store is None:
        return response
    digest = await store.write_attachment(_ITEMS.dump_json(response.items))
    first, sent = response.items[0], sum(item.sent_bytes for item in response.items)
    stored = ProviderItem(route=first.route, api=first.api, model=first.model, body="", digest=digest, size=sent)
    return replace(response, items=(stored,))


async def with_stored_items(messages: Sequence[Message], store: AttachmentStore | None) -> Sequence[Message]:
    """Return the messages with their own items in place of references. Raises StorageFailed.

    Items that the store does not have, or has damaged, are left out, and the log says so: their provider may refuse
    the request, or go on without them.
    """
    places = [at for at, message in enumerate(messages) if any(item.digest for item in message.items)]
    if not places:
        return messages
    read = await asyncio.gather(*(_read(messages[at], store) for at in places))
    resolved = list(messages)
    for at, items in zip(places, read, strict=True):
        resolved[at] = replace(messages[at], items=items)
    return resolved


async def _read(message: Message, store: AttachmentStore | None) -> tuple[ProviderItem, ...]:
    items: list[ProviderItem] = []
    for item in message.items:
        items += (item,) if item.digest is None else await _stored(item.digest, store)
    return tuple(items)


async def _stored(digest: str, store: AttachmentStore | None) -> tuple[ProviderItem, ...]:
    problem = "this process has no record store"
    if store is not None:
        try:
            return _ITEMS.validate_json(await store.read_attachment(digest))
        except (ObjectMissing, ObjectDamaged) as error:
            problem = str(error)
    LOGGER.warning("an answer's provider items %s are left out: %s", digest[:SHORT_CHARS], problem)
    return ()
