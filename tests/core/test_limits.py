"""The bounds fit into each other as their comments say."""

from __future__ import annotations

from holdfast.core import limits


def test_every_limit_names_a_positive_number_with_its_unit() -> None:
    found = {name: value for name, value in vars(limits).items() if name.endswith("_MAX")}
    assert found
    assert all(isinstance(value, int | float) and value > 0 for value in found.values())


def test_a_question_and_a_definition_fit_one_start() -> None:
    assert limits.QUESTION_BYTES_MAX + limits.DEFINITION_BYTES_MAX < limits.PAYLOAD_BYTES_MAX


def test_text_reasoning_and_arguments_of_an_answer_fit_one_result() -> None:
    answer = limits.RESPONSE_BYTES_MAX + limits.REASONING_BYTES_MAX + limits.ARGUMENTS_BYTES_MAX
    texts_about_calls = limits.CALLS_KEPT_MAX * (limits.NAME_CHARS_MAX + limits.MALFORMED_CHARS_MAX)
    assert answer + texts_about_calls < limits.PAYLOAD_BYTES_MAX


def test_the_results_and_arguments_of_a_step_fit_one_answer_of_a_query() -> None:
    assert limits.TOOL_RESULT_BYTES_MAX < limits.PAYLOAD_BYTES_MAX
    changed = max(limits.EDITS_STEP_BYTES_MAX, limits.HOOK_CHANGES_STEP_BYTES_MAX)
    whole = limits.STEP_RESULTS_BYTES_MAX + limits.PAYLOAD_BYTES_MAX + changed
    assert whole < limits.ANSWER_INLINE_BYTES_MAX < 2 * 1024 * 1024, "the server refuses more"


def test_a_delta_fits_one_input_and_a_page_one_query() -> None:
    assert limits.DELTA_BYTES_MAX < limits.PAYLOAD_BYTES_MAX
    assert limits.PAGE_BYTES_MAX < 2 * 1024 * 1024, "the server refuses more"


def test_what_runs_of_a_step_is_part_of_what_is_kept() -> None:
    assert limits.CALLS_PER_STEP_MAX < limits.CALLS_KEPT_MAX
