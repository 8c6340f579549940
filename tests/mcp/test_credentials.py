"""Credentials of MCP servers: variables, files, tenants, OAuth tokens that end, rotate and are refused."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.tools.mcp_servers import InlineServer, McpOAuth, McpServer
from holdfast.mcp.connection import McpConnection
from holdfast.mcp.credentials import SECRET_BYTES_MAX, SECRETS_MAX, Credentials
from holdfast.mcp.errors import McpUnavailable
from holdfast.mcp.pool import McpPool
from holdfast.mcp.server_file import servers_of
from tests.mcp.places import asking, command, connection, noted, over_http
from tests.mcp.token_endpoint import TokenEndpoint, token_endpoint

GRANT = "{token_url: 'https://x.example/t', client_id: a, client_secret: b}"

pytestmark = pytest.mark.timeout(120)


@asynccontextmanager
async def guarded(tmp_path: Path) -> AsyncGenerator[tuple[McpServer, TokenEndpoint]]:
    """A server that wants a token, with an `oauth` entry, and the endpoint that gives them."""
    accepted = tmp_path / "accepted"
    async with (
        token_endpoint(accepted) as endpoint,
        over_http(tmp_path / "ledger", "guarded_server.py", str(accepted)) as (place, _),
    ):
        entry = {"token_url": endpoint.url, "client_id": "holdfast", "client_secret": "${KEY}", "scope": "tools"}
        yield replace(place, oauth=McpOAuth.model_validate(entry)), endpoint


def by_file(place: McpServer, file: Path, **fields: object) -> McpServer:
    """The server, reached by the refresh token in a file."""
    assert place.oauth is not None
    return replace(place, oauth=replace(place.oauth, refresh_token_file=str(file), **fields))


def names(folder: Path) -> list[str]:
    """What is in the folder."""
    return sorted(each.name for each in folder.iterdir())


async def token_of(server: McpConnection) -> str:
    return str(json.loads((await server.call("seen", {})).text)["token"])


async def test_a_token_in_a_file_counts_as_soon_as_it_is_replaced(tmp_path: Path) -> None:
    secret, accepted = tmp_path / "secret", tmp_path / "accepted"
    accepted.write_text("first second")
    secret.write_text("first\n")
    async with over_http(tmp_path / "ledger", "guarded_server.py", str(accepted)) as (place, _):
        keyed = replace(place, headers={"Authorization": f"Bearer ${{file:{secret}}}"})
        async with connection(keyed) as server:
            assert await token_of(server) == "first"
            secret.write_text("second\n")
            assert await token_of(server) == "second"
            secret.unlink()
            with pytest.raises(InvalidInput, match=r"needs the file .* cannot be read: No such file"):
                await token_of(server)


async def test_client_credentials_get_a_token_once_for_all_calls_and_connections(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (place, endpoint):
        pool = McpPool({"till": place}, {"KEY": "pssst"})
        try:

            async def called() -> str:
                async with pool.connection(place) as server:
                    return await token_of(server)

            assert set(await asyncio.gather(*(called() for _ in range(8)))) == {"access-1"}
        finally:
            await pool.close()
    expected = {"grant_type": "client_credentials", "scope": "tools", "basic": "holdfast:pssst", "resource": place.url}
    assert endpoint.asked == [expected]


@pytest.mark.parametrize(
    ("entry", "sent"),
    [
        (None, "https://x.example:8443/mcp"),
        ("https://x.example", "https://x.example"),
        ("", None),
    ],
)
async def test_a_token_is_asked_for_the_server_it_goes_to_and_no_secret_of_its_url_with_it(
    tmp_path: Path, entry: str | None, sent: str | None
) -> None:
    async with token_endpoint(tmp_path / "accepted") as endpoint:
        fields = {"token_url": endpoint.url, "client_id": "a", "client_secret": "b", "resource": entry}
        oauth = McpOAuth.model_validate(fields)
        place = McpServer(name="till", url="https://me:${WORD}@X.example:8443/mcp?key=${WORD}", oauth=oauth)
        grant = Credentials(place, {"WORD": "pssst"}).grant
        assert grant is not None
        await grant.token()
    assert endpoint.asked[0].get("resource") == sent


async def test_a_token_that_ends_is_renewed_before_the_next_call(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (place, endpoint):
        endpoint.seconds = 0.2
        async with connection(place, KEY="pssst") as server:
            first = await token_of(server)
            await asyncio.sleep(0.3)
            second = await token_of(server)
    assert first != second
    assert not [line for line in noted(tmp_path / "ledger") if line.startswith("refused")]


async def test_a_token_that_is_refused_early_is_replaced_and_the_call_reaches_the_tool_once(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (place, endpoint), connection(place, KEY="pssst") as server:
        assert await token_of(server) == "access-1"
        endpoint.accept("another")
        assert (await server.call("pay", {"amount": 5})).text == "paid 5"
    lines = noted(tmp_path / "ledger")
    assert "refused access-1" in lines
    assert len([line for line in lines if line.startswith("pay")]) == 1


async def test_a_rotated_refresh_token_is_stored_for_its_owner_alone_before_it_is_needed(tmp_path: Path) -> None:
    kept = tmp_path / "refresh"
    kept.write_text("refresh-0\n")
    async with guarded(tmp_path) as (place, endpoint):
        endpoint.refresh_tokens, endpoint.seconds = {"refresh-0"}, 0.2
        refreshing = by_file(place, kept, client_auth="post")
        for _ in range(2):  # two processes, one after the other
            async with connection(refreshing, KEY="pssst") as server:
                await token_of(server)
                await asyncio.sleep(0.3)
                await token_of(server)
    assert kept.read_text().strip() == f"refresh-{len(endpoint.asked)}"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [each["refresh_token"] for each in endpoint.asked] == [f"refresh-{n}" for n in range(len(endpoint.asked))]
    assert {each["client_secret"] for each in endpoint.asked} == {"pssst"}
    assert [each for each in names(tmp_path) if "refresh" in each] == ["refresh", "refresh.lock"]


async def test_a_rotated_refresh_token_is_stored_though_its_caller_was_cancelled(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (file := secrets / "refresh").write_text("first\n")
    async with guarded(tmp_path) as (place, endpoint):
        endpoint.refresh_tokens = {"first"}
        endpoint.opened.clear()
        pool = McpPool({"till": by_file(place, file)}, {"KEY": "pssst"})

        async def called() -> str:
            async with pool.connection(pool.servers["till"]) as server:
                return await token_of(server)

        caller = asyncio.create_task(called())
        async with asyncio.timeout(30):
            while not endpoint.asked:  # noqa: ASYNC110  # the endpoint calls nobody
                await asyncio.sleep(0.02)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        endpoint.opened.set()
        await pool.close()
        assert file.read_text() == "refresh-1\n"
        assert endpoint.refresh_tokens == {"refresh-1"}


async def test_a_token_that_lives_longer_than_anything_is_taken(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (place, endpoint):
        endpoint.seconds = 10**400
        async with connection(place, KEY="pssst") as server:
            assert await token_of(server) == "access-1"


async def test_processes_that_share_a_refresh_token_use_it_one_after_another(tmp_path: Path) -> None:
    kept = tmp_path / "refresh"
    kept.write_text("refresh-0\n")
    async with guarded(tmp_path) as (place, endpoint):
        endpoint.refresh_tokens = {"refresh-0"}
        refreshing = by_file(place, kept)
        grants = [Credentials(refreshing, {"KEY": "pssst"}).grant for _ in range(5)]
        tokens = await asyncio.gather(*(each.token() for each in grants if each is not None))
    assert len(set(tokens)) == 5


async def test_a_grant_that_is_refused_is_told_without_its_secrets(tmp_path: Path) -> None:
    kept = tmp_path / "refresh"
    kept.write_text("stolen-token\n")
    async with guarded(tmp_path) as (place, _):
        refreshing = by_file(place, kept)
        with pytest.raises(InvalidInput, match=r"token endpoint has answered 400 \(invalid_grant\)") as caught:
            async with connection(refreshing, KEY="pssst"):
                pass
    assert "stolen-token" not in str(caught.value)
    assert "pssst" not in str(caught.value)


async def test_an_endpoint_that_is_down_makes_the_server_unavailable_and_is_asked_again(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (place, endpoint):
        endpoint.is_broken = True
        with pytest.raises(McpUnavailable, match="token endpoint has answered 503"):
            async with connection(place, KEY="pssst"):
                pass
        endpoint.is_broken = False
        async with connection(place, KEY="pssst") as server:
            assert await token_of(server) == "access-2"


async def test_each_tenant_has_a_connection_and_a_token_of_its_own(tmp_path: Path) -> None:
    accepted = tmp_path / "accepted"
    accepted.write_text("for-acme for-umbrella")
    for tenant in ("acme", "umbrella"):
        (tmp_path / tenant).mkdir()
        (tmp_path / tenant / "token").write_text(f"for-{tenant}\n")
    async with over_http(tmp_path / "ledger", "guarded_server.py", str(accepted)) as (place, _):
        keyed = replace(place, headers={"Authorization": f"Bearer ${{file:{tmp_path}/${{tenant}}/token}}"})
        pool = McpPool({"till": keyed}, {})
        try:
            for tenant in ("acme", "umbrella", "acme"):
                async with pool.connection(keyed, tenant=tenant) as server:
                    assert await token_of(server) == f"for-{tenant}"
            for tenant, why in (("", "start the run with a tenant"), ("../acme", "letters, digits")):
                with pytest.raises(InvalidInput, match=why):
                    async with pool.connection(keyed, tenant=tenant):
                        pass
        finally:
            await pool.close()


async def test_a_server_of_a_definition_gets_no_token_of_the_workers_server_of_its_name(tmp_path: Path) -> None:
    accepted = tmp_path / "accepted"
    accepted.write_text("secret-token")
    async with over_http(tmp_path / "ledger", "guarded_server.py", str(accepted)) as (place, _):
        keyed = replace(place, headers={"Authorization": "Bearer secret-token"})
        described = InlineServer(name=keyed.name, url=place.url)
        pool = McpPool({keyed.name: keyed}, {}, inline=True)
        try:
            async with pool.connection(keyed) as server:
                assert await token_of(server) == "secret-token"
            with pytest.raises(McpUnavailable, match="HTTP 401"):
                async with pool.connection(described):
                    pass
        finally:
            await pool.close()


async def test_tenants_do_not_share_the_process_of_a_command(tmp_path: Path) -> None:
    env = {"LEDGER": str(tmp_path / "ledger"), "CURRENCY": "${MONEY_${tenant}}"}
    place = McpServer(name="till", command=tuple(command("servers.py", "stdio")), env=env)
    pool = McpPool({"till": place}, {"MONEY_acme": "EUR", "MONEY_umbrella": "USD"})
    try:
        for tenant, paid in (("acme", "paid 1 EUR"), ("umbrella", "paid 1 USD")):
            async with pool.connection(place, tenant=tenant) as server:
                assert (await server.call("pay", {"amount": 1})).text == paid
    finally:
        await pool.close()


def test_a_tenant_that_fits_into_no_variable_is_refused_before_another_ones_is_read() -> None:
    place = McpServer(name="till", url="http://127.0.0.1:1/mcp", headers={"X": "${MONEY_${tenant}}"})
    with pytest.raises(InvalidInput, match="fits into no variable"):
        Credentials(place, {"MONEY_a_b": "secret"}, "a-b").headers()


def test_values_are_not_read_for_references_again() -> None:
    place = McpServer(name="till", url="http://127.0.0.1:1/mcp", headers={"X": "${A}"})
    assert Credentials(place, {"A": "${B} ${file:/etc/hostname}"}).headers() == {"X": "${B} ${file:/etc/hostname}"}


def test_a_file_that_is_no_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (SECRET_BYTES_MAX + 1))
    place = McpServer(name="till", url="http://127.0.0.1:1/mcp", headers={"X": f"${{file:{tmp_path}/big}}"})
    with pytest.raises(InvalidInput, match="no token is that long"):
        Credentials(place, {}).headers()


@pytest.mark.parametrize("length", [8, 20, 39])
def test_a_secret_that_was_cut_at_the_end_of_a_text_is_not_shown(length: int) -> None:
    value = "s3cret-s3cret-0123456789-0123456789-tail"
    credentials = Credentials(McpServer(name="a", command=("a",)), {})
    credentials.hide(value)
    assert credentials.redacted(f"the key is {value[:length]}") == "the key is ***"
    assert credentials.redacted("the key is s3cret-s3cret- or so") == "the key is s3cret-s3cret- or so"


def test_as_many_secrets_are_kept_out_of_texts_as_are_likely_to_be_met() -> None:
    place = McpServer(name="till", url="http://127.0.0.1:1/mcp")
    credentials = Credentials(place, {})
    for number in range(SECRETS_MAX + 1):
        credentials.hide(f"secret-{number:04}")
    assert credentials.redacted("secret-0000 secret-0001 secret-0256") == "secret-0000 *** ***"


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("{url: 'https://x.example/mcp', oauth: {token_url: 'https://x.example/t', client_id: a}}", "client_secret"),
        ("{command: [x], oauth: " + GRANT + "}", "means nothing"),
        ("{command: [x], start_timeout_seconds: 100}", "start_timeout_seconds"),
        ("{url: 'https://x.example/mcp', stateless: true}", "stateless"),
        (f"{{url: 'https://x.example/mcp', headers: {{authorization: x}}, oauth: {GRANT}}}", "leave one of them out"),
    ],
)
def test_an_entry_that_means_nothing_is_refused(entry: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        servers_of(f"servers:\n  one: {entry}", "mcp.yaml")


async def test_a_credential_that_a_server_repeats_stands_neither_in_its_errors_nor_in_its_questions(
    tmp_path: Path,
) -> None:
    token = {"TOKEN": "${KEPT}", "LEDGER": str(tmp_path / "ledger")}
    async with connection(asking(tmp_path / "ledger", env=token), KEPT="canary-4711") as theatre:
        failed = await theatre.call("refuse", {})
        asked = await theatre.call("book", {"show": "canary-4711"})
    assert (failed.is_error, "refused: ***" in failed.text, "canary" in failed.text) == (True, True, False)
    assert asked.questions is not None
    assert [each.message for each in asked.questions.requests] == ["How many seats for ***?"]
