"""Trees of agents that spend all they are let: random rules, budgets, tools and hooks, and an account of every token.

The account is kept at the model's side, by a counter of its own that is honest: equal messages count equally, and no
message counts more than its bytes and a template's tags. Everything is drawn from one `random.Random`.
"""

from __future__ import annotations

import random
from collections import deque
from datetime import datetime
from uuid import UUID

from pydantic import JsonValue

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.context_view import compiled
from holdfast.core.agent.definition import LLM, AgentDefinition, FallbackRoute
from holdfast.core.agent.hooks import Changes, HookRun, HookTraits, Trigger
from holdfast.core.agent.initial_state import new_agent
from holdfast.core.agent.policies import ContextPolicy, SummaryPolicy
from holdfast.core.agent.usage_estimates import CUT_TOKENS_MAX, HIDDEN_TOKENS_MAX, cut_usage
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.retries import BUDGET_SPENT, allowed_output
from holdfast.core.base.usage import NOTHING_USED, Prices, Usage
from holdfast.core.conversation.messages import ToolCall, user_message
from holdfast.core.conversation.model_call_changes import ModelCallChanges
from holdfast.core.conversation.steps import AgentStep, ErrorRecord, InferenceResponse
from holdfast.core.conversation.stop_reasons import StopMode, StopReason, StopSignal
from holdfast.core.loop.agent_loop import AgentLoop
from holdfast.core.loop.commands import (
    CallModel,
    CallTool,
    CancelInFlight,
    Command,
    RunHooks,
    SpawnSubagent,
    StartTimer,
    SummariseBuffer,
)
from holdfast.core.loop.conversation_summary import summary_request
from holdfast.core.loop.events import (
    BufferSummarised,
    Event,
    ExecutionStarted,
    HooksReturned,
    MessageArrived,
    ModelAnswered,
    ModelCancelled,
    ModelFailed,
    StopRequested,
    SubagentReturned,
    SummaryFailed,
    TimerFired,
    ToolFailed,
    ToolReturned,
)
from holdfast.core.tools.tool_traits import ToolTraits
from tests.core.building import AGENT_ID, BOOM, START, moment
from tests.core.spending_accounts import Agent, Counter

ALPHABETS = ("a", 'quote " and \\', "\n\t", "é", "汉", "\x01", "word ")
CACHING = (
    Prices(input_usd=3, output_usd=15, cached_usd=0.3, cache_write_usd=3.75),
    Prices(input_usd=2, output_usd=1, cached_usd=0.02, cache_write_usd=4),
    Prices(input_usd=2, output_usd=0, cache_write_usd=2.5),
)
"""Prices of providers that cache; which part of an input they do is theirs to say, call by call."""

MODELS = ("m0", "m1", "m2")
"""Models that count tokens differently, fall back to each other, and are asked by hooks in place of each other."""

EVENTS_MAX = 250
"""After so many the person in front of it loses patience and stops the run."""


class World:
    """One random tree of agents, run to its end."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.seconds = 0.0
        self.counters = {name: Counter(*self._counting()) for name in MODELS}
        self.agents: list[Agent] = []
        self.happening: deque[tuple[Agent, Event]] = deque()
        self.definitions = {f"agent{place}": self._definition(f"agent{place}", 3) for place in range(3)}
        definition = self._definition("root", 3)
        self.calls = self.failed = self.fallbacks = self.changed = self.priced_anew = 0
        self.root = self._made(definition, definition.budget, None, None, None)
        self._begin(self.root, "Do it. " + self._text(2_000))

    # --- what is drawn

    def _counting(self) -> tuple[int, bool, int]:
        draw = self.rng
        return draw.choice((1, 1, 2, 4)), draw.random() < 0.5, draw.choice((0, 5, 12, 20))

    def _prices(self) -> Prices | None:
        prices = (None, Prices(input_usd=1, output_usd=4), Prices(input_usd=9, output_usd=2), *CACHING)
        return self.rng.choice((*prices, Prices(input_usd=3, output_usd=0)))

    def _longest_answer(self) -> int | None:
        return self.rng.choice((None, None, 40, 400, 50_000))

    def _text(self, longest: int) -> str:
        alphabet = self.rng.choice(ALPHABETS)
        length = self.rng.choice((0, 3, 40, 40, longest // 10, longest // 10, longest))
        return (alphabet * (length // len(alphabet) + 1))[: self.rng.randint(0, length)]

    def _budget(self) -> ExecutionBudget:
        draw = self.rng
        tokens = draw.choice(
            (None, None, draw.choice((0, 50, 400)), 3_000, 20_000, 60_000, 200_000, 200_000, 1_000_000)
        )
        cost = draw.choice((None, None, None, draw.choice((0.0, 0.0005)), 0.01, 0.1, 0.5, 2.0, 2.0))
        return ExecutionBudget(
            max_steps=draw.choice((None, None, None, draw.choice((0, 1)), 2, 5, 12, 40)),
            max_tokens=None if tokens is None else tokens + draw.randint(0, tokens),
            max_seconds=draw.choice((None, None, None, None, draw.choice((0.0, 5.0)), 20.0, 100.0)),
            max_cost=None if cost is None else cost * (1 + draw.random()),
            deadline=draw.choice((None, None, None, None, moment(15), moment(90))),
        )

    def _definition(self, name: str, others: int) -> AgentDefinition:
        draw = self.rng
        first, *others_asked = draw.sample(MODELS, draw.choice((1, 1, 2, 3)))
        llm = LLM(
            model=first,
            prices=self._prices(),
            max_output_tokens=draw.choice((None, 50)),
            longest_answer=self._longest_answer(),
            fallback=tuple(
                FallbackRoute(model=each, prices=self._prices(), longest_answer=self._longest_answer())
                for each in others_asked
            ),
        )
        summary = SummaryPolicy(above_input_tokens=draw.choice((500, 3_000)), keep_messages=draw.choice((0, 3)))
        return AgentDefinition(
            name=name,
            system_prompt=self._text(3_000),
            llm=llm,
            budget=self._budget() if name == "root" or draw.random() < 0.4 else ExecutionBudget(),
            budget_policy=draw.choice(("inherit", "inherit", "inherit", "own")),
            sequential=draw.random() < 0.2,
            subagents=tuple(f"agent{place}" for place in range(others) if f"agent{place}" != name),
            pause_while_waiting=draw.random() < 0.2,
            context=ContextPolicy(
                tool_output_chars_max=draw.choice((None, None, 200)),
                view=draw.choice(("current_trace", "all")),
                summary=summary if draw.random() < 0.4 else None,
            ),
        )

    def _calls(self, agent: Agent) -> tuple[ToolCall, ...]:
        draw = self.rng
        calls: list[ToolCall] = []
        for place in range(draw.choice((0, 1, 1, 1, 1, 1, 1, 2, 2, 4))):
            if agent.loop.subagents and draw.random() < 0.35:
                who = draw.choice(tuple(agent.loop.subagents))
                given: dict[str, JsonValue] = {"agent": who, "task": "look " + self._text(800)}
                calls.append(ToolCall(id=f"c{place}", name="spawn", arguments=given))
            else:
                big: list[JsonValue] = [1e15] * 20
                given = {"a": draw.choice((1, 1e15, big, self._text(2_000)))}
                calls.append(
                    ToolCall(id=draw.choice(("", f"c{place}")), name=draw.choice(("add", "lone")), arguments=given)
                )
        return tuple(calls)

    def _changes(self, trigger: Trigger) -> Changes | None:
        draw = self.rng
        if draw.random() < 0.6 or trigger in (Trigger.BEFORE_TOOL, Trigger.AFTER_TOOL):
            return None
        said = (user_message("hook " + self._text(4_000)),) if draw.random() < 0.5 else ()
        stop, changed = "enough" if draw.random() < 0.03 else None, self._model_call(trigger)
        return Changes(messages=said, go_on=draw.random() < 0.6, stop=stop, model_call=changed)

    def _model_call(self, trigger: Trigger) -> ModelCallChanges | None:
        """Return what a hook changes of one model call: its model, its tools, a text behind the conversation."""
        draw = self.rng
        if trigger is not Trigger.BEFORE_INFERENCE or draw.random() < 0.2:
            return None
        model = draw.choice((None, *MODELS))
        options = draw.choice(({}, {"max_output_tokens": 80}, {"temperature": 0}, {"service_tier": "flex"}))
        priced = {name: prices for name in MODELS if "service_tier" in options and (prices := self._prices())}
        return ModelCallChanges(
            model=model,
            prices=self._prices() if model or "service_tier" in options else None,
            longest_answer=self._longest_answer() if model else None,
            fallback_prices=priced,
            options=options,
            tools=draw.choice((None, (), ("lone",), ("add", "spawn"))),
            prompt=self._text(2_000),
        )

    # --- the tree

    def _made(
        self,
        definition: AgentDefinition,
        budget: ExecutionBudget,
        parent: Agent | None,
        spawned_by: SpawnSubagent | None,
        depth_left: int | None,
    ) -> Agent:
        draw = self.rng
        tools = (
            ToolTraits(name="add", described_bytes=draw.choice((0, 60, 2_000))),
            ToolTraits(name="lone", described_bytes=300, sequential=True),
        )
        places = draw.sample(list(Trigger), draw.choice((0, 0, 1, 3)))
        if draw.random() < 0.5 and Trigger.BEFORE_INFERENCE not in places:
            places.append(Trigger.BEFORE_INFERENCE)
        loop = AgentLoop(
            definition,
            tools={each.name: each for each in tools},
            hooks=tuple(HookTraits(name=f"at_{each}", trigger=each) for each in places),
            subagents={name: self.definitions[name] for name in definition.subagents},
            depth_left=depth_left,
        )
        id_ = str(UUID(int=len(self.agents) + 10))
        parent_agent_id = None if parent is None else AGENT_ID
        state = new_agent(definition, agent_id=id_, at=START, parent_agent_id=parent_agent_id)
        agent = Agent(definition, budget, parent, spawned_by, loop, state)
        self.agents.append(agent)
        return agent

    def _begin(self, agent: Agent, said: str) -> None:
        id_ = str(UUID(int=len(self.agents) + 1_000))
        self._feed(agent, ExecutionStarted(id_, (user_message(said),), agent.budget, self._tick(0)))

    def _tick(self, most: float = 2.0) -> datetime:
        self.seconds += self.rng.random() * most
        return moment(self.seconds)

    def _feed(self, agent: Agent, event: Event) -> None:
        """Let `event` happen, and after it what comes of it at once."""
        self.happening.append((agent, event))
        if len(self.happening) > 1:
            return
        while self.happening:
            agent, event = self.happening[0]
            agent.state, commands = agent.loop.step(agent.state, event)
            for command in commands:
                self._perform(agent, command)
            if agent.ended and agent.parent is not None and not agent.told:
                agent.told = True
                self._tell_parent(agent, agent.parent)
            self.happening.popleft()

    def _tell_parent(self, agent: Agent, parent: Agent) -> None:
        state, spawned_by = agent.state, agent.spawned_by
        assert spawned_by is not None
        why = state.stop_signal.message if state.stop_signal else ""
        self._feed(
            parent,
            SubagentReturned(
                spawned_by.call_id,
                state.status,
                state.current_response,
                why,
                state.running.used,
                moment(self.seconds),
                moment(self.seconds),
            ),
        )

    def _perform(self, agent: Agent, command: Command) -> None:
        match command:
            case CallModel() | SummariseBuffer() | CallTool() | SpawnSubagent():
                strikes_at = agent.state.running.time_limit_at
                assert strikes_at is None or moment(self.seconds) < strikes_at, "a call was begun after the time limit"
                if isinstance(command, SpawnSubagent):
                    child = self._made(
                        self.definitions[command.agent], command.budget, agent, command, command.depth_left
                    )
                    agent.children.append(child)
                    self._begin(child, command.task)
                    return
                if not isinstance(command, CallTool):
                    self._ask(agent, command)
                agent.pending.append(command)
            case RunHooks():
                agent.pending.append(command)
            case StartTimer():
                agent.timer = command
            case CancelInFlight():
                self._cancel(agent)
            case _:
                pass

    def _ask(self, agent: Agent, command: CallModel | SummariseBuffer) -> None:
        """Count what a model is asked, and by how much a first call's input alone passes its half of the budget."""
        own = agent.definition.llm
        agent.asked_of = own if isinstance(command, SummariseBuffer) else command.llm or own
        agent.asked_input = self._input_of(agent, command)
        self.calls += 1
        step, most = agent.state.running.current_step, agent.asked_of.longest_answer
        assert most is None or (command.max_output_tokens or 0) <= most, f"{command.max_output_tokens} of {most}"
        if isinstance(command, CallModel) and step is not None:
            self._check_fallback_price(agent, step)
        self.changed += step is not None and step.model_call_changes is not None and not step.fallbacks
        if isinstance(command, SummariseBuffer) or not agent.own or command.step_number > 1:
            return
        prices = agent.asked_of.prices or Prices(input_usd=0, output_usd=0)
        tokens = max(0, (agent.budget.max_tokens or 0) - agent.spent.total_tokens)
        dollars = max(0.0, (agent.budget.max_cost or 0.0) - agent.cost)
        tokens_over = max(agent.first_over[0], agent.asked_input - tokens // 2)
        agent.first_over = (
            tokens_over,
            max(agent.first_over[1], prices.dearest_input_cost(agent.asked_input) - dollars / 2),
        )

    def _check_fallback_price(self, agent: Agent, step: AgentStep) -> None:
        """Check that a model that a call has fallen back to costs what the hooks' change of that call says of it."""
        changes, name = step.model_call_changes, agent.asked_of.model
        if step.fallbacks and changes is not None and name is not None and name in changes.fallback_prices:
            assert agent.asked_of.prices == changes.fallback_prices[name], f"{name} in another tier"
            self.priced_anew += 1

    def _input_of(self, agent: Agent, command: CallModel | SummariseBuffer) -> int:
        state, count = agent.state, self._counter_of(agent)
        if isinstance(command, SummariseBuffer):
            return count.of(summary_request(state.store))
        opening = count.of_bytes(len(agent.definition.system_prompt.encode()))
        shown = (each for each in agent.loop.tools.values() if command.offered is None or each.name in command.offered)
        opening += sum(count.of_bytes(each.described_bytes) for each in shown)
        said = compiled(state.store, agent.definition.context, state.running.execution_id)
        behind = (user_message(command.prompt),) if command.prompt else ()
        return opening + count.of((*said, *behind))

    def _counter_of(self, agent: Agent) -> Counter:
        """Return how the model counts that the agent asks."""
        return self.counters[agent.asked_of.model or MODELS[0]]

    # --- what happens

    def run(self) -> None:
        for _ in range(EVENTS_MAX):
            if self.root.ended:
                return
            if self.rng.random() < 0.01:
                self._from_outside()
            else:
                self._something_ends()
        while not self.root.ended:
            if not self._something_ends():
                self._stop(self.root, "now")

    def _from_outside(self) -> None:
        if self.rng.random() < 0.5:
            self._feed(self.root, MessageArrived(user_message("also " + self._text(3_000)), self._tick(0)))
        else:
            self._stop(self.root, self.rng.choice(("now", "after_step")))

    def _stop(self, agent: Agent, mode: StopMode) -> None:
        at = self._tick(0)
        wish = StopSignal(reason=StopReason.USER_REQUESTED, message="enough", source="test", at=at)
        self._feed(agent, StopRequested(wish, mode, at))

    def _something_ends(self) -> bool:
        late = [
            each
            for each in self.agents
            if not each.ended and each.timer and each.timer.fires_at <= moment(self.seconds)
        ]
        ready = [(agent, each) for agent in self.agents if not agent.ended for each in agent.pending]
        if late and (not ready or self.rng.random() < 0.5):
            agent = self.rng.choice(late)
            agent.timer = None
            self._feed(agent, TimerFired(self._tick(0)))
            return True
        if not ready:
            waiting = [each for each in self.agents if not each.ended and each.timer]
            if waiting:
                self.seconds += 1.0
            return bool(waiting)
        agent, command = self.rng.choice(ready)
        agent.pending.remove(command)
        match command:
            case CallModel() | SummariseBuffer():
                self._model_ends(agent, command)
            case CallTool():
                self._tool_ends(agent, command)
            case RunHooks():
                runs = tuple(HookRun(name=each.name, changes=self._changes(each.trigger)) for each in command.hooks)
                call = command.context.call
                self._feed(
                    agent, HooksReturned(command.context.trigger, call.id if call else None, runs, self._tick(0))
                )
            case _:
                raise AssertionError(command)
        return True

    def _model_ends(self, agent: Agent, command: CallModel | SummariseBuffer) -> None:
        draw, failed = self.rng, NOTHING_USED
        most = self._most(command, failed)
        while draw.random() < 0.15:
            failed += self._wasted(agent, command, self._output(most), most)
            most = self._most(command, failed)
            if most is not None and most <= 0:
                break
        spent = most is not None and most <= 0
        away = isinstance(command, CallModel) and command.may_fall_back and draw.random() < 0.2
        if spent or away or draw.random() < 0.01:
            ended = ModelFailed if isinstance(command, CallModel) else SummaryFailed
            why = ErrorRecord(type=BUDGET_SPENT, message="nothing left", source="model") if spent else BOOM
            if not spent and draw.random() < 0.8:
                why = ErrorRecord(type="ProviderUnavailable", message="away", source="model")
                self.fallbacks += isinstance(command, CallModel) and command.may_fall_back
            self._feed(agent, ended(why, self._tick(), failed))
            return
        output = self._output(most)
        usage = self._used(agent, output)
        if isinstance(command, SummariseBuffer):
            self._feed(agent, BufferSummarised(self._text(3_000), usage, self._tick(), failed))
            return
        ending = "length" if most is not None and output == most else "stop"
        calls = self._calls(agent)
        said = InferenceResponse(text=self._text(4_000), tool_calls=calls, finish_reason=ending, usage=usage)
        self._feed(agent, ModelAnswered(said, self._tick(), failed))

    def _most(self, command: CallModel | SummariseBuffer, failed: Usage) -> int | None:
        """Return what the next attempt may put out, as a shell asks for it; nothing when there must be none."""
        try:
            return allowed_output(command, failed)
        except ModelFailure:
            return 0

    def _output(self, most: int | None) -> int:
        longest = self.rng.choice((5, 30, 300, 300, 300, 1_000, 1_000, 10**9, 10**9))
        return min(100_000 if most is None else most, longest)

    def _used(self, agent: Agent, output: int) -> Usage:
        whole, draw = Usage(input_tokens=agent.asked_input, output_tokens=output), self.rng
        cached, written = (draw.choice((0, 0, asked, draw.randint(0, asked))) for asked in [whole.input_tokens] * 2)
        usage = whole.with_parts(cached, written, draw.randint(0, output))
        agent.spent += usage
        prices = agent.asked_of.prices
        agent.cost += prices.cost(usage) if prices else 0.0
        return usage

    def _wasted(self, agent: Agent, command: CallModel | SummariseBuffer, output: int, most: int | None) -> Usage:
        """Spend an attempt that brings no answer; return what our side counts of it."""
        usage, draw = self._used(agent, output), self.rng
        self.failed += 1
        if draw.random() < 0.3:  # the endpoint has told
            return usage
        came = output * self._counter_of(agent).per_token + draw.choice((0, 0, 7, 200))
        counted = cut_usage(None, lambda: command.input_max or usage.input_tokens, came + CUT_TOKENS_MAX, most)
        assert counted.total_tokens >= usage.total_tokens, f"{counted} of {usage}"
        return counted

    def _tool_ends(self, agent: Agent, command: CallTool) -> None:
        began, call_id = moment(self.seconds), command.call.id
        if self.rng.random() < 0.1:
            error = ErrorRecord(type="Boom", message=self._text(2_000), source="test")
            self._feed(agent, ToolFailed(call_id, error, began, self._tick()))
        else:
            self._feed(agent, ToolReturned(call_id, self._text(self.rng.choice((50, 60_000))), began, self._tick()))

    def _cancel(self, agent: Agent) -> None:
        """End what is in flight; of a model call's answer some had come, and is charged and reported."""
        asked = next((each for each in agent.pending if isinstance(each, CallModel | SummariseBuffer)), None)
        agent.pending.clear()
        used, lost = NOTHING_USED, self.rng.random() < 0.3
        if asked is not None:
            most = asked.max_output_tokens
            if lost and most is None:
                most = HIDDEN_TOKENS_MAX  # nothing limits it and nobody can tell: that much is assumed
            used = self._used(agent, self._output(most) // 2)
        if asked is not None and lost:
            self._feed(agent, ModelCancelled(None, self._tick(0), lost=True))
        elif isinstance(asked, SummariseBuffer):
            self._feed(agent, SummaryFailed(BOOM, self._tick(0), used))
        elif asked is not None:
            self._feed(agent, ModelCancelled(InferenceResponse(usage=used), self._tick(0)))
        for child in agent.children:
            if not child.ended:
                self._stop(child, "now")
