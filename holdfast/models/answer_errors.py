"""Why a body with status 200 is no answer. `provider_errors` makes failures of them."""

from __future__ import annotations


class UnusableAnswer(Exception):
    """The endpoint answered 200 with something that is not an answer of its API."""


class ErrorInAnswer(Exception):
    """The endpoint answered 200 with an error object; `error` is that object, any JSON value."""

    def __init__(self, error: object) -> None:
        super().__init__("the answer holds an error")
        self.error = error


class AnswerCut(Exception):
    """The stream ended, properly or not, before the answer was complete."""

    def __init__(self, what: str = "ended before it was complete (no finish reason)") -> None:
        super().__init__(what)


class AnswerGone(AnswerCut):
    """The endpoint does not have the answer any more that it was making in the background."""

    def __init__(self) -> None:
        super().__init__("is not there any more")
