"""The documentation's site builds strictly and without a network, is whole, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[1]
SECONDS_MAX = 300
OFFLINE = (
    "import socket; socket.socket.connect = None; socket.getaddrinfo = None; from mkdocs.__main__ import cli; cli()"
)
PARTS = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src"}
"""What a browser fetches by itself, and the attribute that says from where."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS_MAX + 30)]  # whichever test is the first builds the site


class Read(HTMLParser):
    """A page's links, ids, and what a browser loads for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links = set[str]()
        self.ids = set[str]()
        self.loaded = set[str]()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if PARTS.get(tag, "") in given:
            self.loaded.add(given[PARTS[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    said = (done.stdout + done.stderr).splitlines()
    assert (done.returncode, [line for line in said if not line.startswith("INFO ")]) == (0, [])
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Read]:
    return {path: Read(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_page_of_the_documents_is_on_the_site_and_in_its_navigation(site: Path, pages: dict[Path, Read]) -> None:
    written = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert len(written) > 20
    first = (site / "index.html").read_text(encoding="utf-8")
    navigation = first[first.index("md-nav--primary") : first.rindex("md-nav--secondary")]
    for page in written:
        assert site / page in pages
        assert f'href="{page.as_posix()}"' in navigation, page


def test_a_page_loads_nothing_from_elsewhere(site: Path, pages: dict[Path, Read]) -> None:
    for path, page in pages.items():
        assert page.loaded
        for each in page.loaded:
            assert not urlsplit(each).netloc, (path, each)
            assert (path.parent / unquote(urldefrag(each)[0])).exists(), (path, each)
        assert "mermaid" not in page.ids
        assert 'class="mermaid"' not in path.read_text(encoding="utf-8"), "the theme would fetch a program for it"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_every_link_and_anchor_within_the_site_leads_somewhere(site: Path, pages: dict[Path, Read]) -> None:
    checked = 0
    for path, page in pages.items():
        for link in page.links:
            target, anchor = urldefrag(link)
            if urlsplit(link).scheme:
                continue
            found = (path.parent / unquote(target)).resolve() if target else path
            found = found / "index.html" if found.is_dir() else found
            assert found.is_relative_to(site), (path, link)
            assert found.is_file(), (path, link)
            if anchor and found in pages:
                assert unquote(anchor) in pages[found].ids, (path, link)
                checked += 1
    assert checked > 100


def test_the_search_knows_what_the_pages_say(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "holdfast.client.Holdfast.watch" in index
    assert "pause_while_waiting" in index


@pytest.mark.parametrize(
    "module",
    ["holdfast", "holdfast.client", "holdfast.client.sync", "holdfast.local", "holdfast.sinks", "holdfast.testing"],
)
def test_the_reference_has_every_public_name(module: str, site: Path, pages: dict[Path, Read]) -> None:
    ids = pages[site / "reference" / f"{module.rpartition('.')[2]}.html"].ids
    names: list[str] = import_module(module).__all__
    assert {name for name in names if f"{module}.{name}" not in ids} == set()


def test_the_reference_tells_what_the_sources_say(site: Path) -> None:
    page = (site / "reference" / "holdfast.html").read_text(encoding="utf-8")
    assert "The limits of one execution; none means unlimited." in page
    assert ">max_steps<" in page
