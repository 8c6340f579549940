"""What `holdfast doctor` finds, line by line; it is asked again where a busy machine made it give a check up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from tests.cli.program import Ended, Project

PATIENCE_SECONDS = 90
Lines: TypeAlias = dict[str, dict[str, str]]


def by_check(ended: Ended) -> Lines:
    assert ended.err == "", "not one traceback, whatever is broken"
    found: Lines = {}
    for each in ended.document["findings"]:
        assert each["remedy"] or each["level"] == "ok", each
        if each["check"] not in found or each["level"] != "ok":
            found[each["check"]] = each
    assert ended.document["ok"] is (ended.code == 0)
    assert ended.code == (14 if "error" in {each["level"] for each in found.values()} else 0)
    return found


def levels(lines: Lines, level: str) -> set[str]:
    return {check for check, line in lines.items() if line["level"] == level}


def once_found(errors: frozenset[str] | set[str], run: Callable[[], Ended]) -> Ended:
    """Return how the command ended once it found these errors alone."""
    ended = _repeated(run, lambda ended: levels(by_check(ended), "error") == errors)
    assert levels(by_check(ended), "error") == errors, ended.out
    return ended


def once_sound(run: Callable[[], Ended]) -> Ended:
    """Return how the command ended once it found nothing wrong, in whatever form it tells it."""
    ended = _repeated(run, lambda ended: ended.code == 0)
    assert ended.code == 0, ended.out
    return ended


def looked(project: Project, *options: str, errors: frozenset[str] | set[str] = frozenset()) -> Lines:
    """Return what the doctor says once it finds these errors alone."""
    return by_check(once_found(errors, lambda: project.run("doctor", "--json", *options)))


def _repeated(run: Callable[[], Ended], enough: Callable[[Ended], bool]) -> Ended:
    deadline = time.monotonic() + PATIENCE_SECONDS
    ended = run()
    while not enough(ended) and time.monotonic() < deadline:
        ended = run()
    return ended
