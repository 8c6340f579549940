"""Whether budgets hold on the real server, measured at the model's endpoint. `python -m bench.budget`.

Random agents, with subagents that run side by side and below each other, tools that return nothing or far too much,
hooks that talk, summaries, attempts that fail and people who stop; against an endpoint that is honest (a token is at
least a byte of what it is sent) and spends whatever it is allowed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar
from uuid import uuid4

from bench.report import Goal, show_goals, show_table
from holdfast import AgentDefinition, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.hooks import Changes, HookContext, Trigger, hook
from holdfast.core.agent.policies import ContextPolicy, SummaryPolicy
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ExecutionFailed
from holdfast.core.base.usage import NOTHING_USED, Prices, Usage
from holdfast.core.conversation.amounts import SUBAGENTS_MODEL
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.server.embedded import EmbeddedServer
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, Reply
from workers import make_worker

CACHING: Final = (
    Prices(input_usd=3, output_usd=15, cached_usd=0.3, cache_write_usd=3.75),
    Prices(input_usd=2, output_usd=1, cached_usd=0.02, cache_write_usd=4),
)
"""Prices of providers that cache a part of the input."""

RUNS: Final = 200
AT_ONCE: Final = 4
RUN_SECONDS_MAX: Final = 120.0
CALLS_MAX: Final = 30
"""After so many model calls of one tree its models only answer, so that unlimited runs end."""

BROKEN_TOKENS_MAX: Final = 40
"""After so many tokens a broken answer breaks off."""

TAGS: Final = 12
"""What the endpoint's template puts around each message and each call."""

ROUNDING_USD: Final = 1e-9
SUMMARY_PROMPT: Final = "You summarise the conversation"

T = TypeVar("T")


@tool
async def fetch(chars: int) -> str:
    """Return a text of so many characters.

    Args:
        chars: how many.
    """
    return 'a "word" ' * (chars // 9)


@hook(Trigger.BEFORE_INFERENCE)
def talk(context: HookContext) -> Changes | None:
    """Say something before every other model call."""
    return Changes(messages=(user_message("And mind this. " * 40),)) if context.step_number % 2 else None


@dataclass
class Account:
    """What one run's models were asked and put out, as the endpoint counts."""

    rng: random.Random
    root: AgentDefinition
    agents: dict[str, AgentDefinition]
    spent: Usage = NOTHING_USED
    cost: float = 0.0
    first: Usage | None = None
    calls: int = 0
    failed: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    reported: Usage = NOTHING_USED
    """What its run said in the end that it used."""
    cancelled: bool = False
    """Whether something ended it at once, whatever was under way."""
    subagent_unreported: bool = False
    """Whether it was cut short before a subagent reported its usage, so that its tokens are only a lower bound."""

    @property
    def unreported(self) -> int:
        """How many tokens were charged that its run does not know of; none where it says that it does not know.

        Of a call that is cancelled only the input: this endpoint makes an answer at once, and none of it may have left.
        """
        if self.subagent_unreported:
            return 0
        inputs = self.spent.input_tokens - self.reported.input_tokens
        outputs = 0 if self.cancelled else self.spent.output_tokens - self.reported.output_tokens
        return max(0, inputs) + max(0, outputs)

    def spend(self, name: str, usage: Usage) -> None:
        """Charge one attempt of a model call."""
        self.calls += 1
        if self.first is None:
            self.first = Usage(input_tokens=usage.input_tokens)
        self.spent += usage
        prices = self.agents[name].llm.prices
        self.cost += prices.cost(usage) if prices else 0.0

    @property
    def over(self) -> tuple[int, float, bool]:
        """By how much each limit was passed beyond what a first call's input may, and whether that one did."""
        budget, first = self.root.budget, self.first or NOTHING_USED
        prices = self.root.llm.prices
        tokens = 0 if budget.max_tokens is None else max(0, self.spent.total_tokens - budget.max_tokens)
        cost = 0.0 if budget.max_cost is None else max(0.0, self.cost - budget.max_cost - ROUNDING_USD)
        tokens_excused = max(0, first.input_tokens - (budget.max_tokens or 0) // 2)
        first_cost = prices.dearest_input_cost(first.input_tokens) if prices else 0.0
        cost_excused = max(0.0, first_cost - (budget.max_cost or 0.0) / 2)
        excused = bool((tokens and tokens_excused) or (cost and cost_excused))
        return max(0, tokens - tokens_excused), max(0.0, cost - cost_excused), excused


class Endpoint:
    """The models of all runs; a model's name says whose it is."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}

    def answer(self, body: dict[str, Any]) -> Reply:
        """Spend what is allowed, and ask for more."""
        run, name = body["model"].split("/")
        account, rng = self.accounts[run], self.accounts[run].rng
        most = body.get("max_completion_tokens")
        output = min(rng.choice((5, 60, 60, 60, 300, 300, 300, 300, 10**9)), 20_000 if most is None else most)
        usage = _divided(rng, Usage(input_tokens=_tokens(body), output_tokens=output))
        place = (name, len(body["messages"]))
        if rng.random() < 0.1 and place not in account.failed:  # noqa: PLR2004  # one in ten
            account.failed.add(place)
            return _broken(account, name, usage)
        account.spend(name, usage)
        counts = (usage.input_tokens, usage.output_tokens)
        ending = "length" if output == most else None
        text = "words and " * rng.choice((1, 5, 200))
        calls = () if account.calls > CALLS_MAX or not body.get("tools") else _calls(rng, account.agents[name])
        ending = ending if not calls else None
        return Reply(text=text, calls=calls, usage=counts, usage_details=_details(usage), finish_reason=ending)


def _broken(account: Account, name: str, usage: Usage) -> Reply:
    """Break an answer off after some pieces, each a token, with or without a word on what it used."""
    pieces = account.rng.randint(0, min(usage.output_tokens, BROKEN_TOKENS_MAX))
    used = Usage(input_tokens=usage.input_tokens, output_tokens=pieces).with_parts(
        usage.cached_tokens, usage.cache_write_tokens, usage.reasoning_tokens
    )
    account.spend(name, used)
    cut = Reply(
        text="a" * pieces,
        piece_chars=1,
        pieces_max=1 + pieces,  # the first one opens the answer
        usage=(used.input_tokens, used.output_tokens),
        usage_details=_details(used),
        usage_in=account.rng.choice(("every", "last", "last")),
    )
    broken = b"data: {broken\n\n"
    ways = (cut, replace(cut, disconnect=True), replace(cut, reset=True), replace(cut, then=broken))
    return account.rng.choice(ways)


def _divided(rng: random.Random, whole: Usage) -> Usage:
    """Divide an input into parts as a provider may: it caches what it likes and has dropped it by the next call."""
    cached, written = (rng.choice((0, 0, sent, rng.randint(0, sent))) for sent in [whole.input_tokens] * 2)
    return whole.with_parts(cached, written, rng.randint(0, whole.output_tokens))


def _details(used: Usage) -> dict[str, Any]:
    prompt = {"cached_tokens": used.cached_tokens, "cache_write_tokens": used.cache_write_tokens}
    completion = {"reasoning_tokens": used.reasoning_tokens}
    return {"prompt_tokens_details": prompt, "completion_tokens_details": completion}


def _calls(rng: random.Random, agent: AgentDefinition) -> tuple[Call, ...]:
    calls: list[Call] = []
    for _ in range(rng.choice((0, 1, 1, 1, 1, 1, 1, 1, 2, 3))):
        if agent.subagents and rng.random() < 0.4:  # noqa: PLR2004  # two in five
            calls.append(Call("spawn", {"agent": rng.choice(agent.subagents), "task": "look " * rng.choice((1, 80))}))
        else:
            calls.append(Call("fetch", {"chars": rng.choice((0, 20, 200, 200, 500, 500, 5_000, 60_000))}))
    return tuple(calls)


def _tokens(body: dict[str, Any]) -> int:
    """Return what the endpoint counts: every byte that it is sent of words, calls and tools, and a template's tags."""
    tokens = 0
    for message in body["messages"]:
        tokens += TAGS + len((message.get("content") or "").encode()) + len(message.get("tool_call_id") or "")
        for call in message.get("tool_calls") or ():
            text = call["id"] + call["function"]["name"] + call["function"]["arguments"]
            tokens += TAGS + len(text.encode())
    for each in body.get("tools") or ():
        tokens += TAGS + len(json.dumps(each["function"], ensure_ascii=False, separators=(",", ":")).encode())
    return tokens


def drawn(rng: random.Random, run: str) -> Account:
    """Return a random root with its agents."""
    prices = rng.choice((None, Prices(input_usd=1, output_usd=4), Prices(input_usd=9, output_usd=2), *CACHING))
    tokens = rng.choice((None, 400, 3_000, 20_000, 60_000, 200_000, 200_000))
    cost = rng.choice((None, None, 0.01, 0.1, 1.0))
    budget = ExecutionBudget(
        max_steps=rng.choice((None, None, 3, 12)),
        max_tokens=None if tokens is None else tokens + rng.randint(0, tokens),
        max_seconds=rng.choice((None, None, None, 3.0)),
        max_cost=cost,
    )
    agents: dict[str, AgentDefinition] = {}
    for name, below in (("root", ("left", "right")), ("left", ("right", "leaf")), ("right", ("leaf",)), ("leaf", ())):
        summary = SummaryPolicy(above_input_tokens=4_000, keep_messages=3) if rng.random() < 0.3 else None  # noqa: PLR2004
        agents[name] = AgentDefinition(
            name=name,
            tools="all",
            system_prompt="You spend. " * rng.choice((1, 100)),
            llm=LLM(model=f"{run}/{name}", prices=prices, max_output_tokens=rng.choice((None, None, 200))),
            budget=budget if name == "root" else rng.choice((ExecutionBudget(), ExecutionBudget(max_tokens=30_000))),
            subagents=below,
            hooks=rng.choice(((), ("talk",))),
            sequential=rng.random() < 0.2,  # noqa: PLR2004  # one in five
            context=ContextPolicy(summary=summary, tool_output_chars_max=rng.choice((None, None, 400))),
        )
    return Account(rng, agents["root"], agents)


async def measure(address: str, folder: Path, runs: int, seed: int) -> dict[str, tuple[Account, str]]:
    """Return what `runs` random runs on the server at `address` were charged, and how each of them ended."""
    settings = Settings(address=address, task_queue=f"budget-{uuid4()}", storage=(folder / "objects").as_uri())
    endpoint, ended = Endpoint(), dict[str, tuple[Account, str]]()
    at_once = asyncio.Semaphore(AT_ONCE)
    async with FakeOpenAI(endpoint.answer) as server:
        client = await Holdfast.connect(settings)
        model = OpenAIChat(ProviderSettings(base_url=server.base_url, api_key="any"))

        async def run(number: int) -> None:
            rng = random.Random(seed * 1_000_003 + number)  # noqa: S311  # nothing secret
            name = f"r{number}"
            account = endpoint.accounts[name] = drawn(rng, name)
            async with at_once:
                ended[name] = account, await _ended(client, account, stop_after=rng.choice((None,) * 9 + (1.0,)))

        try:
            async with make_worker(client.temporal, settings, Toolset(tools=(fetch,), hooks=(talk,)), model):
                await asyncio.gather(*(run(number) for number in range(runs)))
        finally:
            await model.close()
    return ended


async def _ended(client: Holdfast, account: Account, stop_after: float | None) -> str:
    below = tuple(each for each in account.agents.values() if each is not account.root)
    execution_id = await client.start(account.root, "Spend it.", subagents=below)
    async with asyncio.timeout(RUN_SECONDS_MAX):
        if stop_after is not None:
            await asyncio.sleep(stop_after)
            with suppress(Exception):  # it may have ended
                await client.stop(execution_id, "enough")
        try:
            state = await client.result(execution_id)
        except ExecutionFailed:
            state = await client.state(execution_id)
    account.reported = state.usage
    account.cancelled = state.stop_reason in (StopReason.USER_REQUESTED, StopReason.TIME_LIMIT)
    account.subagent_unreported = account.cancelled and _lacks_a_subagent(account, state)
    return "failed" if state.status == "failed" else str(state.stop_reason)


def _lacks_a_subagent(account: Account, state: AgentState) -> bool:
    """Return whether the run says that a subagent's usage is missing from its tokens.

    It waits three seconds for that (SUBAGENT_GRACE_SECONDS), which can be too little on a busy machine. Without any
    limit it lists the subagent among the models without a price; with one of dollars alone it charges all of that.
    """
    budget = account.root.budget
    if budget.max_tokens is not None or state.usage.input_tokens >= account.spent.input_tokens:
        return False
    if budget.max_cost is not None:
        return state.cost >= account.cost - ROUNDING_USD
    return any(each.startswith(SUBAGENTS_MODEL) for each in state.running.unpriced)


def _parts(spent: Usage) -> str:
    return f"{spent.cached_tokens:,}, {spent.cache_write_tokens:,}, {spent.reasoning_tokens:,}"


def show(ended: dict[str, tuple[Account, str]], seed: int) -> bool:
    """Print the figures; return whether no budget was passed."""
    over = {name: account.over for name, (account, _) in ended.items()}
    ends = Counter(why for _, why in ended.values())
    calls = sum(account.calls for account, _ in ended.values())
    failed = sum(len(account.failed) for account, _ in ended.values())
    spent = sum((account.spent for account, _ in ended.values()), NOTHING_USED)
    worst_tokens = max((each[0] for each in over.values()), default=0)
    worst_cost = max((each[1] for each in over.values()), default=0.0)
    excused = sum(each[2] for each in over.values())
    unreported = sum(account.unreported for account, _ in ended.values())
    lacking = sum(account.subagent_unreported for account, _ in ended.values())
    estimated = sum(account.reported.estimated_tokens for account, _ in ended.values())
    rows = [
        ["runs (seed)", f"{len(ended)} ({seed})"],
        ["model calls, of them failed attempts", f"{calls}, {failed}"],
        ["tokens charged", f"{spent.total_tokens:,}"],
        ["of them cached, cache write, reasoning", _parts(spent)],
        ["tokens that no endpoint reported, as bounded", f"{estimated:,}"],
        ["tokens charged that no run knows of", f"{unreported:,}"],
        ["runs that a subagent did not report to in time", str(lacking)],
        ["ended by", ", ".join(f"{why} {count}" for why, count in ends.most_common())],
        ["tokens over", str(worst_tokens)],
        ["US dollars over", f"{worst_cost:g}"],
        ["passed by a first call's own input alone", str(excused)],
    ]
    show_table("Budgets, at the endpoint", ("figure", "value"), rows)
    held = worst_tokens == 0 and math.isclose(worst_cost, 0.0)
    show_goals(
        [
            Goal("overshoot 0", f"{worst_tokens} tokens, {worst_cost:g} USD", held),
            Goal("under-reported 0", f"{unreported} tokens", unreported == 0),
        ]
    )
    for name, each in over.items():
        if each[0] or each[1]:
            account, why = ended[name]
            sys.stderr.write(f"{name}: {account.spent} {account.cost} against {account.root.budget}, {why}\n")
    return held and unreported == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 when a budget was passed."""
    parser = argparse.ArgumentParser(prog="python -m bench.budget", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"how many runs (default {RUNS})")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="to repeat a bench")
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as folder, EmbeddedServer.start(Path(folder) / "data", port=0, ui_port=0) as server:
        ended = asyncio.run(measure(server.address.address, Path(folder), options.runs, options.seed))
    return 0 if show(ended, options.seed) else 1


if __name__ == "__main__":
    sys.exit(main())
