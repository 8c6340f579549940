"""Foreign words in Markdown stay words, in a line, in a cell and in a block."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.conversation.markdown_escaping import GAP, bar, block, code, table
from tests.rendering import HOSTILE, STEERING, assert_tame, kinds, rows, words_in

any_text = st.text(st.characters(codec="utf-8"), max_size=60) | st.text("|`\\[]()<>!*_# \n&~-a", max_size=60)


@given(any_text, any_text)
def test_a_table_keeps_its_shape_whatever_stands_in_it(one: str, other: str) -> None:
    made = table(("a", ">b", "c"), [(code(one, 80), code(other, 80), "x"), ("y", code(other, 80), code(one, 80))])
    assert rows(made) == [[3, 3, 3]]
    assert_tame(made)


def test_code_shows_what_was_said_but_for_what_would_end_it() -> None:
    assert code("a `b` | c \\ <d>\n[e](f)", 80) == "`a 'b' ¦ c \\ <d> [e](f)`"
    assert code("", 80) == "` `"


def test_the_columns_of_a_table_stand_apart_where_nothing_is_drawn_between_them() -> None:
    assert table(("a", ">b"), [("1", "2")]) == f"| a{GAP} | b |\n| --- | ---: |\n| 1{GAP} | 2 |"


def test_a_block_ends_where_its_text_does() -> None:
    for text in ("plain\n\n  lines", "```\nout\n```", "`````", HOSTILE, STEERING, ""):
        made = f"{block(text, 500)}\n\nafter"
        assert kinds(made)[0] == "fence"
        assert kinds(made).count("fence") == 1
        assert words_in(made).endswith("after")


@pytest.mark.parametrize(
    ("used", "limit", "told"),
    [(7, 10, "███████░░░ 70 %"), (0, 3, "░░░░░░░░░░ 0 %"), (999, 1_000, "█████████░ 99 %"), (5, 4, "██████████ 100 %")],
)
def test_a_bar_is_full_only_when_all_is_used(used: float, limit: float, told: str) -> None:
    assert bar(used, limit) == told


def test_a_limit_of_nothing_is_used_up() -> None:
    assert bar(0, 0) == "██████████ 100 %"
