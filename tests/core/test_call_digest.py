"""The digest of a call: the same for the same call, another for any other."""

from __future__ import annotations

import json
from hashlib import sha256

from hypothesis import assume, given
from pydantic import JsonValue

from holdfast.core.base.call_digest import SHORT_CHARS, call_digest, short_digest
from holdfast.core.base.frozen import canonical
from holdfast.core.conversation.messages import ToolCall
from tests.core.strategies import calls, json_maps, texts


def as_read_again(call: ToolCall) -> ToolCall:
    return ToolCall.model_validate_json(canonical(call))


def test_it_is_the_sha_256_of_one_spelling() -> None:
    call = ToolCall(id="a", name="pay", arguments={"to": "J\u00f6rg", "amount": {"b": [1, 2.5, None, True], "a": ""}})
    spelled = r'{"arguments":{"amount":{"a":"","b":[1,2.5,null,true]},"to":"J\u00f6rg"},"name":"pay"}'
    assert call.digest == sha256(spelled.encode()).hexdigest()
    assert short_digest(call.digest) == call.digest[:SHORT_CHARS]


@given(call=calls)
def test_it_survives_being_written_and_read(call: ToolCall) -> None:
    assert as_read_again(call).digest == call.digest


@given(call=calls, other=texts)
def test_the_id_does_not_count_nor_the_order_of_the_arguments(call: ToolCall, other: str) -> None:
    turned = dict(reversed(list(call.arguments.items())))
    assert ToolCall(id=other, name=call.name, arguments=turned).digest == call.digest


@given(name=texts, other=texts, arguments=json_maps, others=json_maps)
def test_any_other_name_or_arguments_have_another(
    name: str, other: str, arguments: dict[str, JsonValue], others: dict[str, JsonValue]
) -> None:
    assume((name, json.dumps(arguments, sort_keys=True)) != (other, json.dumps(others, sort_keys=True)))
    assert call_digest(name, arguments) != call_digest(other, others)


def test_kinds_of_values_are_told_apart() -> None:
    values: list[JsonValue] = [1, "1", True, 1.5, None, [1], {"1": 1}, "true", 0, False, "", [], {}]
    assert len({call_digest("a", {"x": value}) for value in values}) == len(values)
