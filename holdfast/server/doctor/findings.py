"""`Finding`: one line of a diagnosis. Gathers and judges nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.base.errors import HoldfastError


class Level(StrEnum):
    """How bad it is: a `warning` costs something, an `error` keeps agents from running."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check has found, and what to do about it where it is not `ok`."""

    check: str
    level: Level
    result: str
    remedy: str = ""


def fine(check: str, result: str) -> Finding:
    """Return what is as it should be."""
    return Finding(check, Level.OK, result)


def warned(check: str, result: str, remedy: str) -> Finding:
    """Return what works, and not as well as it could."""
    return Finding(check, Level.WARNING, result, remedy)


def wrong(check: str, result: str, remedy: str) -> Finding:
    """Return what keeps agents from running."""
    return Finding(check, Level.ERROR, result, remedy)


def from_error(check: str, error: HoldfastError) -> Finding:
    """Return what an error of ours says: its text has the remedy behind the first semicolon."""
    result, _, remedy = error.message.partition("; ")
    return wrong(check, result, remedy or "correct that")


def sound(findings: Iterable[Finding]) -> bool:
    """Return whether nothing keeps agents from running."""
    return all(each.level is not Level.ERROR for each in findings)
