"""How tests reach a Temporal server that they have not started: HOLDFAST_TEST_ADDRESS, and what that server asks for.

The variables TEMPORAL_* of the tests' own environment, such as certificates and a token, are for that server alone. A
test of an embedded server sees none of them, and without HOLDFAST_TEST_ADDRESS none does.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Final

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfig

ADDRESS: Final = os.environ.get("HOLDFAST_TEST_ADDRESS")
"""Where that server is; none where each test process starts one of its own."""

PREFIX: Final = "TEMPORAL_"

CREDENTIALS: Final = (
    {}
    if ADDRESS is None
    else {name: value for name, value in os.environ.items() if name.startswith(PREFIX) and name != "TEMPORAL_ADDRESS"}
)
"""What clients and workers of that server have in their environment, the tests' own processes among them."""


def allow(environment: MutableMapping[str, str], *, server: bool) -> None:
    """Make `environment` that of a test of that server, or of one that has nothing to do with it."""
    for name in [each for each in environment if each.startswith(PREFIX)]:
        del environment[name]
    if server:
        environment.update(CREDENTIALS)


async def plain_client(address: str, data_converter: DataConverter = DataConverter.default) -> Client:
    """Return a client with Temporal's own settings alone, credentials of the environment among them."""
    configured = ClientConfig.load_client_connect_config()
    configured["target_host"] = address
    return await Client.connect(**configured, data_converter=data_converter)
