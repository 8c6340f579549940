"""A fake server for Anthropic's Messages API that plays a script; it must not hold any knowledge of agents.

    async with FakeAnthropic([calls(Call("add", {"a": 1}), reasoning="I must add."), say("3")]) as server:
        client = AsyncAnthropic(base_url=server.base_url, api_key="any", max_retries=0)

It refuses what the API refuses: calls without results, thinking that comes back changed, a missing `max_tokens`.
As a process of its own: `python -m holdfast.testing.anthropic_server --script my_tests.scripts:research --port 8123`.
"""

from __future__ import annotations

import sys
from typing import ClassVar

from holdfast.testing.anthropic_request_check import ANTHROPIC_WIRE
from holdfast.testing.openai_server import FakeOpenAI, main
from holdfast.testing.wire_format import WireFormat


class FakeAnthropic(FakeOpenAI):
    """The server, as `FakeOpenAI` is one for chat completions. A turn's `reasoning` becomes signed thinking.

    What a request marks for the cache counts as cached in the next one that continues it.
    """

    WIRE: ClassVar[WireFormat] = ANTHROPIC_WIRE


if __name__ == "__main__":
    sys.exit(main(FakeAnthropic))
