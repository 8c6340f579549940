"""`RefusedStart`: what a run gets in the place of its own input where that is not encrypted as it should be."""

from __future__ import annotations


class RefusedStart:
    """Says why. It is no data on purpose: nothing that reads JSON or a model can take it for a value."""

    def __init__(self, why: str) -> None:
        self.why = why
