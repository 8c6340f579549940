"""HTML and SVG as trees of elements, so that no text can ever become markup. Knows nothing of runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element as Element  # noqa: PLC0414  # ours too
from xml.etree.ElementTree import tostring

from holdfast.core.base.safe_text import printable

Content = Element | str | None
"""What stands in an element: another one, a text, or nothing."""


def element(tag: str, *content: Content | Iterable[Content], **attributes: object) -> Element:
    """Return an element. Of an attribute's name `_` stands for `-` and one at its end is left out; none is no value."""
    result = Element(
        tag, {_name(name): xml_text(str(value)) for name, value in attributes.items() if value is not None}
    )
    for each in _flat(content):
        _append(result, each)
    return result


def xml_text(text: str) -> str:
    """Return `text` without what is no character of XML: control characters and half ones are shown as escapes."""
    return printable(text)


def html_document(root: Element) -> str:
    """Return the markup of a whole HTML document."""
    return "<!DOCTYPE html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def picture(root: Element) -> str:
    """Return the markup of an SVG picture as a document of its own, which is XML."""
    return tostring(root, encoding="unicode")


def styled(css: str) -> Element:
    """Return a style sheet of ours. HTML reads it as it stands, so nothing foreign may be in it."""
    result = Element("style")
    result.text = css
    return result


def _append(parent: Element, content: Content) -> None:
    if isinstance(content, Element):
        parent.append(content)
    elif content is not None:
        text = xml_text(content)
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + text
        else:
            parent.text = (parent.text or "") + text


def _flat(content: Iterable[Content | Iterable[Content]]) -> Iterator[Content]:
    for each in content:
        if each is None or isinstance(each, (str, Element)):
            yield each
        else:
            yield from each


def _name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")
