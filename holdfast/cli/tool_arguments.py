"""The arguments of a tool call as a person types them."""

from __future__ import annotations

import json
from typing import Any, cast

from holdfast.core.base.json_parsing import named_once


def typed_arguments(text: str) -> dict[str, Any]:
    """Return the JSON object that `text` holds. Raises ValueError, which says what is wrong with it."""
    try:
        arguments: object = json.loads(text, object_pairs_hook=named_once)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"that is not valid JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise ValueError('that is not a JSON object; give every argument, as in {"amount": 5}')  # noqa: TRY004
    return cast("dict[str, Any]", arguments)
