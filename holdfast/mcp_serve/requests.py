"""What callers of the server may ask: the arguments of its tools, and the run that a request stands for. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4, uuid5

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import to_json

from holdfast.client.validation import check_question
from holdfast.core.agent.user_metadata import checked_metadata
from holdfast.core.base.bounds import REASON_CHARS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.validation_errors import problems_text
from holdfast.mcp.tools import KEY_META

MARK: Final = "mcp_serve"
"""The key in a run's metadata that says that such a server began it; its value is the request's `mark`."""

KEY_CHARS_MAX: Final = 256
"""The longest idempotency key: several UUIDs."""

WAIT_SECONDS_MAX: Final = 3_600.0
"""The longest that a caller can ask to wait; one that names no time waits for the run's end."""

_KEY: Final = re.compile(rf"[\x20-\x7e]{{1,{KEY_CHARS_MAX}}}")

_NAMESPACE: Final = UUID("5d0c0c52-5f5b-4f0e-8d5a-6f1f3b1b7a10")
"""What the ids of runs with an idempotency key are derived from. With another one, a repeated request is a new run."""

_STRICT: Final = ConfigDict(extra="forbid", frozen=True)

ModelT = TypeVar("ModelT", bound=BaseModel)


class AgentArguments(BaseModel):
    """The arguments of an agent's tool."""

    model_config = _STRICT
    message: str = Field(description="What the agent is to do.")
    metadata: dict[str, JsonValue] = Field(
        default_factory=dict[str, JsonValue],
        description="Facts for the agent's tools that its model does not see. No secrets.",
    )
    wait_seconds: float | None = Field(
        default=None,
        ge=0,
        le=WAIT_SECONDS_MAX,
        description="After so long the run's id is returned instead of the answer, and the run goes on; "
        "`get_run` waits for it.",
    )


class GetRunArguments(BaseModel):
    """The arguments of `get_run`."""

    model_config = _STRICT
    run_id: str = Field(description="The id of a run that an agent's tool returned.")
    wait_seconds: float = Field(
        default=0, ge=0, le=WAIT_SECONDS_MAX, description="How long to wait for the run's end; 0 only looks."
    )


class StopRunArguments(BaseModel):
    """The arguments of `stop_run`."""

    model_config = _STRICT
    run_id: str = Field(description="The id of a run that an agent's tool returned.")
    reason: str = Field(default="", max_length=REASON_CHARS_MAX, description="Why; it is kept with the run.")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run that a caller asks for. `run_id` is a function of agent and idempotency key, where there is a key."""

    agent: str
    message: str
    metadata: Mapping[str, JsonValue]
    run_id: str

    @property
    def mark(self) -> str:
        """The agent's name, and what tells this request from another one with the same key."""
        arguments = to_json([self.message, self.metadata], inf_nan_mode="constants")
        return f"{self.agent}:{sha256(arguments).hexdigest()}"


def checked_arguments(kind: type[ModelT], arguments: Mapping[str, Any] | None) -> ModelT:
    """Return a call's arguments. Raises InvalidInput with every problem in a line."""
    try:
        return kind.model_validate(arguments or {})
    except ValidationError as error:
        raise InvalidInput(f"the arguments are not valid: {problems_text(error)}") from None


def run_request(agent: str, arguments: AgentArguments, meta: Mapping[str, Any] | None) -> RunRequest:
    """Return the run that a call stands for; `meta` is the request's `_meta`. Raises InvalidInput."""
    if MARK in arguments.metadata:
        raise InvalidInput(f"the metadata key {MARK!r} is the server's own; choose another")
    message, metadata = check_question(arguments.message, "message"), checked_metadata(arguments.metadata)
    key: object = None if meta is None else meta.get(KEY_META)
    if key is None:
        return RunRequest(agent, message, metadata, str(uuid4()))
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        raise InvalidInput(f"{KEY_META} in `_meta` must be a text of 1 to {KEY_CHARS_MAX} ASCII characters")
    return RunRequest(agent, message, metadata, str(uuid5(_NAMESPACE, f"{agent}\n{key}")))
