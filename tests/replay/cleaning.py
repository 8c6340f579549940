"""What a recorded history loses before it is kept: the machine's names, ports and paths, and what no replay reads."""

from __future__ import annotations

import re
from typing import Any, cast

from tests.replay.archive import each_object, readable

UNREAD = {"identity", "requestId", "taskId", "stackTrace", "workerVersion", "binaryChecksum", "namespaceId"}
"""Fields that name a process, a file or a moment of the server, and that no replay looks at."""

STICKY = "TASK_QUEUE_KIND_STICKY"
"""A queue of one worker process, named after it and its machine."""

ENDPOINT = re.compile(r"(127\.0\.0\.1|localhost):\d+")


def clean(history: dict[str, Any]) -> dict[str, Any]:
    """Return the SDK's JSON of a history without what only the machine that recorded it could know."""
    return cast("dict[str, Any]", each_object(readable(history), _cleaned))


def _cleaned(fields: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in fields.items() if name not in UNREAD}
    if kept.get("kind") == STICKY:
        kept["name"] = "sticky"
    return {name: ENDPOINT.sub(r"\1:1", value) if isinstance(value, str) else value for name, value in kept.items()}
