"""Messages, tool calls and `MessageStore`, which holds a conversation. No model, no execution.

Every provider accepts our conversations: each tool call is followed by exactly one result (`pairing_problem`). Loading
checks that; the loop keeps the rule itself and appends unchecked.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal, Self, assert_never

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from holdfast.core.base.append_list import AppendList
from holdfast.core.base.bounds import (
    ARGUMENTS_BYTES_MAX,
    CALL_ID_CHARS_MAX,
    CALL_ID_KEPT_CHARS_MAX,
    CALLS_KEPT_MAX,
    MALFORMED_CHARS_MAX,
    NAME_CHARS_MAX,
)
from holdfast.core.base.call_digest import call_digest
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import Frozen, is_empty, is_none, replace
from holdfast.core.base.json_form import JsonForm
from holdfast.core.base.json_parsing import named_once, read_json
from holdfast.core.base.json_values import JsonMap
from holdfast.core.base.names import Name
from holdfast.core.base.safe_text import json_size
from holdfast.core.conversation.attachments import Attachment, FileName, MediaType, kind_of
from holdfast.core.conversation.provider_items import ProviderItems

MESSAGE_BYTES_MAX: Final = 256 * 1024
"""The largest content of one message, in UTF-8 bytes: what one payload holds."""

SECTIONS_MAX: Final = 64
"""The most sections of one message store."""

PARTS_MAX: Final = 64
"""The most parts (texts, pictures and files) of one message."""

Role = Literal["system", "user", "assistant", "tool"]

SUMMARY_SECTION: Final = "summary"
BUFFER_SECTION: Final = "buffer"
DEFAULT_SECTION: Final = "messages"
"""The section to which the loop appends."""

SECTIONS: Final = (SUMMARY_SECTION, BUFFER_SECTION, DEFAULT_SECTION)
"""The sections of a new store in the order the model sees them (docs/spec.md, section 7)."""

FILTERED: Final = "content_filter"
"""The finish reason of an answer that its provider has withheld, or broke off for what it says."""

CUT_OFF: Final = ("length", FILTERED)
"""The finish reasons of answers that were cut off."""

NAME_PATTERN: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS_MAX}}}")
"""A name that providers accept for a function."""

ILLEGAL_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


class ToolCall(Frozen):
    """One call the model asked for.

    `arguments` is always a JSON object. When the model sent something else, it is empty and `malformed` says
    what was wrong: broken arguments are never put back into a conversation (some servers then fail for ever).

    `raw_arguments` is the model's own text of them, where it is spelled otherwise than `arguments_text`. Only calls as
    the model requested them have it; a call that runs, or has run, does not.
    """

    id: str
    name: str
    arguments: JsonMap = Field(default_factory=dict[str, JsonValue])
    malformed: str | None = None
    raw_arguments: str | None = Field(default=None, exclude_if=is_none)

    @property
    def digest(self) -> str:
        """The fingerprint of name and arguments that a person's decision about the call is bound to."""
        return call_digest(self.name, self.arguments)

    @property
    def arguments_text(self) -> str:
        """The arguments as compact JSON: our own spelling."""
        return _compact(self.arguments)

    @property
    def sent_arguments(self) -> str:
        """The text that the model sees of its arguments: its own, while that still spells them, else ours.

        A provider's prompt cache begins anew behind the first byte that differs.
        """
        own, ours = self.raw_arguments, self.arguments_text
        return own if own is not None and _spells(own, ours) else ours

    @property
    def normalized(self) -> ToolCall:
        """The call without the model's own spelling."""
        return self if self.raw_arguments is None else replace(self, raw_arguments=None)

    @classmethod
    def parse(cls, call_id: str, name: str, text: str, *, cut: bool = False) -> ToolCall:
        """Parse a call from the provider's texts; never raises.

        A name or id that no server would accept is replaced, and the call marked malformed. `cut` is whether the
        answer was cut off in this call: then an empty text means missing arguments, otherwise no arguments.
        """
        if len(call_id) > CALL_ID_CHARS_MAX or not call_id.isprintable():
            call_id = ""  # the loop gives it one of ours
        if NAME_PATTERN.fullmatch(name) is None:
            return cls(
                id=call_id,
                name=ILLEGAL_IN_NAME.sub("_", name)[:NAME_CHARS_MAX] or "unnamed",
                malformed=f"{name[:NAME_CHARS_MAX]!r} is not a tool name"[:MALFORMED_CHARS_MAX],
            )
        if cut and not text.strip():
            return cls(id=call_id, name=name, malformed="the answer was cut off before the arguments; ask again")
        try:
            call = cls.model_validate({"id": call_id, "name": name, "arguments": read_json(text or "{}")})
        except ValueError as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            problem = f"the arguments are not a usable JSON object: {reason}".encode("utf-8", "replace").decode()
            return cls(id=call_id, name=name, malformed=problem[:MALFORMED_CHARS_MAX])
        if text in ("", call.arguments_text) or not _names_once(text):
            return call
        return replace(call, raw_arguments=text)


def _compact(arguments: object) -> str:
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def _spells(text: str, compact: str) -> bool:
    """Return whether `text` is JSON for the same arguments as `compact`, a number's type and the order included."""
    try:
        return _compact(read_json(text)) == compact
    except ValueError:
        return False


def _names_once(text: str) -> bool:
    """Return whether no object in `text`, which is JSON, names a field twice: readers differ in which one counts."""
    try:
        json.loads(text, object_pairs_hook=named_once)
    except ValueError:
        return False
    return True


def bounded_spelling(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return the calls of one answer, those from which on their own texts take too much in our spelling.

    The parsed arguments and the model's texts of them, as JSON, take at most ARGUMENTS_BYTES_MAX together.
    """
    if all(call.raw_arguments is None for call in calls):
        return tuple(calls)
    left = ARGUMENTS_BYTES_MAX - sum(len(call.arguments_text.encode()) for call in calls)
    bounded: list[ToolCall] = []
    for call in calls:
        left -= 0 if call.raw_arguments is None else json_size(call.raw_arguments)
        bounded.append(call if left >= 0 else call.normalized)
    return tuple(bounded)


class TextPart(Frozen):
    """Text as one part of a message."""

    type: Literal["text"] = "text"
    text: str


class ImagePart(Frozen):
    """A picture as one part of a message: a web address, or the picture itself as a `data:image/...` address.

    `detail` is how closely the model looks at it (and what it costs); none leaves that to the provider.
    """

    type: Literal["image_url"] = "image_url"
    url: str = Field(pattern=r"^(https?://|data:image/)")
    detail: Literal["auto", "low", "high"] | None = None


class StoredImagePart(Frozen):
    """A picture of a tool's result, which the record store has: it is read there for each model call."""

    type: Literal["stored_image"] = "stored_image"
    attachment: Attachment


class FilePart(Frozen):
    """A file itself as one part of a message: a PDF, a sound (wav, mp3) or a text. `data` is its bytes in base64.

    Models are handed these; a conversation that lasts has a `StoredFilePart`. `pages` is how many a PDF has, if known.
    """

    type: Literal["file"] = "file"
    name: FileName
    media_type: MediaType
    data: str = Field(min_length=1, pattern=r"^[A-Za-z0-9+/]+={0,2}$")
    pages: int | None = Field(default=None, ge=1, exclude_if=is_none)

    @model_validator(mode="after")
    def _is_of_a_kind(self) -> Self:
        if kind_of(self.media_type) in (None, "images"):
            raise ValueError(f"{self.media_type!r} is no PDF, sound or text; a picture is an `image_url` part")
        return self


class StoredFilePart(Frozen):
    """A file that the record store has, as one part of a message: it is read there for each model call.

    It is the user's, or that of a tool's result (`of_result`).
    """

    type: Literal["stored_file"] = "stored_file"
    attachment: Attachment
    of_result: bool = Field(default=False, exclude_if=operator.not_)


Part = TextPart | ImagePart | StoredImagePart | FilePart | StoredFilePart

StoredPart = StoredImagePart | StoredFilePart
"""A part whose bytes are in the record store."""

Parts = Annotated[tuple[Annotated[Part, Field(discriminator="type")], ...], Field(min_length=1, max_length=PARTS_MAX)]

Content = str | Parts
"""The content of a message: text, or texts, pictures and files in order."""


class Message(Frozen):
    """One message: its role, its content, the calls it requests or the call it answers.

    Only an assistant requests calls, only a tool answers one, and only a user sends pictures and files, as with
    providers.
    `metadata` is ours (which step and execution it belongs to) and never reaches the model. `items` are what its
    provider wants back with an answer of its own.
    """

    role: Role
    content: Content = ""
    tool_calls: tuple[ToolCall, ...] = Field(default=(), max_length=CALLS_KEPT_MAX)
    tool_call_id: Annotated[str, Field(min_length=1, max_length=CALL_ID_KEPT_CHARS_MAX)] | None = None
    items: ProviderItems = Field(default=(), exclude_if=is_empty)
    metadata: JsonMap = Field(default_factory=dict[str, JsonValue])

    @model_validator(mode="after")
    def _suits_its_role(self) -> Self:
        role, content = self.role, self.content
        if self.tool_calls and role != "assistant":
            raise ValueError(f"only an assistant asks for tool calls, not the role {role!r}; leave out `tool_calls`")
        if self.items and role != "assistant":
            raise ValueError(f"only an assistant's message has items of a provider, not one of the role {role!r}")
        if (self.tool_call_id is None) is (role == "tool"):
            raise ValueError(
                "a tool's message needs the `tool_call_id` that it answers"
                if role == "tool"
                else f"only a tool's message answers a call, not the role {role!r}; leave out `tool_call_id`"
            )
        # the usual case costs nothing: of an ASCII text Python knows the bytes without looking
        if not (isinstance(content, str) and content.isascii() and len(content) <= MESSAGE_BYTES_MAX):
            _check_content(role, content)
        return self

    @property
    def text(self) -> str:
        """The text alone, without pictures and files."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def shown_text(self) -> str:
        """The text as people read it: with a line for each file of the user's."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(filter(None, (self.text, *(each.line for each in self.files))))

    @property
    def files(self) -> tuple[Attachment, ...]:
        """The user's files that came with it; the record store has them."""
        parts = () if isinstance(self.content, str) else self.content
        return tuple(part.attachment for part in parts if isinstance(part, StoredFilePart) and not part.of_result)

    @property
    def shows_results(self) -> bool:
        """Whether it shows the model pictures and files that tools have given, and is nobody's question."""
        parts = () if isinstance(self.content, str) else self.content
        return self.metadata.get("is_trace") is True and any(isinstance(part, StoredPart) for part in parts)

    def tagged(self, **tags: JsonValue) -> Message:
        """Return the message with `tags` added to its metadata."""
        return replace(self, metadata={**self.metadata, **tags})

    def for_model(self) -> Message:
        """Return the message as the model sees it: without metadata."""
        return replace(self, metadata={}) if self.metadata else self


def _check_content(role: Role, content: Content) -> None:
    """Refuse content that no payload holds or no provider accepts."""
    if isinstance(content, tuple) and role != "user" and any(not isinstance(part, TextPart) for part in content):
        raise ValueError(f"only a user's message holds pictures and files, not one of the role {role!r}")
    texts = (content,) if isinstance(content, str) else tuple(_part_text(part) for part in content)
    try:
        size = sum(len(text.encode()) for text in texts)
    except UnicodeEncodeError:
        raise ValueError("the content holds characters that are not valid Unicode (lone surrogates)") from None
    if size > MESSAGE_BYTES_MAX:
        raise ValueError(f"the content has {size:,} bytes, at most {MESSAGE_BYTES_MAX:,} are allowed; shorten it")


def _part_text(part: Part) -> str:
    match part:
        case TextPart():
            return part.text
        case ImagePart():
            return part.url
        case StoredImagePart() | StoredFilePart():
            return part.attachment.name
        case FilePart():
            return part.data
        case _:
            assert_never(part)


def pairing_problem(messages: Iterable[Message]) -> str | None:
    """Return the first problem with the pairing of calls and answers in `messages`, with its place; else none.

    The answers to an assistant's calls follow it directly, one for each, in any order.
    """
    broken = _broken_pair(messages)
    return None if broken is None else f"message {broken[0]}: {broken[1]}"


def _broken_pair(messages: Iterable[Message]) -> tuple[int, str] | None:
    """Return the place of the first message that breaks the pairing, and why."""
    asked_at, open_calls = 0, set[str]()
    for place, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                return place, f"it answers the call {message.tool_call_id!r}, which no message before it requests"
            open_calls.remove(message.tool_call_id)
        elif open_calls:
            break
        elif message.tool_calls:
            asked_at, open_calls = place, {call.id for call in message.tool_calls}
            if len(open_calls) < len(message.tool_calls):
                return place, "two of its calls have the same id"
    if open_calls:
        return asked_at, f"its call {min(open_calls)!r} is not answered right behind it"
    return None


def _paired(messages: AppendList[Message]) -> AppendList[Message]:
    broken = _broken_pair(messages)
    if broken is None:
        return messages
    place, problem = broken
    wrong = PydanticCustomError("pairing", "{problem}", {"problem": problem})
    details = InitErrorDetails(type=wrong, loc=(place,), input=messages[place].role)
    raise ValidationError.from_exception_data("Section", [details])  # pydantic puts the path before the place


class Section(Frozen):
    """A named run of messages."""

    name: Name
    messages: Annotated[AppendList[Message], AfterValidator(_paired)] = Field(default_factory=AppendList[Message])


def _new_sections() -> tuple[Section, ...]:
    return tuple(Section(name=name) for name in SECTIONS)


def _unique(sections: tuple[Section, ...]) -> tuple[Section, ...]:
    names = [section.name for section in sections]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"there are two sections called {twice!r}; rename one")
    if DEFAULT_SECTION not in names:
        raise ValueError(f"the section {DEFAULT_SECTION!r} is missing, which holds the conversation; add it")
    return sections


class MessageStore(JsonForm):
    """Ordered sections with unique names; `messages` is where the conversation goes on.

    Versions of a store share their messages. Input and sections that are set are checked; `extended` trusts its caller.
    """

    sections: Annotated[tuple[Section, ...], Field(max_length=SECTIONS_MAX), AfterValidator(_unique)] = Field(
        default_factory=_new_sections
    )

    @property
    def messages(self) -> AppendList[Message]:
        """The default section, as it is."""
        return self.section(DEFAULT_SECTION).messages

    def section(self, name: str) -> Section:
        """Return the section called `name`; KeyError when there is none."""
        for section in self.sections:
            if section.name == name:
                return section
        raise KeyError(name)

    def has(self, name: str) -> bool:
        """Return whether there is a section called `name`."""
        return any(section.name == name for section in self.sections)

    def with_section(self, section: Section, *, before: str | None = None) -> MessageStore:
        """Return the store with `section` in the place of the one of its name.

        A new name comes before the section `before` (KeyError when there is none), or last. InvalidInput when there
        are too many.
        """
        if self.has(section.name):
            changed = tuple(section if each.name == section.name else each for each in self.sections)
            return replace(self, sections=changed)
        if len(self.sections) >= SECTIONS_MAX:
            raise InvalidInput(f"{section.name!r} would be one section more than {SECTIONS_MAX}; drop another first")
        place = len(self.sections) if before is None else self.sections.index(self.section(before))
        return replace(self, sections=(*self.sections[:place], section, *self.sections[place:]))

    def extended(self, *messages: Message, section: str = DEFAULT_SECTION) -> MessageStore:
        """Return the store with `messages` at the end of `section` (KeyError if none is), unchecked."""
        grown = self.section(section)
        return self.with_section(replace(grown, messages=grown.messages.extend(messages)))

    def shortened(self, length: int) -> MessageStore:
        """Return the store as it was when its default section had that many messages."""
        section = self.section(DEFAULT_SECTION)
        return self.with_section(replace(section, messages=section.messages.before(length)))

    def moved(self, count: int, source: str, target: str) -> MessageStore:
        """Return the store with the first `count` messages of `source` at the end of `target`.

        Raises InvalidInput when that would part a call from its answers, or there are not so many; KeyError when there
        is no such section.
        """
        messages = self.section(source).messages
        if source == target or not 0 <= count <= len(messages):
            what = f"{count} of the {len(messages)} messages of {source!r} to the end of {target!r}"
            raise InvalidInput(f"cannot move {what}; name two sections, and as many messages as there are")
        if count < len(messages) and messages[count].role == "tool":
            raise InvalidInput(f"moving {count} messages of {source!r} would part a call from its answers; move fewer")
        rest = replace(self.section(source), messages=AppendList(messages[count:]))
        return self.with_section(rest).extended(*messages[:count], section=target)


def user_message(text: str, attachments: Sequence[Attachment] = ()) -> Message:
    """Return a message of the user's, with files that the record store has."""
    if not attachments:
        return Message(role="user", content=text)
    return Message(
        role="user", content=(TextPart(text=text), *(StoredFilePart(attachment=each) for each in attachments))
    )
