"""Makes a picture (SVG) of a diagram written in Mermaid, with Debian's Chromium and Mermaid from npm."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from playwright.sync_api import sync_playwright

MERMAID: Final = "mermaid@11.17.2"
DRAW: Final = """async source => {
    mermaid.initialize({
        startOnLoad: false, htmlLabels: false, fontFamily: "sans-serif", theme: "neutral", deterministicIds: true,
        state: {nodeSpacing: 110, rankSpacing: 70}, flowchart: {htmlLabels: false, nodeSpacing: 110},
    });
    return (await mermaid.render("picture", source)).svg;
}"""


def digest_of(source: str) -> str:
    """Return what a picture of `source` bears, so that an old one is noticed without drawing it anew."""
    return sha256(source.encode()).hexdigest()


def is_of(picture: Path, source: str) -> bool:
    """Return whether that file is there and was drawn from `source`."""
    return picture.exists() and digest_of(source) in picture.read_text(encoding="utf-8")


def pictures(sources: dict[Path, str]) -> None:
    """Draw each source into its file; needs npm (with its registry) and chromium."""
    chromium, npm = shutil.which("chromium"), shutil.which("npm")
    if chromium is None or npm is None:
        raise SystemExit("drawing needs the programs chromium and npm: install them, e.g. apt install chromium npm")
    with TemporaryDirectory() as folder, sync_playwright() as play:
        packed = subprocess.run(  # noqa: S603  # a fixed command
            [npm, "pack", "--silent", MERMAID], cwd=folder, check=True, capture_output=True, text=True
        )
        with tarfile.open(Path(folder) / packed.stdout.strip()) as archive:
            archive.extract("package/dist/mermaid.min.js", folder, filter="data")
        browser = play.chromium.launch(executable_path=chromium)
        page = browser.new_page()
        page.set_content("<html><body></body></html>")
        page.add_script_tag(path=f"{folder}/package/dist/mermaid.min.js")
        for path, source in sources.items():
            drawn = str(page.evaluate(DRAW, source)).replace('style="', 'style="background: white; ', 1)
            path.write_text(f"{drawn}\n<!-- {digest_of(source)} -->\n", encoding="utf-8")
        browser.close()
