"""The site's hook: puts files that pages link to, but that lie outside of docs/, on the site, and leads links there.

A page links to `../examples/approval.py` as it lies in the repository, so that the link works where the repository is
browsed. On the site that file is a page of its own under `repository/`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
PLACE: Final = "repository/"
LINK: Final = re.compile(r"\[(?P<words>[^\[\]]*)\]\((?!\w+:|#)(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
ALWAYS: Final = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "bench/README.md", "examples/README.md")
"""What the navigation names."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add every file outside of docs/ that a page links to, and what those link to in turn."""
    wanted = [*ALWAYS, *(each for page in files.documentation_pages() for each in _outside(f"docs/{page.src_uri}"))]
    added: set[str] = set()
    while wanted:
        path = wanted.pop()
        if path not in added:
            added.add(path)
            content = _text(path)
            files.append(File.generated(config, _uri(path), content=content))
            wanted += _outside(path)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead each link of the page to where the file is on the site."""
    del config, files
    own = page.file.src_uri
    path = own.removeprefix(PLACE) if own.startswith(PLACE) else f"docs/{own}"
    if not path.endswith(".md") or (own.startswith(PLACE) and not (ROOT / path).exists()):
        return markdown  # a program's text, which is no Markdown
    return LINK.sub(lambda link: _led(link, path, own), markdown)


def _led(link: re.Match[str], path: str, own: str) -> str:
    """Return a link of the file `path`, which is the page `own`, as it has to be on the site."""
    found = _resolved(path, link["target"])
    if found is None:
        return link[0]
    target = posixpath.relpath(_uri(found), posixpath.dirname(own) or ".")
    is_named = found.endswith(".md") and link["words"].strip("`").endswith(posixpath.basename(found))
    words = _title(found) if is_named else link["words"]
    return f"[{words}]({target}{link['anchor'] or ''})"


def _title(path: str) -> str:
    """Return a document's title, which says more than its file's name."""
    head, _, _ = (ROOT / path).read_text(encoding="utf-8").partition("\n")
    return head.removeprefix("# ")


def _outside(path: str) -> Iterator[str]:
    """Yield the files outside of docs/ that the Markdown file `path` links to."""
    if path.endswith(".md") and (ROOT / path).exists():
        found = (_resolved(path, link["target"]) for link in LINK.finditer((ROOT / path).read_text(encoding="utf-8")))
        yield from (each for each in found if each and not each.startswith("docs/"))


def _resolved(path: str, target: str) -> str | None:
    """Return the repository's file that `target` means in the file `path`; none when there is no such file."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if (ROOT / found).is_dir() and (ROOT / found / "README.md").exists():
        found = f"{found}/README.md"
    return found if not found.startswith("..") and (ROOT / found).is_file() else None


def _uri(path: str) -> str:
    """Return where a file of the repository is among the pages of the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"{PLACE}{path}" if path.endswith(".md") else f"{PLACE}{path}.md"


def _text(path: str) -> str:
    """Return a Markdown file as it is, and any other as a block of code under its name."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n````{Path(path).suffix[1:]}\n{text}\n````\n"
