"""The protocol `Model` and its request and answer parts. Talks to no provider."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pydantic import Field

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.policies import ResponseFormat, TextFormat
from holdfast.core.base.bounds import WORD_CHARS_MAX
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.attachments import FILE_KINDS, FileKind, files_problem
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.tools.tool_traits import ToolSchema

IN_WORDS: Final = TextFormat()

BAD_MODEL: Final = "BadModel"
"""Why a run fails whose model returned something else than an answer."""

MODEL_EXITED: Final = "ModelExited"
"""Why a run fails whose model tried to end its process."""


class BackgroundAnswer(Frozen):
    """An answer that is made at the provider, whatever becomes of the call that asked for it (`LLM.background`).

    `model` is the `LLM.model` that it was asked with: it says at which route the answer is.
    """

    response_id: str = Field(min_length=1, max_length=WORD_CHARS_MAX)
    model: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """A piece of an answer that streams. `usage` is the endpoint's latest figure for the whole call.

    `model` and `response_id` are empty until the endpoint has sent them. An empty part means that the request goes out.
    """

    text: str = ""
    reasoning: str = ""
    usage: Usage | None = None
    model: str = ""
    response_id: str = ""
    call_bytes: int = 0
    """How many bytes of tool calls came with it: names, ids and arguments."""
    unseen: bool = False
    """Whether the answer comes all at once, so that nothing of it can be seen before its end."""
    sent: bool = True
    """False while the connection is being made and nothing has been sent."""
    route: str = ""
    """The route that answers; empty for the worker's own model, and where an earlier part said it."""
    lives_on: bool | None = None
    """Whether the answer `response_id` goes on at the provider without this call: true from when it does, false from
    its end there; none where nothing has changed."""
    wait: str = ""
    """What the call waits for before it is made; empty where it does not wait, or does not any more."""
    waited_seconds: float = 0.0
    """How long it waited, once it does not any more."""


AnswerListener = Callable[[AnswerPart], None]
"""Called with each part of an answer while it comes. It must return at once and must not raise."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call: prompt, conversation, tools and the form of the final answer.

    `max_output_tokens` none leaves it to the provider. A model that streams calls `listener` with each part; when the
    call is cancelled or fails, those parts are all that is known. `input_max` is the most tokens that the input can
    have, where that was counted already (`token_bounds.request_tokens` counts it anew). With `may_fall_back` another
    model is asked when this one cannot answer. `resume` is the answer to this request that an earlier attempt has
    begun: it is awaited instead of asking again. Once that is not possible, the call fails, after a part whose
    `lives_on` is false.
    """

    llm: LLM
    system_prompt: str
    messages: Sequence[Message]
    tools: tuple[ToolSchema, ...]
    max_output_tokens: int | None
    response_format: ResponseFormat = IN_WORDS
    listener: AnswerListener | None = None
    input_max: int | None = None
    may_fall_back: bool = False
    resume: BackgroundAnswer | None = None


class Model(Protocol):
    """Anything that answers a request: a provider's client, or a script in a test.

    A class that inherits from it needs `__call__` alone: nothing is missing, and there is nothing to close.
    """

    async def __call__(self, request: ModelRequest, /) -> InferenceResponse:
        """Return the answer; raise an exception when there is none. Cancelling it must end the call."""
        ...

    @property
    def missing(self) -> str:
        """What runs will fail for, shown when a worker starts; empty when nothing is missing."""
        return ""

    def problem(self, llm: LLM, /) -> str:  # noqa: ARG002  # others decide by it
        """Return why a run whose agent has `llm` would fail at its first call; empty when nothing is known.

        Asked before a run begins, so that it is refused before a token is spent. It may read files and import a client.
        """
        return ""

    def file_kinds(self, llm: LLM, /) -> Collection[FileKind]:  # noqa: ARG002  # others decide by it
        """Return which kinds of files it takes in users' messages; it is sent words in place of the others.

        Texts are sent to every model. A model of your own gets them all, as the parts `ImagePart` and `FilePart`.
        """
        return FILE_KINDS

    async def cancel(self, answer: BackgroundAnswer, /) -> Usage | None:  # noqa: ARG002  # for those that have any
        """End an answer at the provider: its run was stopped, or has given it up. Return its usage where that is known.

        Raises ModelFailure where it could not be ended. Cancelling one that has ended is no error.
        """
        return None

    async def close(self) -> None:
        """Close the connections. Nobody calls the model after that."""
        return


def problem_with(model: Model, llm: LLM) -> str:
    """Return what a model says of `llm` and of what it falls back to; empty for one that cannot say."""
    problems = (_problem_with(model, llm.after(fallbacks)) for fallbacks in range(len(llm.fallback) + 1))
    return next(filter(None, problems), "")


def file_kinds_of(model: object, llm: LLM) -> Collection[FileKind]:
    """Return which kinds of files a model takes (`Model.file_kinds`); all of them for one that cannot say."""
    # a model of your own need not inherit from Model
    kinds: Callable[[LLM], Collection[FileKind]] | None = getattr(model, "file_kinds", None)
    try:
        return frozenset(kinds(llm)) if callable(kinds) else FILE_KINDS
    except Exception:  # noqa: BLE001  # whatever a model of your own does; its call says what is wrong
        return FILE_KINDS


def problem_with_files(model: Model, llm: LLM, needed: Iterable[FileKind]) -> str:
    """Return why a model, or one that it falls back to, cannot be sent such files; empty where all can."""
    needed = tuple(needed)
    if not needed:
        return ""
    each = (llm.after(fallbacks) for fallbacks in range(len(llm.fallback) + 1))
    problems = (files_problem(needed, file_kinds_of(model, llm), _named(llm)) for llm in each)
    return next(filter(None, problems), "")


def _named(llm: LLM) -> str:
    return "the model" if llm.model is None else f"the model {llm.model!r}"


def _problem_with(model: Model, llm: LLM) -> str:
    """Return what a model says of `llm` (`Model.problem`), or its error as that."""
    judge = getattr(model, "problem", None)  # a model of your own need not inherit from Model
    if not callable(judge):
        return ""
    try:
        return str(judge(llm) or "")
    except Exception as error:  # noqa: BLE001  # whatever a model of your own does
        record = error_record(error, "model")
        return f"{record.type}: {record.message}"


def checked_response(answer: object) -> InferenceResponse:
    """Return what a model has returned. Raises ModelFailure, which is final, where that is no InferenceResponse."""
    if isinstance(answer, InferenceResponse):
        return answer
    text = f"the model returned a {type(answer).__name__}, not an InferenceResponse; correct it"
    raise ModelFailure(text, kind=BAD_MODEL)
