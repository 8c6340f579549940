"""The files of agents' workspaces, read from the record store: no container and no worker is asked."""

from __future__ import annotations

import re
from typing import Final

from holdfast.client.holdfast import Holdfast
from holdfast.core.base.call_digest import DIGEST_PATTERN
from holdfast.core.base.errors import InvalidInput
from holdfast.storage.data_converter import records_of
from holdfast.workspace.inside.snapshots import EMPTY
from holdfast.workspace.snapshot_files import SnapshotFiles

NEW: Final = "new"
"""Names the snapshot without files."""


def snapshot_files(holdfast: Holdfast) -> SnapshotFiles:
    """Return what reads and makes snapshots in the client's record store."""
    return SnapshotFiles(records_of(holdfast.temporal.data_converter))


async def latest_snapshot(holdfast: Holdfast, reference: str) -> str:
    """Return the digest of a workspace's latest snapshot: of a run, of a session's last ended run; or a digest itself.

    Raises InvalidInput where no call has left any files yet, and whatever finding the run raises.
    """
    if reference == NEW:
        return EMPTY
    if re.fullmatch(DIGEST_PATTERN, reference):
        return reference
    from holdfast.client.id_lookup import look_up  # noqa: PLC0415  # only where an id is to be found

    match = await look_up(holdfast.temporal, reference, None)
    if isinstance(match, str) or match.kind == "run":
        files = (await holdfast.state(match if isinstance(match, str) else match.id)).workspace
    else:
        latest = await holdfast.records(1, match.id)
        files = (await holdfast.recorded_state(latest[0])).workspace if latest else None
    if files is None:
        problem = f"no call of {reference!r} has left files in a workspace"
        raise InvalidInput(f"{problem}; name a run or a session of an agent that has one, and whose call has ended")
    return files
