"""Headroom: what the budget leaves for the next model call's input, answer and failed attempts. Signals nothing.

It also says whether that call can fit into the model's context window, where that is known. No tokenizer is known here,
and `token_bounds` counts the most tokens that a text can have, not the fewest. For the window the least counts that any
tokenizer makes of a text: a call that passes it by that is hopeless. One that may fit is made; where it does not, its
endpoint says so (`ContextTooLong`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.agent.context_view import compiled
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.token_bounds import messages_tokens, opening_tokens, tools_tokens
from holdfast.core.agent.usage_estimates import cut_usage, hidden_tokens
from holdfast.core.base.bounds import OUTPUT_TOKENS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.base.model_options import forces_calls
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.usage import TOKENS_PRICED, Usage, room_after
from holdfast.core.conversation.messages import BUFFER_SECTION, SUMMARY_SECTION, Message, user_message
from holdfast.core.conversation.model_call_changes import UNCHANGED
from holdfast.core.conversation.steps import AgentStep, InferenceResponse
from holdfast.core.loop.commands import CallModel, SummariseBuffer
from holdfast.core.loop.conversation_summary import summary_request
from holdfast.core.loop.transition import Transition

FREE_ROOM: Final = 1_000_000_000
"""The room of an answer that nothing limits."""

SERVER_TOOL_TOKENS: Final = 5_000
"""What a tool of the provider's adds to the input of a call by its description, at the most."""

SUMMARY_ROOM_MIN: Final = 200
"""The least room that a summary needs, in tokens: a few words must not replace a conversation."""

CONTEXT_TOO_LONG: Final = "ContextTooLong"
"""The type of the error of a call that passes the context window, ours or the endpoint's."""

CHARS_PER_TOKEN: Final = 8
"""No tokenizer puts more letters into a token on average: English, German and Russian have about four."""


def count_opening(transition: Transition) -> None:
    """Count the next model call's input from scratch, where no earlier count exists."""
    if transition.counting:
        transition.change(next_input_max=_everything(transition))


def count_for_route(transition: Transition) -> None:
    """Count the next model call's input where another model has counted the one before.

    Models count in tokens of their own, and some get back what no other does: one's count bounds no call of another.
    The model's own last count does, with what was added since; else the bytes of everything.
    """
    if not transition.counting:
        return
    execution, llm, most = transition.execution, transition.llm, _everything(transition) - _others_items(transition)
    for done in reversed(execution.step_executions):
        step = done.step
        if step.compactions != execution.compactions:
            break
        if step.inference_response is not None and llm is not None and llm.model == transition.model_of(step):
            added = transition.tokens_of(transition.store.messages[step.input_length :])
            most = min(most, full_input(transition, step, step.inference_response) + added)
            break
    transition.change(next_input_max=most)


def count_after_summary(transition: Transition) -> None:
    """Count the next model call's input after a summary replaced old messages."""
    if transition.counting:
        summary = transition.tokens_of(transition.store.section(SUMMARY_SECTION).messages)
        transition.change(next_input_max=min(transition.execution.next_input_max + summary, _everything(transition)))


def model_call(transition: Transition) -> CallModel:
    """Return the step's model call, with its output limits and the model that it has come to."""
    changes = transition.step.model_call_changes or UNCHANGED
    return CallModel(
        transition.step.number,
        *_allowed(transition, next_input(transition)),
        llm=_llm_of_call(transition),
        may_fall_back=transition.next_fallback is not None,
        offered=changes.tools,
        prompt=changes.prompt,
    )


def summary_call(transition: Transition) -> SummariseBuffer | None:
    """Return the call that summarises the store's buffer, none where the budget has no room for it."""
    input_max = _summary_input(transition)
    money = money_left(transition, input_max)
    if (money is not None and money < 0) or any(limit < SUMMARY_ROOM_MIN for limit in _limits(transition, input_max)):
        return None
    return SummariseBuffer(transition.step.number, *_allowed(transition, input_max))


def next_input(transition: Transition) -> int:
    """Return the most tokens that the next model call's input can have."""
    if not transition.counting:
        return 0
    return transition.execution.next_input_max + _added(transition)


def _added(transition: Transition) -> int:
    """Return the tokens of what the next call has behind the store's messages."""
    return transition.tokens_of(transition.execution.waiting_messages) + transition.tokens_of(call_prompt(transition))


def call_prompt(transition: Transition) -> tuple[Message, ...]:
    """Return the message that hooks have put behind the conversation for the call under way, if they have."""
    step = transition.execution.current_step
    changes = step.model_call_changes if step is not None else None
    return (user_message(changes.prompt),) if changes is not None and changes.prompt else ()


def full_input(transition: Transition, step: AgentStep, response: InferenceResponse) -> int:
    """Return the most tokens that the input which `response` has answered has where every tool is offered."""
    changes, rules, counted = step.model_call_changes, transition.rules, response.usage.input_tokens
    if changes is None or changes.tools is None:
        return counted
    return counted + tools_tokens(rules.tools, rules.own_tools, without=changes.tools)


def next_after(transition: Transition, response: InferenceResponse) -> int:
    """Return the most tokens that the next call's input has of the one that `response` has answered.

    A provider reads the input again after each call of its own tools, and counts it each time; it is sent once.
    """
    most = full_input(transition, transition.step, response)
    return min(most, _everything(transition)) if response.server_tool_calls else most


def keeps_half(transition: Transition, input_max: int) -> bool:
    """Return whether half of the tokens are kept for a first call's answer, as its input might take more."""
    limit = transition.execution.budget.max_tokens
    left = 0 if limit is None else limit - transition.execution.usage.total_tokens
    return limit is not None and _is_first_of_root(transition) and input_max > left // 2


def tokens_left(transition: Transition, input_max: int) -> int | None:
    """Return how many tokens the budget leaves for the next answer itself, none when it is unlimited."""
    limit = transition.execution.budget.max_tokens
    if limit is None:
        return None
    left = limit - transition.execution.usage.total_tokens
    return left - (min(input_max, left // 2) if _is_first_of_root(transition) else input_max)


def tokens_affordable(transition: Transition, input_max: int) -> int | None:
    """Return how many tokens of answer the budget's money still pays, none when that is unlimited or unknown."""
    left, llm = money_left(transition, input_max), transition.llm
    if left is None or llm is None or llm.prices is None or not llm.prices.output_usd:
        return None
    return int(left * TOKENS_PRICED / llm.prices.output_usd)


def money_left(transition: Transition, input_max: int) -> float | None:
    """Return the US dollars that the budget has left for the next answer, none when unlimited or unknown."""
    limit, llm = transition.execution.budget.max_cost, transition.llm
    if limit is None or llm is None or llm.prices is None:
        return None
    left = limit - transition.execution.cost
    input_cost = llm.prices.dearest_input_cost(input_max)  # whether the provider still has it cached, nobody knows
    return left - (min(input_cost, left / 2) if _is_first_of_root(transition) else input_cost)


def _llm_of_call(transition: Transition) -> LLM | None:
    """Return the model and options of the step's call where they differ from the agent's; none where they do not.

    The definition's forced tool call holds for the first step alone: a model that must call a tool could never answer.
    A hook's holds for the one call that the hook changed.
    """
    llm, step, changes = transition.llm, transition.step, transition.step.model_call_changes or UNCHANGED
    if llm is not None and step.number > 1 and forces_calls(llm.tool_choice) and "tool_choice" not in changes.options:
        return replace(llm, tool_choice=None)
    is_other = step.fallbacks or changes.model is not None or changes.options or _leaves_out(transition, llm)
    return llm if is_other else None


def _leaves_out(transition: Transition, llm: LLM | None) -> bool:
    """Return whether hooks have left out tools of the provider's from the step's call."""
    changes, own = transition.step.model_call_changes, transition.state.llm
    if changes is None or changes.tools is None or own is None or llm is None:
        return False
    return own.server_tools != llm.server_tools


def _limits(transition: Transition, input_max: int) -> tuple[int, ...]:
    """Return the tokens that each limit leaves for an answer after such an input."""
    limits = (tokens_left(transition, input_max), tokens_affordable(transition, input_max))
    return tuple(limit for limit in limits if limit is not None)


def _allowed(transition: Transition, input_max: int) -> tuple[int, int | None, float, int | None]:
    """Return what `CallModel` and `SummariseBuffer` share: `max_output_tokens`, `room`, `input_weight`, `input_max`.

    A limit with nothing left was overridden, or no call would be made: it does not count any more.
    """
    llm = transition.llm
    own, prices = (llm.output_bound, llm.prices) if llm else (OUTPUT_TOKENS_MAX, None)
    room = min((limit for limit in _limits(transition, input_max) if limit > 0), default=None)
    most = own if room is None else min(own, room)
    left, counted = money_left(transition, input_max), input_max if transition.counting else None
    if prices is None or left is None or prices.output_usd or not prices.dearest_input_usd:
        return most, room, prices.input_weight if prices else 1.0, counted
    # answers are free, failed attempts are not: the remaining money pays the inputs of so many
    weight = FREE_ROOM * prices.dearest_input_usd / max(left * TOKENS_PRICED, 1.0)
    return most, FREE_ROOM if room is None else room, max(1.0, weight), counted


def window_excess(transition: Transition) -> int:
    """Return by how many tokens at least the next model call passes the window; 0 where it may fit or none is known."""
    window = transition.llm.context_window if transition.llm else None
    if window is None or _surely_fits(transition, window):
        return 0
    return max(0, _least_tokens(transition) - window)


def window_problem(transition: Transition) -> str:
    """Return why the next model call cannot be made, and what to do; empty where it can."""
    over, llm = window_excess(transition), transition.llm
    if not over or llm is None or llm.context_window is None:
        return ""
    name = f"the model {llm.model!r}" if llm.model else "the model"
    text = (
        f"the next call has at least {llm.context_window + over:,} tokens, {over:,} more than the context window of "
        f"{name} ({llm.context_window:,}), so it was not made"
    )
    remedy = "shorten the question, trim tool results (context.tool_output_chars_max)"
    if transition.rules.definition.context.summary is None:
        return f"{text}; {remedy} or have old messages summarised (context.summary)"
    return f"{text}; {remedy} or keep fewer messages (context.summary.keep_messages)"


def lost_call(transition: Transition, failed: Usage) -> Usage:
    """Return the most that a model call or summary with an unknown end can have used.

    `failed` is the usage of its earlier, failed attempts.
    """
    policy, summarising = transition.rules.definition.context, transition.store.has(BUFFER_SECTION)
    input_tokens = next_input(transition) if transition.counting else _everything(transition) + _added(transition)
    if policy.summary is not None and summarising:
        input_tokens = max(input_tokens, messages_tokens(summary_request(transition.store)))
    call = model_call(transition)
    room = room_after(call.room, failed, call.input_weight)
    limits = [limit for limit in (call.max_output_tokens, room) if limit is not None]
    output_max = max(0, min(limits)) if limits else None
    return cut_usage(None, lambda: input_tokens, hidden_tokens(output_max), output_max)


def _everything(transition: Transition) -> int:
    """Return the most tokens of the whole next input, counted anew."""
    context, rules = transition.state.context, transition.rules
    opening = opening_tokens(context.system_prompt, rules.tools, rules.own_tools, context.response_format)
    opening += SERVER_TOOL_TOKENS * len(transition.llm.server_tools if transition.llm else ())
    policy = rules.definition.context
    return opening + messages_tokens(compiled(transition.store, policy, transition.execution.execution_id))


def _others_items(transition: Transition) -> int:
    """Return what of `_everything` are items of other models' answers: they are not sent to the one that is called."""
    model = (transition.llm.model if transition.llm else None) or ""
    shown = compiled(transition.store, transition.rules.definition.context, transition.execution.execution_id)
    items = (item for message in shown for item in message.items if item.route)
    return sum(item.sent_bytes for item in items if item.route not in (model, model.partition("/")[0]))


def _summary_input(transition: Transition) -> int:
    return messages_tokens(summary_request(transition.store)) if transition.counting else 0


def _is_first_of_root(transition: Transition) -> bool:
    """Return whether the next call is a first one, for whose input at most half of the budget is reserved.

    Bytes are some four times the tokens. Were all of them reserved, a small budget would refuse a short question for a
    long list of tools; so the answer has at least half. Only an input that really takes more than the other half
    exceeds such a budget. This does not hold below a parent whose remainder counts: many small children would exceed
    that together.
    """
    free = transition.parent_agent_id is None or transition.rules.definition.budget_policy == "own"
    return free and not transition.execution.step_executions


def _least_tokens(transition: Transition) -> int:
    """Return the fewest tokens that the next model call's input can have: of the prompt and the messages shown."""
    context, policy = transition.state.context, transition.rules.definition.context
    shown = compiled(transition.store, policy, transition.execution.execution_id)
    shown = (*shown, *call_prompt(transition))
    return (_letters(context.system_prompt) + _letters_of(shown, policy.tool_output_chars_max)) // CHARS_PER_TOKEN


def _surely_fits(transition: Transition, window: int) -> bool:
    """Return whether what is new since the last call fits behind it, a token for each byte: counting all takes long."""
    done = transition.execution.step_executions
    last = done[-1].step if done else None
    if last is None or last.inference_response is None or last.compactions != transition.execution.compactions:
        return False
    new = transition.tokens_of((*transition.store.messages[last.input_length :], *call_prompt(transition)))
    return last.inference_response.usage.input_tokens + new <= window


def _letters_of(messages: Iterable[Message], tool_output_chars_max: int | None) -> int:
    letters = 0
    for message in messages:
        text = message.text
        if tool_output_chars_max is not None and message.role == "tool":
            text = clamped(text, tool_output_chars_max)
        letters += _letters(text) + sum(_letters(call.sent_arguments) for call in message.tool_calls)
    return letters


def _letters(text: str) -> int:
    """Return the characters of `text` but for blanks: a tokenizer may put a hundred of those into one token."""
    return sum(map(len, text.split()))
