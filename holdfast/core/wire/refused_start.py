"""`RefusedStart`: replaces the input of a run when that is not encrypted as it should be."""

from __future__ import annotations


class RefusedStart:
    """The reason. It is deliberately no data type: nothing that parses JSON can take it for a value."""

    def __init__(self, why: str) -> None:
        self.why = why
