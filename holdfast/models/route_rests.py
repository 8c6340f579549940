"""Rests of models that have failed, while others can answer in their place. One worker's own; nothing is shared."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.safe_text import clamped
from holdfast.core.wire.endpoint_refusals import FALLBACK_ERRORS, ROUTE_RESTS, UNAVAILABLE

FAILURES_BEFORE: Final = 3
"""After how many failures in a row a model rests: a call's own retries outlive a hiccup."""

REST_SECONDS: Final = 15.0
"""The first rest; each further failure doubles it."""

REST_SECONDS_MAX: Final = 240.0
"""The longest rest: an outage of hours costs one call in four minutes."""

MESSAGE_CHARS_MAX: Final = 300
"""How much is repeated of the last failure."""

RESTING_MAX: Final = 1_000
"""How many models are remembered: an agent's definition can name any."""


@dataclass(slots=True)
class _Rest:
    failures: int = 0
    until: float = 0.0
    message: str = ""


class RouteRests:
    """Which models rest. The first call after a rest finds out whether it is over; an answer ends it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rests: dict[str, _Rest] = {}

    def check(self, name: str) -> None:
        """Raise ModelFailure, which costs nothing and is final, while the model `name` rests."""
        rest = self._rests.get(name)
        if rest is not None and (left := rest.until - self._clock()) > 0:
            text = f"the model {name!r} has failed and is not called for another {left:.0f} s: {rest.message}"
            raise ModelFailure(text, kind=ROUTE_RESTS, free=True)

    def note(self, name: str, failure: ModelFailure | None) -> None:
        """Count how a call of the model `name` went; none is an answer. Failures of the request itself say nothing."""
        if failure is None:
            self._rests.pop(name, None)
            return
        if failure.kind not in FALLBACK_ERRORS or failure.kind == ROUTE_RESTS:
            return
        if name not in self._rests and len(self._rests) >= RESTING_MAX:
            return
        rest = self._rests.setdefault(name, _Rest())
        rest.failures, rest.message = rest.failures + 1, clamped(failure.message, MESSAGE_CHARS_MAX)
        over = rest.failures - (FAILURES_BEFORE if failure.kind == UNAVAILABLE else 1)
        if over >= 0:
            seconds = min(REST_SECONDS_MAX, REST_SECONDS * 2.0 ** min(over, 10))
            rest.until = self._clock() + seconds
