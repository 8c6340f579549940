"""Large items of an answer lie in the record store, and each model call has them as they came."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from holdfast.core.agent.agent import Agent
from holdfast.core.agent.model import ModelRequest
from holdfast.core.base.errors import ModelFailure, StorageFailed
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import Message, ToolCall, user_message
from holdfast.core.conversation.provider_items import ITEMS_BYTES_MAX, ITEMS_MAX, ProviderItem, items_size
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.local import LocalDriver
from holdfast.models import FunctionModel
from holdfast.runtime.files.attachments import MemoryAttachments
from holdfast.runtime.stored_items import ITEMS_TOO_LARGE, with_items_stored, with_stored_items
from holdfast.storage.records import Records

LARGE = 's\u00fc"' * ITEMS_BYTES_MAX


def items(*bodies: str) -> tuple[ProviderItem, ...]:
    return tuple(ProviderItem(route="r", api="a", model="m", body=body) for body in bodies)


async def test_small_items_stay_in_the_message_and_messages_without_references_as_they_are() -> None:
    store, response = MemoryAttachments(), InferenceResponse(items=items("a", "b"))
    assert await with_items_stored(response, store) is response
    messages = (user_message("x"), Message(role="assistant", items=items("a")))
    assert await with_stored_items(messages, store) is messages


@pytest.mark.parametrize("bodies", [("a", LARGE, "b"), ("x" * 200,) * ITEMS_MAX])
async def test_large_ones_leave_one_reference_which_stands_for_all_of_them(tmp_path: Path, bodies: tuple[str]) -> None:
    given = items(*bodies)
    response = await with_items_stored(InferenceResponse(text="so", items=given), Records.in_folder(tmp_path))
    (stored,) = response.items
    assert items_size(response.items) < 1_000
    assert (stored.route, stored.api, stored.body) == ("r", "a", "")
    assert stored.sent_bytes == sum(each.sent_bytes for each in given)
    message = Message(role="assistant", content="so", items=response.items)
    question, back = await with_stored_items((user_message("x"), message), Records.in_folder(tmp_path))
    assert (question.text, back.text, back.items) == ("x", "so", given)


async def test_more_than_is_kept_at_all_fails_the_run_with_what_was_used() -> None:
    huge = InferenceResponse(items=items(*["x" * 1_000_000] * 9), usage=Usage(input_tokens=7))
    with pytest.raises(ModelFailure, match="have the model reason less") as failure:
        await with_items_stored(huge, MemoryAttachments())
    assert (failure.value.kind, failure.value.again, failure.value.usage.input_tokens) == (ITEMS_TOO_LARGE, False, 7)


async def test_lost_and_damaged_items_are_left_out_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    response = await with_items_stored(InferenceResponse(items=items(LARGE)), Records.in_folder(tmp_path))
    digest = response.items[0].digest or ""
    (tmp_path / "attachments" / digest[:2] / digest).write_bytes(b"damaged")
    messages = (Message(role="assistant", content="so", items=response.items),)
    with caplog.at_level(logging.WARNING):
        for store in (Records.in_folder(tmp_path), MemoryAttachments(), None):
            (message,) = await with_stored_items(messages, store)
            assert (message.text, message.items) == ("so", ())
    assert len([each for each in caplog.messages if digest[:12] in each]) == 3


async def test_a_storage_that_is_away_is_an_error_and_loses_nothing() -> None:
    class Away(MemoryAttachments):
        async def read_attachment(self, digest: str) -> bytes:
            raise StorageFailed(f"no answer about {digest[:9]}")

    response = await with_items_stored(InferenceResponse(items=items(LARGE)), MemoryAttachments())
    with pytest.raises(StorageFailed):
        await with_stored_items((Message(role="assistant", items=response.items),), Away())


@pytest.mark.parametrize("lasting", [True, False])
async def test_a_run_in_process_sends_them_back_and_its_state_has_them_or_a_reference(
    tmp_path: Path, *, lasting: bool
) -> None:
    asked: list[ModelRequest] = []

    async def model(request: ModelRequest) -> InferenceResponse:
        asked.append(request)
        calls = () if len(asked) > 1 else (ToolCall(id="a", name="add"),)
        return InferenceResponse(text="so", tool_calls=calls, items=items(LARGE))

    records = Records.in_folder(tmp_path) if lasting else None
    driver = LocalDriver(Agent(name="clerk", tools=()), model=FunctionModel(model), records=records)
    state = await driver.execute("x")
    assert [each.items for each in asked[-1].messages if each.role == "assistant"] == [items(LARGE)]
    kept = [each.items for each in state.messages if each.role == "assistant"]
    assert [[item.digest is not None for item in each] for each in kept] == [[lasting], [lasting]]
