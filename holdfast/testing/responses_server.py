"""`FakeResponses`: a fake server of OpenAI's Responses API that plays a script. Knows no agents, and no Temporal.

    async with FakeResponses([call("add", a=1, b=2), say("3", reasoning="easy")]) as server:
        client = AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0)

Scripts are those of `FakeOpenAI`. As a process of its own:

    python -m holdfast.testing.responses_server --script my_tests.scripts:research --port 8123
"""

from __future__ import annotations

import sys

from holdfast.testing.openai_server import FakeOpenAI, main
from holdfast.testing.responses_wire_format import RESPONSES_WIRE


class FakeResponses(FakeOpenAI):
    """The server, used as `FakeOpenAI` is.

    It stores nothing, and refuses what the API refuses then: ids of items, calls without outputs and outputs without
    calls, reasoning without what followed it, or that it has not made itself, or in another place.
    """

    WIRE = RESPONSES_WIRE


if __name__ == "__main__":
    sys.exit(main(FakeResponses))
