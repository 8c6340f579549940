"""What a run is given about itself beside its question: a JSON object for tools, hooks and compilers, not the model.

It becomes part of the agent's metadata. It may hold whose request it is, but no secrets: histories hold it.
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
"""What we write ourselves, into metadata of agents and messages."""

_ADAPTER: Final[TypeAdapter[Mapping[str, JsonValue]]] = TypeAdapter(ShallowMap)


def checked_metadata(given: object) -> Mapping[str, JsonValue]:
    """Return metadata that a run can be given; none are empty ones. Raises InvalidInput."""
    if given is None:
        return {}
    try:
        data = to_json(_ADAPTER.validate_python(given), inf_nan_mode="constants")
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
            told = f"the metadata key {name[:NAME_CHARS_MAX]!r} has {len(name):,} characters"
            raise InvalidInput(f"{told}, it must have 1 to {NAME_CHARS_MAX}")
    if size > RUN_METADATA_BYTES_MAX:
        allowed = f"the metadata is {size:,} bytes of JSON, the limit is {RUN_METADATA_BYTES_MAX:,}"
        raise InvalidInput(f"{allowed}; store long values where a tool can read them, and put a reference here")
    return metadata
