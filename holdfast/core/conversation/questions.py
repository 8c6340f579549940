"""`Question`: what an agent asks a person, as its tool call gives it, and the form that the person fills in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, JsonValue, ValidationError, model_validator
from pydantic_core import to_json

from holdfast.core.base.frozen import Frozen, canonical
from holdfast.core.base.json_values import JsonMap
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.input_requests import (
    INPUT_REQUESTS_BYTES_MAX,
    MESSAGE_CHARS_MAX,
    InputRequest,
    InputResponse,
)

CHOICES_MAX: Final = 50
"""The most choices of a question: more are no help to whoever has to choose."""

CHOICE_CHARS_MAX: Final = 200
"""The longest choice."""

QUESTION_FIELDS_MAX: Final = 20
"""The most fields of a question: a person answers one after another."""

ANSWER: Final = "answer"
"""The name of the field of a question without `fields`."""

ANSWER_SECONDS: Final = 7 * 24 * 3600.0
"""How long a question waits for its answer unless the definition says otherwise: as long as an MCP server's."""


def is_usual_wait(seconds: float) -> bool:
    """Return whether that is the default: a definition then leaves the field out, as before there was one."""
    return seconds == ANSWER_SECONDS


Choice = Annotated[str, Field(min_length=1, max_length=CHOICE_CHARS_MAX)]
Choices = Annotated[tuple[Choice, ...], Field(max_length=CHOICES_MAX)]


class QuestionField(Frozen):
    """One value that a person is asked for."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,49}$")
    kind: Literal["text", "number", "integer", "boolean", "choice", "choices"] = "text"
    about: str = Field(default="", max_length=CHOICE_CHARS_MAX, description="what it is, in a line")
    choices: Choices = Field(default=(), description="for the kinds choice and choices")
    required: bool = True

    @model_validator(mode="after")
    def _has_choices_to_choose_from(self) -> Self:
        if self.kind.startswith("choice") is not bool(self.choices):
            raise ValueError("`choices` belong to the kinds `choice` and `choices`, and only to those")
        return self

    @property
    def schema_of(self) -> dict[str, JsonValue]:
        """The field in the flat JSON Schema of forms."""
        about: dict[str, JsonValue] = {"description": self.about} if self.about else {}
        match self.kind:
            case "choice":
                return {"type": "string", "enum": [*self.choices], **about}
            case "choices":
                return {"type": "array", "items": {"type": "string", "enum": [*self.choices]}, **about}
            case "text":
                return {"type": "string", **about}
            case kind:
                return {"type": kind, **about}


class Question(Frozen):
    """A question with at most one of: `choices` for its one answer, `fields` for several values."""

    question: str = Field(
        min_length=1, max_length=MESSAGE_CHARS_MAX, pattern=r"\S", description="with all that the person needs to know"
    )
    choices: Choices = Field(default=(), description="what may be answered; anything, without choices")
    fields: Annotated[tuple[QuestionField, ...], Field(max_length=QUESTION_FIELDS_MAX)] = Field(
        default=(), description="the values to ask for, instead of one answer"
    )

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        if self.choices and self.fields:
            raise ValueError("give `choices` or `fields`, not both")
        if len({each.name for each in self.fields}) < len(self.fields):
            raise ValueError("two fields have one name")
        return self

    @property
    def request(self) -> InputRequest:
        """The request that a person answers."""
        one = QuestionField(name=ANSWER, kind="choice" if self.choices else "text", choices=self.choices)
        fields = self.fields or (one,)
        required: list[JsonValue] = [each.name for each in fields if each.required]
        form: dict[str, JsonValue] = {
            "type": "object",
            "properties": {each.name: each.schema_of for each in fields},
            "required": required,
        }
        return InputRequest(key=ANSWER, message=self.question, form=form)


def question_of(arguments: JsonMap) -> tuple[Question | None, str]:
    """Return what a call asks, or none and what is wrong with it."""
    try:
        question = Question.model_validate(dict(arguments))
    except ValidationError as error:
        return None, problems_text(error)
    if (size := len(canonical(question.request))) > INPUT_REQUESTS_BYTES_MAX:
        return (
            None,
            f"the question takes {size:,} bytes of JSON, at most {INPUT_REQUESTS_BYTES_MAX:,} are asked at once",
        )
    return question, ""


def answer_text(responses: Mapping[str, InputResponse]) -> str:
    """Return a person's answer as the model is told it: one answer as it is, several values as JSON."""
    response = responses.get(ANSWER)
    if response is None or response.action == "cancel":
        return "[the person left the question without an answer]"
    if response.action == "decline":
        return "[the person declined to answer]"
    content = dict(response.content or {})
    only = content.get(ANSWER)
    return only if len(content) == 1 and isinstance(only, str) else to_json(content).decode()
