"""The codec server over real HTTP: Temporal's remote codec for who has the token, from the pages that were named."""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import ClientSession
from google.protobuf.json_format import MessageToJson, Parse
from temporalio.api.common.v1 import Payload, Payloads

from holdfast import AgentDefinition
from holdfast.client import Settings
from holdfast.connection.temporal_client import converter_of
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import STORED_BYTES_MIN
from holdfast.core.base.errors import InvalidInput, PortTaken
from holdfast.server.codec_server import CODEC_BODY_BYTES_MAX, CODEC_PAYLOADS_MAX, Access, CodecServer
from holdfast.storage.keys import create_key_file
from holdfast.testing.script import say
from tests.serving import Served, served

TOKEN = "a-token-of-the-tests"  # noqa: S105  # of nothing real
UI = "http://127.0.0.1:8233"
VALUE = Payload(metadata={"encoding": b"json/plain"}, data=b'"canary"')


class Asker:
    """A client of one codec server."""

    def __init__(self, session: ClientSession, url: str, settings: Settings) -> None:
        self.url = url
        self.session = session
        self.converter = converter_of(settings)

    async def post(
        self, path: str, body: str | bytes | BytesIO = '{"payloads": []}', **headers: str
    ) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Return the status, the JSON of the answer, and its headers."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.post(f"{self.url}{path}", data=body, headers=sent) as answer:
            return answer.status, json.loads(await answer.read()), dict(answer.headers)

    async def asked(self, path: str, *payloads: Payload) -> list[Payload]:
        """Return what becomes of payloads; the token is in the path."""
        status, told, _ = await self.post(f"/{TOKEN}{path}", MessageToJson(Payloads(payloads=payloads)))
        assert status == 200, told
        return list(Parse(json.dumps(told), Payloads()).payloads)


@asynccontextmanager
async def asking(settings: Settings, *origins: str) -> AsyncGenerator[Asker]:
    access = Access.checked(TOKEN, origins or (UI,))
    async with CodecServer(converter_of(settings), access).serving("127.0.0.1", 0) as port, ClientSession() as session:
        yield Asker(session, f"http://127.0.0.1:{port}", settings)


@pytest.fixture
def sealed(tmp_path: Path) -> Settings:
    create_key_file(tmp_path / "keys", "first")
    return Settings(storage=(tmp_path / "objects").as_uri(), encryption_key_file=tmp_path / "keys")


async def test_what_is_encoded_is_decoded_whatever_the_namespace(sealed: Settings) -> None:
    async with asking(sealed) as asker:
        encoded = await asker.asked("/encode", VALUE, VALUE)
        assert [each.metadata["encoding"] for each in encoded] == [b"holdfast/sealed-1"] * 2
        for path in ("/decode", "/default/decode", "/decode?preserveStorageRefs=true"):
            assert await asker.asked(path, *encoded) == [VALUE, VALUE]
        plain = Payload(metadata={"encoding": b"json/plain", "type": b"Keyword"}, data=b'"completed"')
        assert await asker.asked("/decode", plain, *encoded) == [plain, VALUE, VALUE], "search attributes are plain"
        status, told, headers = await asker.post("/default/decode", Authorization=f"Bearer {TOKEN}")
        assert (status, told) == (200, {})
        assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")


async def test_without_the_token_nothing_is_told(sealed: Settings) -> None:
    async with asking(sealed) as asker:
        for path in ("/decode", "/encode", "/download", "/default/decode", "/", f"/{TOKEN[:-1]}/decode", f"/{TOKEN}"):
            for header in ("", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer ä"):
                status, told, _ = await asker.post(path, Authorization=header) if header else await asker.post(path)
                assert (status, told) == (401, {"message": "the token is missing or wrong"}), (path, header)
        for path in ("/other", f"/{TOKEN}/other", "/"):
            status, told, _ = await asker.post(path, Authorization=f"Bearer {TOKEN}")
            assert (status, told["message"]) == (404, "unknown path; there are decode, encode, download")
        async with asker.session.get(f"{asker.url}/{TOKEN}/decode") as answer:
            assert answer.status == 405


async def test_a_page_from_elsewhere_is_refused_even_with_the_token(sealed: Settings) -> None:
    asked_for = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,x-namespace"}
    async with asking(sealed, UI, "https://UI.example:443/") as asker:
        for origin in (UI, "https://ui.example:443"):
            async with asker.session.options(f"{asker.url}/decode", headers={**asked_for, "Origin": origin}) as answer:
                assert answer.status == 204
                assert answer.headers["Access-Control-Allow-Origin"] == origin
                assert "X-Namespace" in answer.headers["Access-Control-Allow-Headers"]
                assert "Access-Control-Allow-Private-Network" not in answer.headers
            status, _, headers = await asker.post(f"/{TOKEN}/decode", Origin=origin)
            assert (status, headers["Access-Control-Allow-Origin"], headers["Vary"]) == (200, origin, "Origin")
            status, _, headers = await asker.post("/decode", Origin=origin)
            assert (status, headers["Access-Control-Allow-Origin"]) == (401, origin), "so that the page can tell why"
        for origin in ("http://evil.example", "null", f"{UI}.evil.example", "https://ui.example"):
            async with asker.session.options(f"{asker.url}/decode", headers={**asked_for, "Origin": origin}) as answer:
                assert answer.status == 403
                assert not [name for name in answer.headers if name.startswith("Access-Control")]
            status, told, headers = await asker.post(f"/{TOKEN}/decode", Origin=origin)
            assert (status, "--ui-origin" in told["message"]) == (403, True)
            assert "Access-Control-Allow-Origin" not in headers


async def test_what_is_no_request_of_ours_is_refused_and_not_repeated(sealed: Settings) -> None:
    deep = '{"payloads": ' + "[" * 5_000 + "]" * 5_000 + "}"
    many = json.dumps({"payloads": [{}] * (CODEC_PAYLOADS_MAX + 1)})
    bad: list[str | bytes] = ['"canary"', "{canary", '{"payloads": "canary"}', '{"payloads": [{"metadata": "canary"}]}']
    bad += [b"\xff\xfe", deep, many]
    async with asking(sealed) as asker:
        for body in bad:
            status, told, _ = await asker.post(f"/{TOKEN}/decode", body)
            assert (status, "canary" in told.get("message", "")) == (400, False), (body[:50], told)
        status, told, _ = await asker.post(f"/{TOKEN}/decode", BytesIO(b" " * (CODEC_BODY_BYTES_MAX + 1)))
        assert (status, told["message"]) == (413, f"the body has more than {CODEC_BODY_BYTES_MAX:,} bytes")


async def test_a_payload_that_cannot_be_decrypted_is_told_of_in_our_words(sealed: Settings, tmp_path: Path) -> None:
    create_key_file(tmp_path / "others", "second")
    async with asking(sealed) as asker, asking(replace(sealed, encryption_key_file=tmp_path / "others")) as other:
        [encoded] = await asker.asked("/encode", VALUE)
        cut = Payload(metadata=encoded.metadata, data=encoded.data[:-1])
        wrong = ((other, encoded, "the key 'first', and the key file has only second"), (asker, cut, "was changed"))
        for server, payload, said in wrong:
            body = MessageToJson(Payloads(payloads=[payload]))
            status, told, _ = await server.post(f"/{TOKEN}/decode", body)
            assert (status, said in told["message"]) == (400, True), told


async def test_what_lies_in_the_storage_is_shown_when_it_is_asked_for(sealed: Settings) -> None:
    text = b64encode(os.urandom(STORED_BYTES_MIN)).decode()
    async with asking(sealed) as asker:
        [reference] = await asker.converter.encode([{"text": text}])
        assert reference.external_payloads, "it is kept outside"
        assert await asker.asked("/decode?preserveStorageRefs=true", reference) == [reference]
        for path in ("/download", "/decode"):
            [found] = await asker.asked(path, reference)
            assert json.loads(found.data)["text"] == text
        digest = re.findall(rb"[0-9a-f]{64}", reference.data)[0]
        for said, data, code in (
            ("cannot be followed", reference.data.replace(b'"holdfast"', b'"another"'), 400),
            ("has no object", reference.data.replace(digest, b"0" * 64), 503),
        ):
            odd = Payload(metadata=reference.metadata, data=data)
            status, told, _ = await asker.post(f"/{TOKEN}/download", MessageToJson(Payloads(payloads=[odd])))
            assert (status, said in told["message"]) == (code, True), told


async def test_without_a_key_only_what_lies_in_the_storage_is_shown(sealed: Settings) -> None:
    plain = replace(sealed, encryption_key_file=None)
    async with asking(sealed) as asker, asking(plain) as without:
        [encoded] = await asker.asked("/encode", VALUE)
        assert await without.asked("/encode", VALUE) == [VALUE]
        [reference] = await without.converter.encode([{"text": "x" * STORED_BYTES_MIN}])
        [found] = await without.asked("/download", reference)
        assert len(json.loads(found.data)["text"]) == STORED_BYTES_MIN
        status, told, _ = await without.post(f"/{TOKEN}/decode", MessageToJson(Payloads(payloads=[encoded])))
        assert (status, "this process has no key file" in told["message"]) == (400, True)


async def test_a_port_that_is_taken_and_a_token_or_origin_that_is_none_are_told_of(sealed: Settings) -> None:
    async with asking(sealed) as asker:
        port = int(asker.url.rpartition(":")[2])
        with pytest.raises(PortTaken, match=str(port)):
            async with CodecServer(asker.converter, Access.checked(TOKEN, [UI])).serving("127.0.0.1", port):
                raise AssertionError
    for token in ("short", "with/slash-and-more-than-16", "ä" * 20, "x" * 300):
        with pytest.raises(InvalidInput) as refused:
            Access.checked(token, [UI])
        assert token not in str(refused.value)
    for origin in ("127.0.0.1:8233", "*", "null", "ftp://x", "http://", "http://a/path", "http://u:p@a", "http://a:x"):
        with pytest.raises(InvalidInput, match="is not an origin"):
            Access.checked(TOKEN, [origin])
    drawn = Access.checked(None, [UI])
    assert drawn.token != Access.checked(None, [UI]).token
    assert drawn.token not in repr(drawn)


@pytest.mark.temporal
async def test_a_runs_history_is_decoded_for_the_ui(settings: Settings, tmp_path: Path, sealed: Settings) -> None:
    secret = replace(settings, encryption_key_file=sealed.encryption_key_file)
    async with served_one(secret, tmp_path) as at_work, asking(secret) as asker:
        state = await at_work.client.run(AgentDefinition(name="clerk", tools="all"), "canary-question")
        handle = at_work.client.temporal.get_workflow_handle(state.execution_id)
        events = (await handle.fetch_history()).to_json()
        assert "canary" not in events
        found = encoded_in(json.loads(events))
        status, told, _ = await asker.post(f"/{TOKEN}/decode", json.dumps({"payloads": found}), X_Namespace="default")
    assert status == 200, told
    shown = b"".join(b64decode(each["data"]) for each in told["payloads"])
    assert b"canary-question" in shown
    assert b"canary-answer" in shown


def served_one(settings: Settings, folder: Path) -> AbstractAsyncContextManager[Served]:
    return served(settings, folder / "ledger", [say("canary-answer")], Toolset())


def encoded_in(value: Any) -> list[dict[str, Any]]:  # noqa: ANN401  # what JSON holds
    """All payloads that there are in it."""
    if not isinstance(value, dict | list):
        return []
    held = cast("dict[str, Any] | list[Any]", value)
    if isinstance(held, dict) and "metadata" in held and "data" in held:
        return [held]
    return [found for each in (held.values() if isinstance(held, dict) else held) for found in encoded_in(each)]
