"""A scripted model in a real one's place: it asks for the tools a detective would ask for, and quotes what they say.

It understands nothing. Which turn it takes follows from the request alone, as a script's must, so a request that is
repeated after a crash gets the same answer, from this process or another one.

    1  list_files
    2  read_file of a README or the like, and search_text for the question's words, all at once
    3  read_file around the best hit, where there is one elsewhere
    4  the answer: quotes with file and line, and that a script wrote it
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from examples.repo_detective.reading import (
    Hit,
    Listing,
    Page,
    best_hits,
    failed,
    first_file,
    listing,
    page,
    searches,
    short,
)
from holdfast.testing import Call, Reply, calls, say

DELAY_SECONDS: Final = 0.3
"""How long each answer takes, so that one can watch."""

CHARS_PER_TOKEN: Final = 4
"""A rule of thumb for English; it makes the usage look like a real one's."""

LINES_FIRST: Final = 60
LINES_AROUND: Final = 30
LINES_BEFORE: Final = 2
QUOTES_MAX: Final = 4
LINES_QUOTED_MAX: Final = 8

SIGNED: Final = (
    "(A scripted model wrote this: it quotes what the tools found and understands nothing. "
    "Set OPENAI_API_KEY or OPENAI_BASE_URL to ask a real one.)"
)


@dataclass(frozen=True, slots=True)
class Round:
    """One earlier turn of ours in this conversation: the calls it asked for and what the tools said to each."""

    asked: tuple[Call, ...]
    answers: tuple[str, ...]

    def of(self, name: str) -> tuple[str, ...]:
        """Return what the tool of this name said."""
        pairs = zip(self.asked, self.answers, strict=False)
        return tuple(answer for call, answer in pairs if call.name == name)


def script(request: dict[str, Any]) -> Reply:
    """Return the turn that answers the request."""
    question, spoken = _conversation(request["messages"])
    rounds: list[Round] = []
    for answers in spoken:  # what we asked for then follows from what we knew then
        rounds.append(Round(_turn(question, rounds).calls, answers))
    turn = _turn(question, rounds)
    return _priced(turn, request["messages"])


def _turn(question: str, rounds: Sequence[Round]) -> Reply:
    match len(rounds):
        case 0:
            return calls(Call("list_files", {"pattern": "**/*"}), text="I look at what is there.")
        case 1:
            return _second(question, _listed(rounds))
        case 2 if hit := _best_elsewhere(question, rounds):
            start = max(1, hit.line - LINES_BEFORE)
            around = {"path": hit.path, "start_line": start, "lines": LINES_AROUND}
            return calls(Call("read_file", around), text=f"{hit.path}:{hit.line} looks like the place.")
        case _:
            return say(_answer(question, rounds))


def _second(question: str, found: Listing) -> Reply:
    first = first_file(found, question)
    if first is None:
        return say(_answer(question, [Round((), (found.text,))]))
    wanted = [Call("search_text", {"text": text}) for text in searches(question)]
    read = Call("read_file", {"path": first, "start_line": 1, "lines": LINES_FIRST})
    return calls(*wanted, read, text=f"I read {first} and search for the question's words.")


def _hits(question: str, rounds: Sequence[Round]) -> list[Hit]:
    return (
        best_hits(list(zip(searches(question), rounds[1].of("search_text"), strict=False))) if len(rounds) > 1 else []
    )


def _best_elsewhere(question: str, rounds: Sequence[Round]) -> Hit | None:
    """Return the best hit in a file that has not been read."""
    read = {page(text).path for text in rounds[1].of("read_file")}
    return next((hit for hit in _hits(question, rounds) if hit.path not in read), None)


def _answer(question: str, rounds: Sequence[Round]) -> str:
    found = _listed(rounds)
    if not found.paths:
        told = found.text.splitlines()[0] if found.text else "nothing"
        return f'I cannot answer that, because there is nothing to read; list_files says "{told}".\n\n{SIGNED}'
    pages = [page(text) for each in rounds for text in each.of("read_file")]
    troubles = sorted({trouble for each in rounds for trouble in _troubles(each)})
    said = [
        found.summary,
        *(_opening(each) for each in pages[:1]),
        _hits_told(question, rounds),
        *(_quoted(each) for each in pages[1:]),
        *(f"One call failed: {trouble}" for trouble in troubles),
        f"\n{SIGNED}",
    ]
    return "\n".join(filter(None, said))


def _opening(first: Page) -> str:
    """Quote how the first file begins."""
    quotes = [f'"{text}" ({first.path}:{number})' for number, text in first.telling[:2]]
    return f"{first.path} begins like this: {', then '.join(quotes)}." if quotes else ""


def _hits_told(question: str, rounds: Sequence[Round]) -> str:
    wanted = searches(question)
    if len(rounds) < 2 or not wanted:  # noqa: PLR2004  # the search is in the second
        return ""
    named = ", ".join(f'"{text}"' for text in wanted)
    hits = [f'  {hit.path}:{hit.line}  "{hit.text}"' for hit in _hits(question, rounds)[:QUOTES_MAX]]
    if not hits:
        return f"I searched for {named} and found nothing."
    return "\n".join([f"I searched for {named}. The most telling places:", *hits])


def _quoted(read: Page) -> str:
    """Quote the place that was looked up last."""
    quoted = [f"  {number}: {short(text, strip=False)}" for number, text in read.lines if text.strip()][
        :LINES_QUOTED_MAX
    ]
    return "\n".join([f"{read.path} says there:", *quoted]) if quoted else ""


def _troubles(of: Round) -> list[str]:
    pairs = zip(of.asked, of.answers, strict=False)
    return [f"{call.name}: {text.splitlines()[0]}" for call, text in pairs if failed(text)]


def _conversation(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[tuple[str, ...]]]:
    """Return the latest question, and for each turn of ours since then what the tools answered."""
    at = max((index for index, message in enumerate(messages) if message["role"] == "user"), default=-1)
    question = _text(messages[at]) if at >= 0 else ""
    spoken: list[tuple[str, ...]] = []
    for message in messages[at + 1 :]:
        if message["role"] == "assistant":
            spoken.append(())
        elif message["role"] == "tool" and spoken:
            spoken[-1] = (*spoken[-1], _text(message))
    return question, spoken


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(str(part.get("text", "")) for part in content)


def _listed(rounds: Sequence[Round]) -> Listing:
    return listing(rounds[0].answers[0] if rounds[0].answers else "")


def _priced(turn: Reply, messages: Sequence[Mapping[str, Any]]) -> Reply:
    """Return the turn with the tokens that a real model would have counted, roughly, and its delay."""
    sent = len(json.dumps(messages, default=str))
    received = len(turn.text or "") + sum(len(call.arguments_text) for call in turn.calls)
    usage = (sent // CHARS_PER_TOKEN, received // CHARS_PER_TOKEN)
    return Reply(text=turn.text, calls=turn.calls, usage=usage, delay_seconds=DELAY_SECONDS)
