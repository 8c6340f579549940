"""The payloads that a history only refers to: taken out of the storage when it is recorded, put back to replay it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriverClaim, StorageDriverRetrieveContext, StorageDriverStoreContext

from holdfast.storage.objects import objects_at
from holdfast.storage.payloads import DIGEST, PayloadDriver

REFERENCE = re.compile(DIGEST + r"\W+([0-9a-f]{64})\b")
"""What is left of a payload in a history, however it is quoted there."""

ONE_CHARACTER_A_BYTE = "latin-1"


async def taken_out(history: dict[str, Any], place: str) -> list[str]:
    """Return the encoded payloads that the history (as the archive has it) refers to, from the storage at `place`."""
    digests = sorted(set(REFERENCE.findall(json.dumps(history))))
    claims = [StorageDriverClaim(claim_data={DIGEST: digest}) for digest in digests]
    payloads = await PayloadDriver(objects_at(place)).retrieve(StorageDriverRetrieveContext(), claims)
    return [payload.SerializeToString(deterministic=True).decode(ONE_CHARACTER_A_BYTE) for payload in payloads]


async def put_back(objects: Iterable[str], place: str) -> None:
    """Keep the encoded payloads in the storage at `place`."""
    payloads = [Payload.FromString(each.encode(ONE_CHARACTER_A_BYTE)) for each in sorted(set(objects))]
    await PayloadDriver(objects_at(place)).store(StorageDriverStoreContext(), payloads)
