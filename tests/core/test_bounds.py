"""The bounds fit into each other as their comments say."""

from __future__ import annotations

from holdfast.core.base import bounds
from holdfast.core.conversation.provider_items import ITEMS_BYTES_MAX


def test_every_limit_names_a_positive_number_with_its_unit() -> None:
    found = {name: value for name, value in vars(bounds).items() if name.endswith("_MAX")}
    assert found
    assert all(isinstance(value, int | float) and value > 0 for value in found.values())


def test_a_question_and_a_definition_fit_one_start() -> None:
    assert bounds.QUESTION_BYTES_MAX + bounds.DEFINITION_BYTES_MAX < bounds.PAYLOAD_BYTES_MAX


def test_text_reasoning_arguments_and_items_of_an_answer_fit_one_result() -> None:
    answer = bounds.RESPONSE_BYTES_MAX + bounds.REASONING_BYTES_MAX + bounds.ARGUMENTS_BYTES_MAX + ITEMS_BYTES_MAX
    texts = bounds.NAME_CHARS_MAX + bounds.MALFORMED_CHARS_MAX + bounds.CALL_ID_CHARS_MAX
    texts_about_calls = bounds.CALLS_KEPT_MAX * texts
    assert answer + texts_about_calls < bounds.PAYLOAD_BYTES_MAX


def test_the_results_and_arguments_of_a_step_fit_one_answer_of_a_query() -> None:
    assert bounds.TOOL_RESULT_BYTES_MAX < bounds.PAYLOAD_BYTES_MAX
    changed = max(bounds.EDITS_STEP_BYTES_MAX, bounds.HOOK_CHANGES_STEP_BYTES_MAX)
    whole = bounds.STEP_RESULTS_BYTES_MAX + bounds.PAYLOAD_BYTES_MAX + changed
    assert whole < bounds.ANSWER_INLINE_BYTES_MAX < 2 * 1024 * 1024, "the server refuses more"


def test_a_delta_fits_one_input_and_a_page_one_query() -> None:
    assert bounds.DELTA_BYTES_MAX < bounds.PAYLOAD_BYTES_MAX
    assert bounds.PAGE_BYTES_MAX < 2 * 1024 * 1024, "the server refuses more"


def test_what_runs_of_a_step_is_part_of_what_is_kept() -> None:
    assert bounds.CALLS_PER_STEP_MAX < bounds.CALLS_KEPT_MAX
