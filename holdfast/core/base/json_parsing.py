"""Parses JSON from models and people, bounded so that it can be stored and read again. Knows no schema."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn, cast

from pydantic import JsonValue

from holdfast.core.base.bounds import ARGUMENTS_DEPTH_MAX

NUMBER_DIGITS_MAX: Final = 4_300
"""The longest whole number, in digits: Python refuses to read longer ones, whose cost grows with the square."""

_TOO_DEEP: Final = f"nested more than {ARGUMENTS_DEPTH_MAX} levels deep"


def read_json(text: str) -> JsonValue:
    """Return the value that `text` spells; of a name given twice the last one counts.

    Raises ValueError for what is not JSON, for NaN, infinities, numbers beyond a float and longer than
    NUMBER_DIGITS_MAX, for nesting deeper than ARGUMENTS_DEPTH_MAX and for lone surrogates.
    """
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check_depth(value)
    json.dumps(value, ensure_ascii=False).encode("utf-8")  # refuses lone surrogates
    return value


def named_once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object's fields, for `object_pairs_hook`. Raises ValueError for a name that is given twice."""
    refuse_twice(name for name, _ in pairs)
    return dict(pairs)


def refuse_twice(names: Iterable[str]) -> None:
    """Raise ValueError for a field that is given twice: the parsers would keep one of the two and say nothing."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"the field {name[:80]!r} is given twice; keep one")
        seen.add(name)


def _check_depth(value: object) -> None:
    """Refuse nesting that a later reader of the history could not parse any more."""
    level: list[object] = [value]
    for _ in range(ARGUMENTS_DEPTH_MAX):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (
                cast("dict[str, object]", each).values() if isinstance(each, dict) else cast("list[object]", each)
            )
        ]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is not a finite number")
    return number


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > NUMBER_DIGITS_MAX:
        raise ValueError(f"a number has {len(digits):,} digits; at most {NUMBER_DIGITS_MAX:,} are read")
    return int(digits)
