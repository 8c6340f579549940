"""`ProviderItem`: what a provider's answer holds that only this provider understands, such as signed reasoning."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from holdfast.core.base.bounds import WORD_CHARS_MAX
from holdfast.core.base.frozen import Frozen

ITEMS_MAX: Final = 256
"""The most items of one answer."""

ITEMS_BYTES_MAX: Final = 48 * 1024
"""The most that the items of one answer take as JSON: with its text, reasoning and arguments they fit one payload."""


class ProviderItem(Frozen):
    """An opaque part of an answer. It goes back verbatim, in its place, to the same route and API and to no other.

    `body` is JSON in the API's own form. The items of an answer stand in its order; where that order matters, an API's
    client writes items of its own for the answer's text and tool calls, which name them without repeating them.
    """

    route: Annotated[str, Field(max_length=WORD_CHARS_MAX)]
    api: Annotated[str, Field(max_length=WORD_CHARS_MAX)]
    model: Annotated[str, Field(max_length=WORD_CHARS_MAX)] = ""
    body: str


ProviderItems = Annotated[tuple[ProviderItem, ...], Field(max_length=ITEMS_MAX)]
