"""A model that reads a long result to its end, and what its last line says."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from holdfast.testing import Reply, call, say
from holdfast.testing.script import Script, turn_number

_LINE = re.compile(
    r'\n\[cut: bytes ([\d,]+) to ([\d,]+) of ([^;]+); fetch_result\(ref="(\w+)", offset=(\d+)\) reads on, '
    r"where you may call it\]\Z"
)


class Part(NamedTuple):
    """What is shown of a result, where to read on, and how much there is."""

    text: str
    ref: str
    offset: int
    total: str


def part_of(result: str | None) -> Part:
    """Return the parts of a result that was cut."""
    found = _LINE.search(result or "")
    assert found, (result or "")[-300:]
    return Part((result or "")[: found.start()], found[4], int(found[5]), found[3])


def reads_on(limit: int | None = None) -> Script:
    """Return a script: call `huge`, read on in its result twice, then answer with what the last part says."""

    def script(request: dict[str, Any]) -> Reply:
        if turn_number(request) == 0:
            return call("huge")
        last = request["messages"][-1]["content"]
        if turn_number(request) in (1, 2):
            part = part_of(last)
            return call("fetch_result", ref=part.ref, offset=part.offset, **({"limit": limit} if limit else {}))
        return say("read")

    return script
