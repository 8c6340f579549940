"""Formats times, tokens and money for people, the same way on screens, pages and in the Web UI.

2026-11-21 14:05:09Z                      a moment, in UTC; 14:05:09Z beside another of the same day
350 ms, 4.2 s, 1 h 05 min                 how long something takes
3,120 tokens                              as the endpoint reported them
≈ 3,120 tokens                            some of them an upper bound: the endpoint did not report them
3,120 tokens (2,100 cached)               of the input, so many came from the provider's prompt cache
0.0024 USD
> 0.0024 USD (unpriced: model-x)          some tokens have no known price, those of model-x
> 0.0024                                  the same in a cell or beside a bar: what stands around it names them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

from holdfast.core.base.usage import Usage
from holdfast.core.conversation.display_text import on_a_line

ESTIMATED: Final = "≈ "
"""Stands before a number of tokens that holds an upper bound."""

UNKNOWN_PRICE: Final = "no price is known for "
"""The beginning of a sentence about a model without a price."""

PricePlace = Literal["llm", "fallback", "hook"]
"""Who has chosen a model: the definition, the definition as a fallback, or a hook for one call."""

PRICE_FIELDS: Final[Mapping[PricePlace, str]] = {
    "llm": "llm.prices",
    "fallback": "its prices in llm.fallback",
    "hook": "prices in the hook's ModelCallChanges",
}
"""Where whoever has chosen a model says what it costs."""

CALLS_OF: Final = "calls of "
"""Stands before the name of a provider's tool whose calls have no known price, where others have a model's name."""

CALLS_REMEDY: Final = "set usd_per_call of that tool in llm.server_tools"

WORKERS_MODEL: Final = "the worker's model"
"""Stands for a model that neither the definition nor the endpoint has named."""

SUBAGENTS_MODEL: Final = "the model of agent "
"""The same for one of a subagent that could not tell what it used; the agent's name follows."""

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
UNITS: Final = ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", 1, "s"))

THOUSAND: Final = 1_000
HUNDRED: Final = 100
MILLION: Final = 1_000_000

UNPRICED_MODELS_MAX: Final = 16
"""How many models without a price one execution remembers by name."""

MODELS_SHOWN: Final = 3
"""How many models without a price are named."""


def moment(at: datetime | None, since: datetime | None = None) -> str:
    """Return a time in UTC, as `2026-11-21 14:05:09Z`; on the same day as `since` as `14:05:09Z`; `–` for none."""
    if at is None:
        return "–"
    try:
        at = at.astimezone(UTC)
    except OverflowError:  # at the very end of what calendars hold
        return at.isoformat(" ", "seconds")
    if since is not None and at.date() == since.astimezone(UTC).date():
        return f"{at:%H:%M:%S}Z"
    return f"{at.replace(tzinfo=None).isoformat(' ', 'seconds')}Z"


def duration(seconds: float | None) -> str:
    """Return a length of time as `350 ms`, `4.2 s`, `51 s`, `10 min`, `1 h 05 min` or `3 d 04 h`; `–` for none."""
    if seconds is None:
        return "–"
    milliseconds, tenths = round(seconds * 1_000), round(seconds, 1)
    if 0 < milliseconds < THOUSAND:
        return f"{milliseconds} ms"
    if tenths < MINUTE:
        return f"{max(0.0, tenths):.1f} s" if seconds % 1 else f"{max(0.0, tenths):.0f} s"
    whole = round(seconds)
    size, name, part, part_name = next(each for each in UNITS if whole >= each[0])
    rest = whole % size // part
    return f"{whole // size:,} {name}" + (f" {rest:02} {part_name}" if rest else "")


def counted(number: int, noun: str) -> str:
    """Return so many of something: `1 call`, `2 calls`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_full(value: float) -> str:
    """Return a limit in full, as `2,592,000` or `0.05`: never as a power of ten."""
    return f"{value:,.6f}".rstrip("0").rstrip(".")


def amount(count: int) -> str:
    """Return a number of tokens as `950`, `1.2k` or `3.4M`."""
    if count < THOUSAND:
        return str(count)
    size, unit = (count / MILLION, "M") if count >= MILLION - THOUSAND // 2 else (count / THOUSAND, "k")
    return f"{size:,.0f}{unit}" if size >= HUNDRED else f"{size:.1f}{unit}"


def wait_line(message: str, attempt: int, seconds: float) -> str:
    """Return the line that a model call waits for its endpoint, `attempt` having failed."""
    soon = f"in {duration(seconds)}" if seconds > 0 else "now"
    return f"waiting for the model endpoint, attempt {attempt} failed, next {soon}: {message}"


def token_count(usage: Usage) -> str:
    """Return how many tokens were used: `3,120`, or `≈ 3,120`."""
    return f"{ESTIMATED if usage.estimated_tokens else ''}{usage.total_tokens:,}"


def tokens_in_and_out(usage: Usage) -> str:
    """Return tokens in and out: `2,900 in, 220 out`, or `2,900 in (2,100 cached), 220 out`."""
    estimated = ESTIMATED if usage.estimated_tokens else ""
    return f"{estimated}{usage.input_tokens:,} in{cached_note(usage)}, {usage.output_tokens:,} out"


def tokens_used(usage: Usage) -> str:
    """Return how many tokens were used, with the word: `3,120 tokens`, or `3,120 tokens (2,100 cached)`."""
    return f"{token_count(usage)} tokens{cached_note(usage)}"


def server_calls_note(calls: Mapping[str, int]) -> str:
    """Return which of its own tools the provider has called: `web_search (2 calls)`; empty for none."""
    return ", ".join(f"{on_a_line(name)} ({counted(count, 'call')})" for name, count in calls.items())


def cached_note(usage: Usage) -> str:
    """Return how many of the tokens came from the provider's prompt cache: ` (2,100 cached)`, nothing for none."""
    return f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""


def dollars(
    cost: float, unpriced: Sequence[str] = (), *, unit: str = " USD", written: Callable[[str], str] = on_a_line
) -> str:
    """Return a cost in US dollars; `unpriced` are the models whose tokens are not in it.

    `written` writes a model's name, which a provider can have chosen, as it may stand there: in Markdown as code.
    """
    amount = "cost unknown" if unit and unpriced and not cost else f"{short_dollars(cost, unpriced)}{unit}"
    return f"{amount}{unpriced_models(unpriced, written)}"


def short_dollars(cost: float, unpriced: Sequence[str] = ()) -> str:
    """Return the figure alone: `0.0003`; `> 0.0003` with models unpriced, `?` where all are."""
    return "?" if unpriced and not cost else f"{'> ' if unpriced else ''}{cost:.4f}"


def unpriced_models(unpriced: Sequence[str], written: Callable[[str], str] = on_a_line) -> str:
    """Return ` (unpriced: model-x)`, nothing where every token has a price."""
    if not unpriced:
        return ""
    more = len(unpriced) - MODELS_SHOWN
    names = ", ".join(map(written, unpriced[:MODELS_SHOWN]))
    return f" (unpriced: {names}{f' and {more} more' if more > 0 else ''})"


def joined_models(one: Sequence[str], other: Iterable[str]) -> tuple[str, ...]:
    """Return the models of both, each once and no more than UNPRICED_MODELS_MAX."""
    return tuple(dict.fromkeys((*one, *other)))[:UNPRICED_MODELS_MAX]


def no_price(model: str, place: PricePlace = "llm") -> str:
    """Return the warning that no price is known for `model`, with its remedy."""
    own, it = ("their", "them") if model.startswith(CALLS_OF) else ("its", "it")
    effect = f"{own} cost counts as 0 and max_cost is not enforced for {it}"
    return f"{UNKNOWN_PRICE}{_phrase(model)}: {effect}; {_price_remedy(model, place)}"


def refused_price(model: str, place: PricePlace = "llm") -> str:
    """Return why a run that refuses models without a price makes no call to `model`."""
    why = "the budget refuses that (unpriced: refuse)"
    return f"{UNKNOWN_PRICE}{_phrase(model)} and {why}; {_price_remedy(model, place)}"


def _price_remedy(model: str, place: PricePlace) -> str:
    if model.startswith(CALLS_OF):
        return CALLS_REMEDY
    field = PRICE_FIELDS[place]
    if model == WORKERS_MODEL:  # it has no route
        return f"set {field} or HOLDFAST_PRICES"
    return f"set {field}, HOLDFAST_PRICES, or its route's prices in models.yaml"


def _phrase(model: str) -> str:
    is_phrase = model == WORKERS_MODEL or model.startswith((SUBAGENTS_MODEL, CALLS_OF))
    return model if is_phrase else f"model {model!r}"
