"""What is said in a conversation: messages, tool calls and the store that keeps them. No model, no execution."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field, JsonValue, ValidationError

from holdfast.core.frozen import Frozen, replace
from holdfast.core.limits import CALL_ID_CHARS_MAX, MALFORMED_CHARS_MAX, NAME_CHARS_MAX
from holdfast.core.log import Log
from holdfast.core.parsing import read_json

Role = Literal["system", "user", "assistant", "tool"]

SECTIONS: Final = ("summary", "buffer", "messages")
"""The sections of a new store in the order the model sees them (SPEC section 7)."""

DEFAULT_SECTION: Final = "messages"
"""Where the loop appends what is said."""


NAME_PATTERN: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS_MAX}}}")
"""A name that providers accept for a function."""

ILLEGAL_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


class ToolCall(Frozen):
    """One call the model asked for.

    `arguments` is always a JSON object. When the model sent something else, it is empty and `malformed` says
    what was wrong: broken arguments are never put back into a conversation (some servers then fail for ever).
    """

    id: str
    name: str
    arguments: Mapping[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    malformed: str | None = None

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON, the form they travel in."""
        return json.dumps(self.arguments, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def parse(cls, call_id: str, name: str, text: str) -> ToolCall:
        """Read a call from the provider's words; never raises.

        A name or id that no server would take back is replaced, and the call marked malformed.
        """
        if len(call_id) > CALL_ID_CHARS_MAX or not call_id.isprintable():
            call_id = ""  # the loop gives it one of ours
        if NAME_PATTERN.fullmatch(name) is None:
            return cls(
                id=call_id,
                name=ILLEGAL_IN_NAME.sub("_", name)[:NAME_CHARS_MAX] or "unnamed",
                malformed=f"{name[:NAME_CHARS_MAX]!r} is not a tool name"[:MALFORMED_CHARS_MAX],
            )
        try:
            return cls.model_validate({"id": call_id, "name": name, "arguments": read_json(text or "{}")})
        except ValueError as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            told = f"the arguments are not a usable JSON object: {reason}".encode("utf-8", "replace").decode()
            return cls(id=call_id, name=name, malformed=told[:MALFORMED_CHARS_MAX])


class Message(Frozen):
    """One message: who said it, its text, the calls it asked for or the call it answers.

    `metadata` is ours (which step and execution it belongs to) and never reaches the model.
    """

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    metadata: Mapping[str, JsonValue] = Field(default_factory=dict[str, JsonValue])

    def tagged(self, **tags: JsonValue) -> Message:
        """Return the message with `tags` added to its metadata."""
        return replace(self, metadata={**self.metadata, **tags})

    def for_model(self) -> Message:
        """Return the message as the model sees it: without metadata."""
        return replace(self, metadata={}) if self.metadata else self


class Section(Frozen):
    """A named run of messages."""

    name: str
    messages: Log[Message] = Field(default_factory=Log[Message])


class MessageStore(Frozen):
    """Ordered sections with unique names; `messages` is where the conversation goes on."""

    sections: tuple[Section, ...] = tuple(Section(name=name) for name in SECTIONS)

    @property
    def messages(self) -> Log[Message]:
        """The default section, as it is."""
        return self.section(DEFAULT_SECTION).messages

    def section(self, name: str) -> Section:
        """Return the section called `name`; KeyError when there is none."""
        for section in self.sections:
            if section.name == name:
                return section
        raise KeyError(name)

    def extended(self, *messages: Message) -> MessageStore:
        """Return the store with `messages` at the end of the default section."""
        return replace(
            self,
            sections=tuple(
                replace(section, messages=section.messages.extend(messages))
                if section.name == DEFAULT_SECTION
                else section
                for section in self.sections
            ),
        )
