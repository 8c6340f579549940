"""What a history only refers to, payloads and snapshots: taken out of the storage, and put back to replay it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriverClaim, StorageDriverRetrieveContext, StorageDriverStoreContext

from holdfast.core.base.frozen import canonical
from holdfast.core.wire.records import Snapshot
from holdfast.storage.data_converter import DIGEST, PayloadDriver
from holdfast.storage.object_store import objects_at
from holdfast.storage.records import Records

REFERENCE = re.compile(DIGEST + r"\W+([0-9a-f]{64})\b")
"""What is left of a payload in a history, however it is quoted there."""

SNAPSHOT_REFERENCE = re.compile(r"claimData\W+snapshot\W+([0-9a-f]{64})\b")
"""The same of the conversation that a session's execution begins with."""

SNAPSHOT, PART = "snapshot ", "part "
"""How an object begins that is no payload but one of the record store's; no payload does."""

ONE_CHARACTER_A_BYTE = "latin-1"


async def taken_out(history: dict[str, Any], place: str) -> list[str]:
    """Return what the history (as the archive has it) refers to, encoded, from the storage at `place`."""
    written = json.dumps(history)
    claims = [StorageDriverClaim(claim_data={DIGEST: digest}) for digest in sorted(set(REFERENCE.findall(written)))]
    payloads = await PayloadDriver(objects_at(place)).retrieve(StorageDriverRetrieveContext(), claims)
    found = [payload.SerializeToString(deterministic=True).decode(ONE_CHARACTER_A_BYTE) for payload in payloads]
    records = Records(objects_at(place))
    for digest in sorted(set(SNAPSHOT_REFERENCE.findall(written))):
        snapshot = await records.read_snapshot(digest)
        found.append(SNAPSHOT + canonical(snapshot).decode())
        found += [PART + (await records.read_part(part.digest)).decode() for part in snapshot.parts]
    return found


async def put_back(objects: Iterable[str], place: str) -> None:
    """Keep what was taken out in the storage at `place`."""
    records, payloads = Records(objects_at(place)), list[Payload]()
    for each in sorted(set(objects)):
        if each.startswith(SNAPSHOT):
            await records.write_snapshot(Snapshot.model_validate_json(each.removeprefix(SNAPSHOT)))
        elif each.startswith(PART):
            await records.write_part(each.removeprefix(PART).encode())
        else:
            payloads.append(Payload.FromString(each.encode(ONE_CHARACTER_A_BYTE)))
    await PayloadDriver(objects_at(place)).store(StorageDriverStoreContext(), payloads)
