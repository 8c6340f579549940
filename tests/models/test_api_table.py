"""The table of docs/models.md, "What each API can do": each cell has the tests that show it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]
PAGE: Final = TESTS.parent / "docs" / "models.md"
HEADING: Final = "## What each API can do"

COLUMNS: Final = (
    "stream",
    "tools",
    "parallel calls",
    "images",
    "PDF",
    "reasoning kept",
    "caching counted",
    "structured output",
    "cancel",
    "background",
    "server tools",
)

Named = dict[str, tuple[str, ...]]

CHAT: Final[Named] = {
    "stream": ("models/test_chat_stream.py::test_an_answer_is_the_same_wherever_the_network_cuts_it",),
    "tools": ("models/test_model.py::test_prompt_and_conversation_go_out_in_the_providers_terms",),
    "parallel calls": ("models/test_model.py::test_tool_calls_are_read_in_order",),
    "images": ("models/test_model.py::test_words_and_pictures_go_out_as_parts",),
    "PDF": ("models/test_sent_files.py::test_chat_completions_take_pdfs_as_files_sounds_as_audio_and_texts_in_tags",),
    "reasoning kept": ("models/test_chat_items.py::test_thought_signatures_stand_where_gemini_put_them",),
    "caching counted": (
        "models/test_usage_parts.py::test_the_parts_that_a_provider_reports_are_read_and_fit_their_whole",
    ),
    "structured output": ("models/test_model.py::test_a_schema_goes_out_as_the_response_format",),
    "cancel": ("models/test_model.py::test_cancelling_a_call_closes_its_connection",),
}
RESPONSES: Final[Named] = {
    "stream": ("models/test_openai_responses.py::test_the_listener_hears_the_id_first_then_the_words",),
    "tools": ("models/test_openai_responses.py::test_a_conversation_goes_out_in_the_providers_terms_byte_for_byte",),
    "parallel calls": (
        "models/test_openai_responses.py::test_parallel_calls_are_read_in_order_with_their_own_spelling",
    ),
    "images": ("models/test_openai_responses.py::test_words_and_pictures_go_out_as_parts",),
    "PDF": ("models/test_sent_files.py::test_responses_take_pdfs_as_input_files_texts_in_tags_and_words_for_sounds",),
    "reasoning kept": (
        "models/test_openai_responses.py::test_reasoning_goes_back_verbatim_in_its_place_and_without_its_id",
    ),
    "caching counted": ("models/test_openai_responses.py::test_the_parts_of_the_usage_are_parts_of_it",),
    "structured output": ("models/test_openai_responses.py::test_a_schema_goes_out_as_the_form_of_the_text",),
    "cancel": ("models/test_openai_responses.py::test_a_cancelled_call_closes_its_connection",),
    "background": (
        "models/test_background.py::test_another_client_resumes_the_answer_without_asking",
        "workflows/test_background_answers.py::test_a_stop_cancels_the_answer_at_the_provider",
    ),
    "server tools": (
        "models/test_server_tools.py::test_calls_are_counted_by_name_and_their_items_kept_in_place",
        "workflows/test_server_tools_in_both_drivers.py::test_a_run_with_tools_of_the_provider_ends_alike_in_both_drivers",
    ),
}
ANTHROPIC: Final[Named] = {
    "stream": ("models/test_anthropic.py::test_a_listener_sees_text_and_thinking_as_they_come",),
    "tools": ("models/test_anthropic.py::test_what_a_request_has_at_least",),
    "parallel calls": ("models/test_anthropic.py::test_thinking_goes_back_signed_and_in_its_place",),
    "images": ("models/test_anthropic.py::test_pictures_go_as_addresses_or_as_they_are",),
    "PDF": ("models/test_sent_files.py::test_anthropic_takes_pdfs_and_texts_as_documents_and_words_for_sounds",),
    "reasoning kept": ("models/test_anthropic.py::test_thinking_goes_back_signed_and_in_its_place",),
    "caching counted": ("models/test_anthropic.py::test_cached_tokens_are_parts_of_the_input",),
    "structured output": ("models/test_anthropic.py::test_a_strict_schema_is_enforced_and_another_is_described",),
    "cancel": ("models/test_anthropic_errors.py::test_cancelling_a_call_closes_the_connection_and_reports_what_came",),
    "server tools": ("models/test_server_tools.py::test_anthropics_calls_are_counted_and_go_back_with_their_results",),
}
PYDANTIC_AI: Final[Named] = {
    "stream": ("models/test_pydantic_ai.py::test_an_answer_is_read_with_its_usage_model_and_ids",),
    "tools": (
        "models/test_pydantic_ai.py::test_calls_and_what_the_provider_wants_back_return_in_their_place",
        "workflows/test_pydantic_ai_in_both_drivers.py::test_a_run_ends_alike_in_both_drivers",
    ),
    "parallel calls": (
        "models/test_pydantic_ai.py::test_calls_and_what_the_provider_wants_back_return_in_their_place",
    ),
    "images": ("models/test_pydantic_ai.py::test_pictures_are_sent_and_so_are_messages_of_every_role",),
    "PDF": ("models/test_pydantic_ai.py::test_files_are_sent_as_the_provider_takes_them",),
    "reasoning kept": (
        "models/test_pydantic_ai.py::test_thinking_goes_back_signed_hidden_one_too_and_to_its_own_endpoint_alone",
    ),
    "caching counted": ("models/test_pydantic_ai.py::test_parts_of_the_usage_are_parts_of_the_whole",),
    "structured output": (
        "models/test_pydantic_ai.py::test_a_typed_answer_is_enforced_by_the_provider_where_its_profile_says_so",
        "models/test_pydantic_ai.py::test_a_model_that_cannot_enforce_a_form_is_asked_for_it",
    ),
    "cancel": ("models/test_pydantic_ai_errors.py::test_a_stop_closes_the_connection_at_once",),
}
SHOWN: Final = {
    "chat completions": CHAT,
    "Responses": RESPONSES,
    "Anthropic": ANTHROPIC,
    "Pydantic AI": PYDANTIC_AI,
}
"""By row, the tests of each cell that says yes; a cell that says no has none."""


def table() -> dict[str, dict[str, str]]:
    """Return the page's table, by row and column."""
    first = PAGE.read_text().partition(f"\n{HEADING}\n\n")[2].partition("\n\n")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in first.splitlines()]
    head, _, *rows = lines
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


@cache
def functions_of(file: str) -> frozenset[str]:
    """Return the functions that a file of tests has."""
    tree = ast.parse((TESTS / file).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_page_has_a_cell_for_each_api_and_column() -> None:
    rows = table()
    assert list(rows) == list(SHOWN)
    assert all(tuple(row) == COLUMNS for row in rows.values())


@pytest.mark.parametrize("api", SHOWN)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_cell_says_what_tests_show(api: str, column: str) -> None:
    cell, named = table()[api][column], SHOWN[api].get(column, ())
    assert cell.startswith("no") is (not named), f"the page says {cell!r}, and its tests are {named}"
    for each in named:
        file, _, name = each.partition("::")
        assert Path(file).name.startswith("test_")
        assert name.startswith("test_")
        assert name in functions_of(file), f"{each} is not there"
