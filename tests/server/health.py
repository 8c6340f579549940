"""The health endpoint of a worker process, asked over HTTP as a kubelet does."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Final, TypeAlias, cast

import pytest

from tests.telemetry.scraping import free_port

SECONDS_MAX: Final = 120
PAUSE_SECONDS: Final = 0.1

Answer: TypeAlias = tuple[int, dict[str, object]]
READY: Final[Answer] = (200, {"status": "ready"})
LIVE: Final[Answer] = (200, {"status": "live"})


def not_ready(answer: Answer) -> dict[str, str]:
    """Return the problems of an answer; none where it has none."""
    problems = cast("dict[str, str]", answer[1].get("problems", {}))
    assert (answer[0] == 503) == bool(problems)
    return problems


class Health:
    """The endpoint of one worker, at a port that is free."""

    def __init__(self) -> None:
        self.port = free_port()

    async def get(self, path: str) -> Answer:
        """Return the answer to one request."""
        return await asyncio.to_thread(self._get, path)

    async def until(self, path: str, condition: Callable[[Answer], bool]) -> Answer:
        """Probe until an answer is as wanted; a worker that does not listen yet gives none."""
        answer: object = None
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while True:
                    try:
                        answer = await self.get(path)
                    except OSError as error:
                        answer = error
                    else:
                        if condition(answer):
                            return answer
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            pytest.fail(f"{path} still gives {answer}")

    def _get(self, path: str) -> Answer:
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:  # our own
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
