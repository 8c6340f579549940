"""A bucket in memory that counts what it is asked: `python -m bench.scale.bucket` serves it until SIGTERM.

It speaks as much of S3's protocol as the workers use, and checks no signature. `GET /seen` tells what it has counted.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

HOST: Final = "127.0.0.1"
BUCKET: Final = "bench"
PREFIX: Final = "objects"
URL: Final = f"s3://{BUCKET}/{PREFIX}"
OBJECT_BYTES_MAX: Final = 256 * 1024 * 1024
PAGE_NAMES: Final = 1_000
"""How many names S3 lists at once."""

WRITTEN: Final = "2026-11-20T18:00:00.000Z"
WRITTEN_HEADER: Final = "Fri, 20 Nov 2026 18:00:00 GMT"
"""When every object was written: long ago, so nothing that is written again counts as fresh."""


def environment(address: str) -> dict[str, str]:
    """Return what a process is told to find the bucket; `address` is HOST:PORT."""
    return {
        "AWS_ENDPOINT_URL": f"http://{address}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "eu-central-1",
    }


class Bucket:
    """The objects by their names, and how often each kind of request came for each folder."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: Counter[str] = Counter()
        """By kind and folder: `PUT records`."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        if request.path == "/seen":
            return web.json_response(self.seen())
        listed = request.query.get("list-type") == "2"
        name = request.path.removeprefix(f"/{BUCKET}/")
        where = request.query.get("prefix", "") if listed else name
        kind = "LIST" if listed else request.method
        self.requests[f"{kind} {folder_of(where)}"] += 1
        if listed:
            return self._listed(where, request.query)
        if kind == "PUT":
            self.objects[name] = await request.read()
            return web.Response(headers={"ETag": '"1"'})
        if kind == "DELETE":
            self.objects.pop(name, None)
            return web.Response(status=204)
        if name not in self.objects:
            return web.Response(status=404)
        data = self.objects[name]
        facts = {"ETag": '"1"', "Last-Modified": WRITTEN_HEADER}
        if kind == "HEAD":
            return web.Response(headers={**facts, "Content-Length": str(len(data))})
        return web.Response(body=data, headers=facts)

    def seen(self) -> dict[str, Any]:
        """Return the requests by kind and folder, and each folder's objects and bytes."""
        folders: dict[str, list[int]] = {}
        for name, data in self.objects.items():
            held = folders.setdefault(folder_of(name), [0, 0])
            held[0] += 1
            held[1] += len(data)
        return {"requests": dict(self.requests), "folders": folders}

    def _listed(self, prefix: str, query: Mapping[str, str]) -> web.Response:
        after = max(query.get("continuation-token", ""), query.get("start-after", ""))
        names = sorted(name for name in self.objects if name.startswith(prefix) and name > after)
        page, more = names[:PAGE_NAMES], len(names) > PAGE_NAMES
        entries = "".join(
            f"<Contents><Key>{name}</Key><Size>{len(self.objects[name])}</Size>"
            f"<LastModified>{WRITTEN}</LastModified><ETag>1</ETag></Contents>"
            for name in page
        )
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
        body = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{entries}"
        return web.Response(text=f"<ListBucketResult>{body}</ListBucketResult>", content_type="application/xml")


def folder_of(name: str) -> str:
    """Return the folder of the store that an object's name begins with, below the prefix."""
    return name.removeprefix(f"{PREFIX}/").partition("/")[0]


async def _serve() -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    app = web.Application(client_max_size=OBJECT_BYTES_MAX)
    app.router.add_route("*", "/{path:.*}", Bucket().answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    sys.stdout.write(f"{HOST}:{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await stopping.wait()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve())
