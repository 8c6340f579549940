"""Whether the next model call can fit into the model's context window, where that is known. Signals nothing.

No tokenizer is known here, and `token_bounds` counts the most tokens that a text can have, not the fewest. What is
counted here is the least that any tokenizer makes of a text: a call that passes the window by that is hopeless. One
that may fit is made; where it does not, its endpoint says so (`ContextTooLong`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.agent.context_view import compiled
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.messages import Message
from holdfast.core.loop.transition import Transition

CONTEXT_TOO_LONG: Final = "ContextTooLong"
"""The type of the error of a call that passes the context window, ours or the endpoint's."""

CHARS_PER_TOKEN: Final = 8
"""No tokenizer puts more letters into a token on average: English, German and Russian have about four."""


def excess(transition: Transition) -> int:
    """Return by how many tokens at least the next model call passes the window; 0 where it may fit or none is known."""
    window = transition.llm.context_window if transition.llm else None
    if window is None or _surely_fits(transition, window):
        return 0
    return max(0, least_tokens(transition) - window)


def least_tokens(transition: Transition) -> int:
    """Return the fewest tokens that the next model call's input can have: of the prompt and the messages shown."""
    context, policy = transition.state.context, transition.rules.definition.context
    shown = compiled(transition.store, policy, transition.execution.execution_id)
    return (_letters(context.system_prompt) + _letters_of(shown, policy.tool_output_chars_max)) // CHARS_PER_TOKEN


def _surely_fits(transition: Transition, window: int) -> bool:
    """Return whether what is new since the last call fits behind it, a token for each byte: counting all takes long."""
    done = transition.execution.step_executions
    last = done[-1].step if done else None
    if last is None or last.inference_response is None or last.compactions != transition.execution.compactions:
        return False
    new = transition.tokens_of(transition.store.messages[last.input_length :])
    return last.inference_response.usage.input_tokens + new <= window


def problem(transition: Transition) -> str:
    """Return why the next model call cannot be made, and what to do; empty where it can."""
    over, llm = excess(transition), transition.llm
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
