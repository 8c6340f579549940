"""What the scripted model makes of the tools' answers: files, hits and quotes, by rules of thumb. Asks for nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

QUESTION_CHARS_MAX: Final = 2_000
"""How much of a question is read; the words that matter come early."""

SEARCHES_MAX: Final = 3
QUOTE_CHARS_MAX: Final = 160

FIRST_NAMES: Final = ("readme", "index", "main", "pyproject", "package", "cargo", "makefile")
"""Where to begin reading, best first."""

BINARY_SUFFIXES: Final = frozenset(
    ".png .jpg .jpeg .gif .ico .pdf .zip .gz .xz .tar .whl .so .o .a .exe .bin .db .sqlite .woff .woff2 .mp4 .lock".split()  # noqa: SIM905, E501
)
MINOR: Final = re.compile(
    r"(^|/)(tests?|examples?|bench\w*|fixtures?|vendor|third_party|dist|build|changelog)\b|\.lock$", re.IGNORECASE
)
_SAYS: Final = re.compile(r"(?!import |from |#?include|img |https?:|\[!\[)(?=.*[^\W\d_]{3}.*[^\W\d_]{3})")
DEFINES: Final = re.compile(
    r"\s*(?:export |pub |public |private |static |async |abstract |final )*"
    r"(?:class|def|func|fn|function|struct|interface|trait|module|enum|type)\s+(\w+)"
)
STOPWORDS: Final = frozenset(
    "a about all an and any are as at be been but by can code could defined did do does each file files find folder "  # noqa: SIM905
    "for from get give has have here how i in into is it its just know like list look made make many me more most my "
    "need no not of on one or other our out please project repo repository say says see should show so some tell than "
    "that the their them then there these they this those to two use used uses using was way we were what when where "
    "which who why will with work works would you your das der die ein eine ist und wer wie wo".split()
)


@dataclass(frozen=True, slots=True)
class Listing:
    """The answer of list_files."""

    text: str
    sizes: dict[str, int]

    @property
    def paths(self) -> list[str]:
        """The files that are not empty, in order."""
        return [path for path, size in self.sizes.items() if size]

    @property
    def summary(self) -> str:
        """How many files of which kinds there are, as a sentence."""
        kinds = Counter(PurePosixPath(path).suffix or "no suffix" for path in self.sizes)
        told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(3))
        head = self.text.splitlines()[0].removesuffix(":")
        return f"{head}; most of those listed are {told}."


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that search_text found; `weight` is the larger, the more it looks like the place."""

    path: str
    line: int
    text: str
    weight: float


@dataclass(frozen=True, slots=True)
class Page:
    """The answer of read_file: the path and its numbered lines."""

    path: str
    lines: tuple[tuple[int, str], ...]

    @property
    def telling(self) -> list[tuple[int, str]]:
        """The lines that say something in words, ready to be quoted: no blanks, badges, markup or imports."""
        stripped = ((number, text.strip().lstrip("#\"'*=-/<>! ").rstrip("\"'*=#` ")) for number, text in self.lines)
        return [(number, short(text)) for number, text in stripped if _SAYS.match(text)]


def listing(answer: str) -> Listing:
    """Read what list_files said; an error or an empty folder gives no files."""
    found = re.findall(r"^(.+) \(([\d,]+) bytes\)$", answer, re.MULTILINE)
    return Listing(answer, {path: int(size.replace(",", "")) for path, size in found})


def page(answer: str) -> Page:
    """Read what read_file said; an error gives no lines."""
    head, _, rest = answer.partition("\n")
    named = re.match(r"(.+), lines [\d,]+ to [\d,]+ of ", head)
    lines = re.findall(r"^(\d+): (.*)$", rest, re.MULTILINE)
    return Page(named[1] if named else "", tuple((int(number), text) for number, text in lines))


def first_file(found: Listing, question: str) -> str | None:
    """Return the file to read first: one that the question names, a README or the like, else the uppermost text."""
    texts = [path for path in found.paths if PurePosixPath(path).suffix.lower() not in BINARY_SUFFIXES]
    asked = question[:QUESTION_CHARS_MAX].lower()
    for path in texts:
        if "." in path and re.search(rf"(?<![\w/.-]){re.escape(PurePosixPath(path).name.lower())}\b", asked):
            return path
    ranked = sorted(texts or found.paths, key=_rank)
    return ranked[0] if ranked else None


def searches(question: str) -> list[str]:
    """Return what to search for, the most telling first: two words that belong together, then single long ones."""
    words = [word for word in re.findall(r"[^\W_][\w-]*", question[:QUESTION_CHARS_MAX].casefold()) if len(word) < 60]  # noqa: PLR2004
    telling = [word not in STOPWORDS and (len(word) > 2 or not word.isascii()) for word in words]  # noqa: PLR2004
    pairs = [
        (one, two)
        for one, two, good, better in zip(words, words[1:], telling, telling[1:], strict=False)
        if good and better
    ]
    found = [joined for one, two in pairs[-1:] for joined in (f"{one}{two}", f"{one} {two}")]
    singles = sorted((word for word, good in zip(words, telling, strict=True) if good), key=len, reverse=True)
    return list(dict.fromkeys([*found, *singles]))[:SEARCHES_MAX]


def best_hits(answers: Sequence[tuple[str, str]]) -> list[Hit]:
    """Return the lines that the searches found, given as (text, answer): the most telling first, one per file."""
    best: dict[str, Hit] = {}
    for place, (wanted, answer) in enumerate(answers):
        if failed(answer):
            continue
        for path, line, text in re.findall(r"^(.+?):(\d+): (.*)$", answer.partition("\n")[2], re.MULTILINE):
            hit = Hit(path, int(line), short(text), _weight(path, text, wanted) - 2 * place)
            if path not in best or hit.weight > best[path].weight:
                best[path] = hit
    return sorted(best.values(), key=lambda hit: -hit.weight)


def failed(answer: str) -> bool:
    """Whether a tool's answer is an error, as the loop words it."""
    return answer.startswith("Error (")


def short(text: str, *, strip: bool = True) -> str:
    """Return a line as it is quoted."""
    text = text.strip() if strip else text.rstrip()
    return text if len(text) <= QUOTE_CHARS_MAX else f"{text[:QUOTE_CHARS_MAX].rstrip()}..."


def _weight(path: str, text: str, wanted: str) -> float:
    weight = -0.2 * path.count("/")
    if (defined := DEFINES.match(text)) and wanted in defined[1].casefold():
        weight += 6
    weight += 2 if text.startswith("#") else 0
    weight -= 6 if MINOR.search(path) else 0
    weight -= 4 if re.match(r"\s*(import|from|#\s*include|use|require)\b", text) else 0
    return weight


def _rank(path: str) -> tuple[int, int, int]:
    stem = PurePosixPath(path).name.lower().split(".")[0]
    place = FIRST_NAMES.index(stem) if stem in FIRST_NAMES else len(FIRST_NAMES)
    return path.count("/") if place == 0 else path.count("/") + 1, place, path.startswith(".")
