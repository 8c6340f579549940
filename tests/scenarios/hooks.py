"""The hooks that the agents of the scenarios may name."""

from __future__ import annotations

import asyncio
from typing import cast

from holdfast.core.agent.hooks import Changes, Hook, HookContext, Trigger, hook
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import user_message


def _noted(context: HookContext, name: str, value: str) -> Changes:
    """Return the change that appends `value` to the list `name` of the metadata."""
    return Changes(metadata={name: [*cast("list[str]", context.metadata.get(name, [])), value]})


def _counted(context: HookContext, name: str) -> Changes:
    return Changes(metadata={name: cast("int", context.metadata.get(name, 0)) + 1})


def _saw(context: HookContext) -> Changes:
    return _noted(context, "seen", context.trigger)


WITNESSES = tuple(hook(trigger, name=f"saw_{trigger}")(_saw) for trigger in Trigger)


def _raises(_: HookContext) -> None:
    raise LookupError("nothing there")


RAISERS = tuple(
    hook(trigger, name=f"raise_{trigger}")(_raises) for trigger in ("before_execution", "before_tool", "after_step")
)


@hook("before_execution")
def remind(_: HookContext) -> Changes:
    return Changes(messages=(user_message("Remember the deadline."),))


@hook("before_execution")
def refuse_to_begin(_: HookContext) -> Changes:
    return Changes(stop="not today")


@hook("before_step")
def stop_after_one_step(context: HookContext) -> Changes | None:
    return Changes(stop="one is enough") if context.step_number == 2 else None


@hook("before_inference")
def tell_the_step(context: HookContext) -> Changes:
    return Changes(messages=(user_message(f"This is step {context.step_number}."),))


@hook("input_guard")
async def refuse_the_input(_: HookContext) -> Changes:
    await asyncio.sleep(3)  # the model is asked by then, on a busy machine, too
    return Changes(stop="not this question")


@hook("input_guard")
async def think_about_the_input(_: HookContext) -> Changes:
    await asyncio.sleep(1)
    return Changes(metadata={"thought": True})


@hook("after_inference")
def stop_after_inference(_: HookContext) -> Changes:
    return Changes(stop="no tools today")


@hook("after_inference", priority=1)
def censor(context: HookContext) -> Changes | None:
    response = context.response
    if response is None or "secret" not in response.text:
        return None
    return Changes(answer=response.text.replace("secret", "*****"))


@hook("after_inference")
def repair(context: HookContext) -> Changes | None:
    text = context.response.text if context.response else ""
    return Changes(answer='{"sum": 3}') if text == "three" else None


@hook("after_inference")
def want_a_number(context: HookContext) -> Changes | None:
    text = context.response.text if context.response else ""
    return None if any(char.isdigit() for char in text) else Changes(reask="name a number")


@hook("after_step")
def sign(context: HookContext) -> Changes | None:
    response = context.response
    return Changes(answer=f"{response.text} (checked)") if response and not response.tool_calls else None


@hook("before_tool", tools=("echo",))
def block_echo(_: HookContext) -> Changes:
    return Changes(block="not on Sundays")


@hook("before_tool")
def block_all(_: HookContext) -> Changes:
    return Changes(block="not on Sundays")


@hook("before_tool")
def add_forty_two(_: HookContext) -> Changes:
    return Changes(arguments={"a": 40, "b": 2})


@hook("before_tool")
def add_nonsense(_: HookContext) -> Changes:
    return Changes(arguments={"a": "many"})


@hook("after_tool")
def note_call(context: HookContext) -> Changes:
    return Changes(metadata={context.call.id: "seen"} if context.call else {})


@hook("after_tool", tools=("echo",))
def count_echoes(context: HookContext) -> Changes:
    return _counted(context, "echoes")


@hook("after_tool")
def comment_on_tool(_: HookContext) -> Changes:
    return Changes(messages=(user_message("Well done."),))


@hook("after_step")
def stop_after_step(_: HookContext) -> Changes:
    return Changes(stop="seen enough")


@hook("after_step")
def stop_oddly(_: HookContext) -> Changes:
    return Changes(stop="who knows", stop_reason="because")


@hook("after_step")
def go_on_once(context: HookContext) -> Changes | None:
    if context.metadata.get("went_on"):
        return None
    return Changes(metadata={"went_on": True}, messages=(user_message("Go on."),), go_on=True)


@hook("before_step")
def go_on_at_first(context: HookContext) -> Changes | None:
    return Changes(go_on=True) if context.step_number == 1 else None


@hook("after_step")
def go_on_always(context: HookContext) -> Changes:
    return replace(_counted(context, "asked"), go_on=True)


@hook("on_stop")
def note_the_reason(context: HookContext) -> Changes:
    return Changes(metadata={"stopped_because": context.stop_signals[0].reason})


@hook("after_execution")
def note_the_end(_: HookContext) -> Changes:
    return Changes(metadata={"ended": True})


@hook("on_error")
def note_the_error(context: HookContext) -> Changes:
    return Changes(metadata={"failed": "temperature must be lower" in str(context.error)})


# Of `second` and `third`, which share a priority, the one registered first is called first.
@hook("before_execution", priority=1)
def second(context: HookContext) -> Changes:
    return _noted(context, "order", "second")


@hook("before_execution", priority=1)
def third(context: HookContext) -> Changes:
    return _noted(context, "order", "third")


@hook("before_execution", priority=5)
def first(context: HookContext) -> Changes:
    return _noted(context, "order", "first")


HOOKS: tuple[Hook, ...] = (
    *WITNESSES,
    *RAISERS,
    remind,
    refuse_to_begin,
    stop_after_one_step,
    tell_the_step,
    refuse_the_input,
    think_about_the_input,
    stop_after_inference,
    censor,
    repair,
    want_a_number,
    sign,
    block_echo,
    block_all,
    add_forty_two,
    add_nonsense,
    note_call,
    count_echoes,
    comment_on_tool,
    stop_after_step,
    stop_oddly,
    go_on_once,
    go_on_at_first,
    go_on_always,
    note_the_reason,
    note_the_end,
    note_the_error,
    second,
    third,
    first,
)
