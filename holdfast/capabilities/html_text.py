"""`readable`: the text of an HTML page, as a person reads it. Runs no script and loads nothing.

The scanner takes time in proportion to the page, whatever it holds: pages are written by strangers, and
`html.parser` takes minutes for 64 KB of `<a<a<a`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urljoin

RAW: Final = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object", "textarea", "title"})
"""Elements whose content is skipped whole; of a title it is the page's."""

BLOCKS: Final = frozenset(
    (
        *("address", "article", "aside", "blockquote", "br", "div", "dl", "dt", "fieldset", "figcaption", "figure"),
        *("footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre"),
        *("dd", "section", "table", "tr", "ul"),
    )
)
"""Elements that begin a line."""

BEFORE: Final = {**{f"h{level}": f"\n{'#' * level} " for level in range(1, 7)}, "li": "- ", "td": " | ", "th": " | "}
"""What stands before an element's text."""

INDENT: Final = "\0"
"""Stands for a space of preformatted text, which stays; no page can hold it."""

LINK_CHARS_MAX: Final = 2_000
"""The longest address of a link that is shown; a longer one (a `data:` picture) is left out."""

LINKS_CHARS_MAX: Final = 500_000
"""How much the addresses of one page's links take together: made absolute, a short one is as long as the page's."""

_TAG: Final = re.compile(r"""<(/?)([a-zA-Z][^\s/>]*+)((?:[^>"']|"[^"]*"|'[^']*')*+)>""")
_ATTRIBUTE: Final = re.compile(r"""(?<![^\s=>"'/])([^\s=>"'/]++)\s*+=\s*+("[^"]*"|'[^']*'|[^\s"'>]+)""")
_SPACE: Final = re.compile(r"\s+")
_LINES: Final = re.compile(r"\n{3,}")


def readable(page: str, base: str) -> tuple[str, str]:
    """Return a page's title and its text: headings, list items and links as Markdown has them.

    Links become absolute, against `base`.
    """
    title, link, preformatted, links_left = "", "", 0, LINKS_CHARS_MAX
    parts: list[str] = []
    for closing, tag, text in _tokens(page.replace(INDENT, "")):
        if tag == "title":
            title = title or _plain(text)
        elif not tag:
            shown = _unescaped(text)
            parts.append(shown.replace(" ", INDENT) if preformatted else _SPACE.sub(" ", shown))
        elif tag == "pre":
            preformatted = max(0, preformatted - 1) if closing else preformatted + 1
            parts.append("\n")
        elif tag == "a":
            parts.append(f"]({link})" if link else "")
            link = "" if closing or links_left <= 0 else _link(text, base)
            links_left -= len(link)
            parts.append("[" if link else "")
        elif tag == "img":
            about = _plain(_attribute(text, "alt"))
            parts.append(f"[picture: {about}]" if about else "")
        else:
            parts.append("\n" if tag in BLOCKS else "")
            parts.append("" if closing else BEFORE.get(tag, ""))
    lines = (line.strip(" ") for line in "".join(parts).split("\n"))
    return title, _LINES.sub("\n\n", "\n".join(lines)).strip().replace(INDENT, " ")


def _tokens(page: str) -> Iterator[tuple[bool, str, str]]:
    """Yield texts, as those of no tag, and tags with their attributes; a title comes as one tag with its text.

    What has no end (a comment, a tag, a script) ends with the page, as in a browser.
    """
    at = 0
    while at < len(page):
        start = page.find("<", at)
        yield False, "", page[at : start if start >= 0 else None]
        if start < 0:
            return
        following = page[start + 1 : start + 3]
        if following[:1] in ("!", "?") or (following[:1] == "/" and not following[1:].isalpha()):
            end = "-->" if page.startswith("<!--", start) else ">"
            stop = page.find(end, start + 1)
            at = stop + len(end)
        elif following.lstrip("/")[:1].isalpha():
            found = _TAG.match(page, start)
            stop = -1 if found is None else found.end()
            if found is not None:
                tag = found[2].lower()
                at, raw = _after_raw(page, tag, stop) if tag in RAW and not found[1] else (stop, found[3])
                yield bool(found[1]), tag, raw
        else:
            yield False, "", "<"
            stop = at = start + 1
        if stop < 0 or at < 0:
            return


def _after_raw(page: str, tag: str, at: int) -> tuple[int, str]:
    """Return where an element ends whose content is no HTML, -1 for never, and the content."""
    found = re.compile(rf"</{re.escape(tag)}\b", re.IGNORECASE).search(page, at)
    return (-1, page[at:]) if found is None else (found.start(), page[at : found.start()])


def _attribute(attributes: str, name: str) -> str:
    for found in _ATTRIBUTE.finditer(attributes):
        if found[1].lower() == name:
            return _unescaped(found[2].strip("\"'"))
    return ""


def _link(attributes: str, base: str) -> str:
    """Return where a link leads; empty for a place in the page and for anything but HTTP."""
    href = _attribute(attributes, "href").strip()
    if not href or href.startswith("#") or len(href) > LINK_CHARS_MAX:
        return ""
    try:
        whole = urljoin(base, href)
    except ValueError:
        return ""
    return whole if whole.startswith(("http://", "https://")) and len(whole) <= LINK_CHARS_MAX else ""


def _plain(text: str) -> str:
    return _SPACE.sub(" ", _unescaped(text)).strip()


def _unescaped(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # a character number with thousands of digits
        return text
