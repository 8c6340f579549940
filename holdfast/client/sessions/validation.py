"""Validation of requests to a session, before anything reaches Temporal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, TypeVar

from pydantic import JsonValue, ValidationError
from pydantic_core import PydanticSerializationError

from holdfast.client.validation import check_question, check_size, check_tenant
from holdfast.core.agent.user_metadata import checked_metadata
from holdfast.core.base.bounds import MESSAGE_ID_CHARS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.attachments import Attachment
from holdfast.core.wire.session_contracts import SEND_UPDATE, SessionMessage, SessionSettings, WhileRunning

FrozenT = TypeVar("FrozenT", bound=Frozen)

QUERY_BYTES_MAX: Final = 8 * 1024
"""The longest list filter."""

PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What stands in a history as it is; anything else by its digest."""


def checked_message(
    text: str,
    message_id: str,
    while_running: WhileRunning | None,
    metadata: Mapping[str, JsonValue] | None = None,
    attachments: tuple[Attachment, ...] = (),
) -> SessionMessage:
    """Return what is to be said if it can be: some text, an id that can be shown, within the limits."""
    shown_id = repr(message_id[:80])
    if not message_id or len(message_id) > MESSAGE_ID_CHARS_MAX:
        size = f"the message id {shown_id} has {len(message_id):,} characters"
        raise InvalidInput(f"{size}, it must have 1 to {MESSAGE_ID_CHARS_MAX}; use a UUID")
    if not message_id.isprintable():
        raise InvalidInput(f"the message id {shown_id} has unprintable characters; use a UUID")
    fields = {
        "message_id": message_id,
        "text": check_question(text, "message"),
        "while_running": while_running,
        "metadata": checked_metadata(metadata),
        "attachments": attachments,
    }
    return check_size(checked(SessionMessage, "message", fields), "the message takes")


def update_id(message_id: str) -> str:
    """Return the id of the update that sends this message: the server takes each once."""
    plain = PLAIN.fullmatch(message_id)
    name = message_id if plain else f"sha256:{sha256(message_id.encode()).hexdigest()}"
    return f"{SEND_UPDATE}:{name}"


def check_settings(**values: Any) -> SessionSettings:  # noqa: ANN401  # whatever a caller gave, checked here
    """Return how a session is to behave, if it can."""
    settings = checked(SessionSettings, "session", values)
    check_tenant(settings.tenant)
    return settings


def check_query(query: str) -> str:
    """Return a list filter that can be sent; whether the server understands it, it says itself."""
    try:
        size = len(query.encode())
    except UnicodeEncodeError:
        raise InvalidInput("the query holds characters that are not valid Unicode text; remove them") from None
    if size > QUERY_BYTES_MAX:
        raise InvalidInput(f"the query has {size:,} bytes, at most {QUERY_BYTES_MAX:,} are allowed; shorten it")
    return query


def checked(kind: type[FrozenT], what: str, fields: dict[str, Any]) -> FrozenT:
    """Return a value of this kind, small enough and valid Unicode; `what` it is for, errors say."""
    try:
        return check_size(kind(**fields), f"the {what} takes")
    except ValidationError as error:
        raise InvalidInput(f"the {what} is not valid: {problems_text(error)}") from None
    except PydanticSerializationError:
        raise InvalidInput(f"the {what} holds characters that are not valid Unicode text; remove them") from None
