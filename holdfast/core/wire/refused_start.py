"""`RefusedStart`: replaces the input of a run that is not encrypted as it should be, or is of a newer Holdfast."""

from __future__ import annotations


class RefusedStart:
    """The reason. It is deliberately no data type: nothing that parses JSON can take it for a value.

    `newer` is true where a newer Holdfast wrote the input: it is good, and only not for this worker.
    """

    def __init__(self, why: str, *, newer: bool = False) -> None:
        self.why = why
        self.newer = newer
