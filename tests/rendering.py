"""Markdown as a browser would get it: read by a parser that makes tables, and links of bare addresses too."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

from holdfast.core.conversation.markdown_escaping import GAP

READER = MarkdownIt("gfm-like")
ACTIVE = {"link_open", "image", "html_inline", "html_block", "heading_open"}
"""What foreign words must never become."""

HOSTILE = (
    "|a\n\n| b | c |`x`` <script>alert(1)</script> [click](http://evil/) ![i](http://evil/i)\n# h\n&lt; ~~s~~ \\| \\"
)
STEERING = "\u202e\x1b[31mred\u2028\u0000"


def kinds(text: str) -> list[str]:
    """The kinds of all that stands in it."""
    return [token.type for token in _all(READER.parse(text))]


def words_in(text: str) -> str:
    """What a reader sees, without any markup."""
    return " ".join(
        token.content for token in _all(READER.parse(text)) if token.type in ("text", "code_inline", "fence")
    )


def outside_code(text: str) -> str:
    """What is left without code: nothing that anybody has said may be in it."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"```text\n.*?\n```", "", text, flags=re.DOTALL))


def rows(text: str) -> list[list[int]]:
    """For each table the number of cells of each of its rows."""
    found: list[list[int]] = []
    for token in READER.parse(text):
        match token.type:
            case "table_open":
                found.append([])
            case "tr_open":
                found[-1].append(0)
            case "th_open" | "td_open":
                found[-1][-1] += 1
            case _:
                pass
    return found


def assert_tame(text: str) -> None:
    """Nothing in it can be clicked or loaded, and every table has rows of one length."""
    assert not ACTIVE & set(kinds(text)), text
    for table in rows(text):
        assert len(set(table)) == 1, text
    assert all(char.isprintable() or char in f"\n{GAP}" for char in text), ascii(text)
    bare = outside_code(text)
    assert not re.search(r"[`\[<]|://|mailto:", bare), bare  # what a more generous reader takes for a link


def _all(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _all(token.children or [])
