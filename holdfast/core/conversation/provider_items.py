"""`ProviderItem`: what a provider's answer holds that only this provider understands, such as signed reasoning."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from holdfast.core.base.bounds import WORD_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, canonical, is_none
from holdfast.core.base.safe_text import json_size

ITEMS_MAX: Final = 256
"""The most items of one answer."""

ITEMS_BYTES_MAX: Final = 20 * 1024
"""The most that the items of one answer take in a message, as JSON: with its text, reasoning and calls they fit one
payload. Larger ones go into the record store."""

STORED_ITEMS_BYTES_MAX: Final = 8 * 1024 * 1024
"""The most that the items of one answer take there: as much as an answer may have."""


class ProviderItem(Frozen):
    """An opaque part of an answer. It goes back verbatim, in its place, to the same route and API and to no other.

    `body` is JSON in the API's own form. The items of an answer stand in its order; where that order matters, an API's
    client writes items of its own for the answer's text and tool calls, which name them without repeating them.

    One with a `digest` has no body: it stands for all items of its answer, which the record store has as a JSON list.
    `size` is then how many bytes their bodies take as JSON.
    """

    route: Annotated[str, Field(max_length=WORD_CHARS_MAX)]
    api: Annotated[str, Field(max_length=WORD_CHARS_MAX)]
    model: Annotated[str, Field(max_length=WORD_CHARS_MAX)] = ""
    body: str
    digest: Digest | None = Field(default=None, exclude_if=is_none)
    size: int = Field(default=0, ge=0, exclude_if=operator.not_)

    @model_validator(mode="after")
    def _is_here_or_stored(self) -> Self:
        if self.digest is not None and self.body:
            raise ValueError("an item that the record store has is no part of the message; leave out `body`")
        return self

    @property
    def sent_bytes(self) -> int:
        """How many bytes the body takes in a request, as JSON, wherever it is."""
        return json_size(self.body) if self.digest is None else self.size


ProviderItems = Annotated[tuple[ProviderItem, ...], Field(max_length=ITEMS_MAX)]


def items_size(items: Iterable[ProviderItem]) -> int:
    """Return how many bytes the items take in a message, as JSON."""
    return sum(len(canonical(item)) + 1 for item in items)
