"""Objects in a bucket: what travels over real HTTP to an S3-compatible endpoint, and what is said when it fails."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from holdfast.core.base.errors import ObjectMissing, StorageFailed
from holdfast.core.tools.tool_context import ToolContext
from holdfast.storage.fetch_result_tool import ResultStore
from holdfast.storage.object_store import Objects
from holdfast.storage.parts import EncodedParts
from holdfast.storage.records import Records
from tests.storage.keeping import Kept
from tests.storage.reading import part_of

CANARY = "canary-81b2"


class Bucket:
    """As much of the protocol as we use: PUT, GET with a range, HEAD, lists. It asks who is calling."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.refusing = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        if self.refusing:
            return web.Response(status=self.refusing, text="<Error><Code>Refused</Code></Error>")
        if "Credential=the-key/" not in request.headers.get("Authorization", ""):
            return web.Response(status=403)
        if request.method == "PUT":
            self.objects[request.path] = await request.read()
            return web.Response(headers={"ETag": '"1"'})
        if request.query.get("list-type") == "2":
            return self._listed(request)
        if request.path not in self.objects:
            return web.Response(status=404)
        data = self.objects[request.path]
        told = {"ETag": '"1"', "Last-Modified": "Fri, 20 Nov 2026 18:00:00 GMT"}
        if request.method == "HEAD":
            return web.Response(headers={**told, "Content-Length": str(len(data))})
        if wanted := request.http_range.start is not None and request.http_range:
            start, stop = wanted.start or 0, min(wanted.stop or len(data), len(data))
            told["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            return web.Response(status=206, body=data[start:stop], headers=told)
        return web.Response(body=data, headers=told)

    def _listed(self, request: web.Request) -> web.Response:
        """Answer with two names at a time, in order, as S3 may."""
        bucket = f"{request.path.rstrip('/')}/"
        keys = sorted(path.removeprefix(bucket) for path in self.objects)
        after = request.query.get("continuation-token", "")
        wanted = [key for key in keys if key.startswith(request.query.get("prefix", "")) and key > after]
        page, more = wanted[:2], len(wanted) > 2  # a page
        entries = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(self.objects[bucket + key])}</Size>"
            "<LastModified>2026-11-20T18:00:00.000Z</LastModified><ETag>1</ETag></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
        told = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{entries}"
        return web.Response(text=f"<ListBucketResult>{told}</ListBucketResult>", content_type="application/xml")


@pytest.fixture
async def bucket(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Bucket]:
    made = Bucket()
    monkeypatch.setattr("holdfast.storage.object_store.RETRY_TIMEOUT", timedelta(seconds=0.5))
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", made.answer)
    async with TestServer(app) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.make_url('/').port}")
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        yield made


async def test_objects_go_to_the_bucket_under_its_prefix_with_the_environments_credentials(bucket: Bucket) -> None:
    objects = Objects("s3://holdfast-tests/some/prefix")
    data = b"\x01" * 6_000_000
    await objects.write("payloads/ab/abc", data)
    assert bucket.objects == {"/holdfast-tests/some/prefix/payloads/ab/abc": data}
    assert await objects.read("payloads/ab/abc") == data
    with pytest.raises(
        ObjectMissing, match=r"s3://holdfast-tests/some/prefix has no object nothing; is HOLDFAST_STORAGE"
    ):
        await objects.read("nothing")


async def test_a_result_is_read_on_in_by_ranges(bucket: Bucket) -> None:
    results = ResultStore(EncodedParts(Objects("s3://holdfast-tests")))
    text = "".join(f"{number}\n" for number in range(100_000))
    part = part_of(await results.bounded(text, ToolContext("run", "key", 1), 60))
    assert part_of(await results.read("run", part.ref, part.offset, 1_000)).text == text[part.offset :][:1_000]
    assert sorted(name.rpartition(".")[2] for name in bucket.objects) == ["0", "parts"]
    assert any(text.encode() in kept for kept in bucket.objects.values())


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_a_refusal_is_told_in_one_line_without_the_secret(bucket: Bucket, status: int) -> None:
    bucket.refusing = status
    with pytest.raises(StorageFailed, match=r"^cannot write x.* s3://holdfast-tests") as failed:
        await Objects("s3://holdfast-tests").write("x", b"data")
    assert bucket.asked
    assert "\n" not in str(failed.value)
    assert CANARY not in str(failed.value)


async def test_an_endpoint_that_is_away_is_told_soon(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageFailed, match="cannot read x in s3://holdfast-tests"):
        await Objects("s3://holdfast-tests").read("x")
    assert bucket.asked == []


async def test_an_agents_latest_records_are_listed_without_reading_the_whole_list(bucket: Bucket) -> None:
    agent = Kept(Records(Objects("s3://holdfast-tests/some/prefix")))
    kept = [await agent.turn(f"question {number}", "answer") for number in range(9)]
    bucket.asked.clear()
    fresh = Records(Objects("s3://holdfast-tests/some/prefix"))
    assert await fresh.by_agent(agent.agent_id, 3) == kept[:-4:-1]
    lists = [path for method, path in bucket.asked if method == "GET" and "records" not in path]
    assert len(lists) == 2, "of the five that there are"
    assert len(bucket.asked) == 2 + 3
    assert await fresh.by_agent(agent.agent_id) == kept[::-1]
    assert await fresh.read_session(agent.agent_id) is None
