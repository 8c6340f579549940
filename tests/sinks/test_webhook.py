"""Webhooks on a real endpoint that fails, hangs and drops connections: by its key each batch is taken once, signed."""

from __future__ import annotations

import base64
import hmac
import json
from collections import Counter
from hashlib import sha256
from typing import Any

import pytest

from holdfast.client import Settings
from holdfast.core.base.errors import InvalidInput
from holdfast.sinks import Batch, SinkAway, SinkRefused, batch_delivery
from holdfast.sinks.webhook import Webhook
from holdfast.storage.data_converter import records_of
from tests.sinks.delivering import end_sink, expected_of, run_of, until, worker_with
from tests.sinks.examples import batch_of
from tests.sinks.receiver import receiving

SECRET = "whsec_" + base64.b64encode(b"a key of thirty-two bytes, or so").decode()
KEY = b"a key of thirty-two bytes, or so"


def poisonous(event: dict[str, Any]) -> bool:
    return bool(event["kind"] == "AgentStepCompleted" and event["step_number"] == 2)


@pytest.mark.slow
@pytest.mark.temporal
async def test_a_webhook_that_fails_hangs_drops_and_refuses_has_each_event_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(batch_delivery, "BACKOFF_SECONDS", 0.01)
    async with receiving("500", "500", "503", "hang", "drop", refuses=poisonous) as receiver:
        hook = Webhook(receiver.url, name="crm", secret=SECRET, timeout_seconds=5.0)
        async with worker_with(settings, [hook]) as client:
            expected = await expected_of(client, await run_of(client))
            await until(lambda: len(receiver.ids) >= len(expected) - 1, lambda: receiver.ids)
            await until(lambda: "; see " in caplog.text, lambda: caplog.text)
            await until(lambda: len(receiver.ids) >= len(expected) - 1, lambda: receiver.ids)
    ways = [each[0] for each in receiver.requests]
    assert ways[:4] == ["500", "500", "503", "hang"]
    first = [(head["Idempotency-Key"], body) for _, head, body in receiver.requests[:4]]
    assert len(set(first)) == 1, "the same batch under the same key until its answer came"
    lost = ways.index("drop")
    assert receiver.requests[lost][2] in [each[2] for each in receiver.requests[lost + 1 :]], "and once more after this"
    [poison] = set(expected) - set(receiver.ids)
    assert Counter(receiver.ids) == Counter({each: 1 for each in expected if each != poison})
    assert sum(how == "400" and head["Idempotency-Key"] == poison for how, head, _ in receiver.requests) == 3
    for _, head, body in receiver.requests:
        signed = f"{head['webhook-id']}.{head['webhook-timestamp']}.".encode() + body
        expected_signature = base64.b64encode(hmac.digest(KEY, signed, sha256)).decode()
        assert head["webhook-signature"] == f"v1,{expected_signature}"
    name = caplog.text.partition("; see ")[2].split()[0]
    aside = json.loads(await records_of(client.temporal.data_converter).read_sink(name) or b"")
    assert (aside["why"], [each["id"] for each in aside["events"]]) == (
        "SinkRefused: the endpoint answers 400",
        [poison],
    )
    assert SECRET not in caplog.text
    assert receiver.url not in caplog.text
    await end_sink(client.temporal, settings, "crm")


async def test_what_an_endpoint_says_is_told_apart() -> None:
    batch = batch_of(3)
    async with receiving("500", "503", refuses=lambda _: True) as receiver:
        hook = Webhook(receiver.url)
        with pytest.raises(SinkAway, match="not open"):
            await hook.deliver(batch)
        await hook.open()
        with pytest.raises(RuntimeError, match="answers 500"):
            await hook.deliver(batch)
        with pytest.raises(SinkAway, match="answers 503"):
            await hook.deliver(batch)
        with pytest.raises(SinkRefused, match="answers 400"):
            await hook.deliver(batch)
        assert "webhook-signature" not in receiver.requests[0][1]
    with pytest.raises(SinkAway, match="does not answer") as caught:
        await hook.deliver(batch)
    await hook.close()
    assert receiver.url not in str(caught.value)


def test_a_batch_has_one_id_and_a_single_event_its_own() -> None:
    batch = batch_of(3)
    assert batch.id == Batch("test", batch.events, again=True).id
    assert batch.id != Batch("another", batch.events).id
    assert Batch("test", batch.events[:1]).id == batch.events[0].id


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/", "URL is not valid"),
        ("https:///path", "URL is not valid"),
        ("https://host:port/", "URL is not valid"),
        ("https://host/a b", "URL is not valid"),
        ("https://ada:secret@host/", "holds a user or password"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_not_repeated(url: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        Webhook(url)
    assert url not in str(caught.value)


def test_a_secret_that_is_no_base64_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is not base64") as caught:
        Webhook("https://host/", secret="whsec_%%%")  # noqa: S106  # it is none
    assert "%%%" not in str(caught.value)
