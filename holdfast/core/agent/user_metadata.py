"""The metadata of a run: a JSON object for tools, hooks and compilers that the model never sees.

It becomes part of the agent's metadata. It may name the requester, but no secrets: histories hold it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from holdfast.core.base.bounds import NAME_CHARS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.json_values import ShallowMap
from holdfast.core.base.validation_errors import problem_text

RUN_METADATA_BYTES_MAX: Final = 16 * 1024
"""The most metadata that one run, or message to a session, brings, in bytes of JSON."""

RESERVED: Final = frozenset({"agent", "approval", "agent_id", "execution_id", "is_trace", "message_id", "step_id"})
"""The keys that Holdfast writes into the metadata of agents and messages."""

_ADAPTER: Final[TypeAdapter[Mapping[str, JsonValue]]] = TypeAdapter(ShallowMap)


def checked_metadata(value: object) -> Mapping[str, JsonValue]:
    """Return a run's metadata, checked; none counts as empty. Raises InvalidInput."""
    if value is None:
        return {}
    try:
        data = to_json(_ADAPTER.validate_python(value), inf_nan_mode="constants")
        metadata, size = _ADAPTER.validate_json(data), len(data)  # read back, what is no JSON shows itself
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"])) or "metadata"
        raise InvalidInput(f"the metadata is not a JSON object: {place}: {problem_text(problem)}") from None
    except PydanticSerializationError:
        raise InvalidInput("the metadata contains characters that are not valid Unicode; remove them") from None
    for name in metadata:
        if name in RESERVED:
            raise InvalidInput(f"the metadata key {name!r} is reserved by Holdfast; choose another")
        if not 1 <= len(name) <= NAME_CHARS_MAX:
            text = f"the metadata key {name[:NAME_CHARS_MAX]!r} has {len(name):,} characters"
            raise InvalidInput(f"{text}, it must have 1 to {NAME_CHARS_MAX}")
    if size > RUN_METADATA_BYTES_MAX:
        text = f"the metadata is {size:,} bytes of JSON, the limit is {RUN_METADATA_BYTES_MAX:,}"
        raise InvalidInput(f"{text}; store long values where a tool can read them, and put a reference here")
    return metadata
