"""Takes the pictures of docs/watching.md in a real terminal, from real runs: `make captures` (needs tmux)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from holdfast.testing.openai_server import FakeOpenAI
from tests.cli.program import SCRIPTS, Project, start_id
from tests.cli.tmux import tmux

PAGE: Final = Path(__file__).resolve().parents[1] / "watching.md"
COLUMNS: Final = 100
LIMITS: Final = ("--max-steps", "5", "--max-tokens", "10000", "--max-seconds", "600")


def taken(project: Project) -> Iterator[tuple[str, str]]:
    """Give each picture by its name; the project's `holdfast dev` must run."""
    execution_id = start_id(project, "desk", *LIMITS)
    with tmux(project, f"holdfast watch {execution_id}", columns=COLUMNS, lines=20) as terminal:
        yield "watch", terminal.shows(" / 5", "waits for approval", "Dear customer")
    for agent in ("slow", "careful"):
        start_id(project, agent, *LIMITS)
    with tmux(project, "holdfast top", columns=COLUMNS + 16, lines=22) as terminal:
        terminal.shows("slow", "careful", "desk", "writer")
        terminal.shows(*["seconds"] * 4, "1 call")
        terminal.types("<")  # by what is used of the budget
        terminal.shows("by budget")
        terminal.types("Enter")
        yield "top", terminal.shows("run ", "0 / 5")


def shown(page: str, pictures: Mapping[str, str]) -> str:
    """Return the page with these pictures in their places. Raises ValueError where it has none for one."""
    for name, screen in pictures.items():
        begin, end = f"<!-- taken: {name} (make captures) -->\n", "<!-- end -->"
        if page.count(begin) != 1:
            raise ValueError(f"the page has {page.count(begin)} places marked {begin.strip()!r}, it needs one")
        head, _, rest = page.partition(begin)
        lines = "\n".join(line.rstrip() for line in screen.rstrip().splitlines())
        page = f"{head}{begin}\n```text\n{lines}\n```\n\n{end}{rest.partition(end)[2]}"
    return page


def main() -> None:
    """Take all pictures anew."""
    with FakeOpenAI.in_thread(SCRIPTS) as endpoint, tempfile.TemporaryDirectory() as folder:
        project = Project.at(Path(folder) / "project", endpoint.base_url)
        with project.dev():
            pictures = dict(taken(project))
    PAGE.write_text(shown(PAGE.read_text(encoding="utf-8"), pictures), encoding="utf-8")


if __name__ == "__main__":
    main()
