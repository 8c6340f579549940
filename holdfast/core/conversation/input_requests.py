"""What the server of a tool asks a person for in the middle of a call, and the answers (docs/spec.md, 8.21).

The state that the server wants back with the answers is none of these: it is the driver's, and never shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Final, Literal, Self

from pydantic import AwareDatetime, Field, JsonValue, model_validator
from pydantic_core import to_json

from holdfast.core.base.bounds import SOURCE_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, is_none
from holdfast.core.base.json_values import JsonMap
from holdfast.core.conversation.input_forms import FormField, content_problem, form_fields

INPUT_ROUNDS_MAX: Final = 10
"""How often a server may ask in one call: as often as the protocol's SDKs allow."""

INPUT_REQUESTS_MAX: Final = 8
"""The most that a server may ask for at once."""

INPUT_REQUESTS_BYTES_MAX: Final = 32_768
"""The most that it may ask for at once, in bytes of JSON: a state has it while the call waits, and so has an event."""

INPUT_CONTENT_BYTES_MAX: Final = 8_192
"""The largest answer, in bytes of JSON: the next call of the tool carries those to all requests and the state."""

MESSAGE_CHARS_MAX: Final = 4_000
"""The longest message to a person."""

URL_CHARS_MAX: Final = 2_000
"""The longest link."""

KEY_CHARS_MAX: Final = 200
"""The longest key by which a server knows a request."""

InputAction = Literal["accept", "decline", "cancel"]
"""A person fills the form in or follows the link, refuses, or leaves without an answer."""


class InputRequest(Frozen):
    """One thing that a server asks for: with a `form`, a flat JSON Schema, or at a `url` that a person is to open.

    `key` is the server's name for it.
    """

    key: Annotated[str, Field(max_length=KEY_CHARS_MAX)]
    message: Annotated[str, Field(max_length=MESSAGE_CHARS_MAX)]
    form: JsonMap | None = Field(default=None, exclude_if=is_none)
    url: Annotated[str, Field(pattern=r"^https?://\S+$", max_length=URL_CHARS_MAX)] | None = Field(
        default=None, exclude_if=is_none
    )

    @model_validator(mode="after")
    def _has_one_mode(self) -> Self:
        if (self.form is None) is (self.url is None):
            raise ValueError("a request has a `form` or a `url`, and only one of them")
        if self.form is not None:
            form_fields(self.form)
        return self

    @property
    def fields(self) -> tuple[FormField, ...]:
        """The fields of the form, in order; none for a link."""
        return form_fields(self.form) if self.form is not None else ()

    def problem(self, answer: InputAnswer) -> str | None:
        """Return why `answer` does not answer this request, if so."""
        if answer.action != "accept":
            return None
        if self.form is None:
            return "a link takes no values; open it, then answer without any" if answer.content else None
        return content_problem(self.fields, answer.content or {})


class InputResponse(Frozen):
    """What the server gets for one request; `content` are the values of an accepted form."""

    action: InputAction
    content: JsonMap | None = None


class InputAnswer(Frozen):
    """A person's answer: `by` whom, and the `content` of an accepted form.

    `digest` is that of the request as the person saw it; with it, the answer counts for no other.
    """

    action: InputAction = "accept"
    content: JsonMap | None = None
    by: str = Field(default="", max_length=SOURCE_CHARS_MAX)
    digest: Digest | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.content is not None and self.action != "accept":
            raise ValueError(f"`{self.action}` takes no values; only `accept` does")
        if self.content is not None and (size := len(to_json(self.content))) > INPUT_CONTENT_BYTES_MAX:
            raise ValueError(f"the values are {size:,} bytes of JSON; at most {INPUT_CONTENT_BYTES_MAX:,} are taken")
        return self


class InputRecord(Frozen):
    """What became of a request: who answered it and how, without the values; `expired` if nobody did in time."""

    server: str
    message: str
    action: InputAction | Literal["expired"]
    by: str = ""
    at: AwareDatetime
    digest: Digest


class PendingInput(Frozen):
    """What a call waits for, or went on with: its `round`, the `requests` still open, and the `responses` so far."""

    server: str
    round: int = Field(ge=1, le=INPUT_ROUNDS_MAX)
    requests: tuple[InputRequest, ...] = Field(default=(), max_length=INPUT_REQUESTS_MAX)
    responses: Mapping[str, InputResponse] = Field(default_factory=dict[str, InputResponse])
    asked_at: AwareDatetime


def request_digest(call_digest: str, round_number: int, request: InputRequest) -> Digest:
    """Return the fingerprint of a request within its call: an answer is bound to it."""
    fields: dict[str, JsonValue] = {"call": call_digest, "round": round_number, "key": request.key}
    fields |= {"message": request.message, "form": dict(request.form) if request.form else None, "url": request.url}
    return sha256(to_json(fields)).hexdigest()
