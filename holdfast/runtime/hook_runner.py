"""Runs the hooks of one trigger, in-process and inside an activity alike. Applies none of their changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from pydantic import ValidationError

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.hooks import (
    Changes,
    Hook,
    HookContext,
    HookRun,
    HookTraits,
    Trigger,
    problem_with,
    seen_by_next,
)
from holdfast.core.base.bounds import FORMAT_PROBLEM_CHARS_MAX
from holdfast.core.base.frozen import canonical, replace
from holdfast.core.base.model_retry import ModelRetry
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.model_call_changes import ModelCallChanges
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.runtime.model_call_changes import ModelCallCheck
from holdfast.runtime.open_resources import NO_RESOURCES, OpenResources
from holdfast.runtime.user_code import Exited, call_foreign


async def run_hooks(
    hooks: Mapping[str, Hook],
    traits_in_order: Sequence[HookTraits],
    context: HookContext,
    changes_bytes_max: int,
    *,
    apart: bool = False,
    resources: OpenResources = NO_RESOURCES,
    check: ModelCallCheck | None = None,
) -> list[HookRun]:
    """Run `traits_in_order` one after another, each seeing earlier changes, up to the first that fails.

    A hook fails by raising, by returning something other than `Changes`, by changes not allowed at its trigger, by
    exceeding what is left of `changes_bytes_max`, or by exceeding its `timeout_seconds` (a sync one cannot be ended: it
    is left behind in its thread). Hooks after one that blocked the call do not run. `apart` as in
    `user_code.call_foreign`; `resources` are those that are open. `check` judges changes of the model call; without one
    a hook that wants any fails.
    """
    runs: list[HookRun] = []
    room, usual = changes_bytes_max, context.llm or LLM()
    for traits in traits_in_order:
        run = await _run(hooks.get(traits.name), traits, context, room, apart=apart, resources=resources)
        if run.changes is not None and run.changes.model_call is not None:
            judge = None if check is None else partial(check.checked, usual, context)
            run = await _with_checked_call(traits, run.changes, room, judge)
        runs.append(run)
        if run.error is not None or (run.changes is not None and run.changes.block is not None):
            break
        if run.changes is not None:
            room -= len(canonical(run.changes))
            context = seen_by_next(context, run.changes)
    return runs


async def _run(
    hook: Hook | None,
    traits: HookTraits,
    context: HookContext,
    room: int,
    *,
    apart: bool,
    resources: OpenResources,
) -> HookRun:
    if hook is None:
        return _failed(traits, "is not offered by this worker any more")
    limit = asyncio.timeout(traits.timeout_seconds)
    try:
        async with limit:
            call = partial(hook.function, context, **resources.values_for(hook))
            changes = await call_foreign("hook", traits.name, call, apart=apart, loop=resources.loop_for(hook))
    except TimeoutError:
        if limit.expired():
            return _failed(traits, f"took longer than {traits.timeout_seconds:g} s")
        return _failed(traits, "raised TimeoutError")
    except Exited as exited:
        return _raised(traits, exited.error)
    except ModelRetry as retry:
        if traits.trigger is not Trigger.AFTER_INFERENCE:
            return _raised(traits, retry)
        why = error_record(retry, traits.name).message or "it was refused without a reason"
        changes = Changes(reask=clamped(why, FORMAT_PROBLEM_CHARS_MAX))
    except Exception as error:  # noqa: BLE001  # any error of a hook ends the run, with the hook's name
        return _raised(traits, error)
    return _checked(traits, changes, room)


def _raised(traits: HookTraits, error: BaseException) -> HookRun:
    record = error_record(error, traits.name)
    # pydantic's own text has several lines, the type's name and an address; most often it is about a `Changes(...)`
    message = problems_text(error, error.title) if isinstance(error, ValidationError) else record.message
    return _failed(traits, f"raised {record.type}: {message}")


def _checked(traits: HookTraits, changes: object, room: int) -> HookRun:
    """Return the run with its changes, or why they cannot be used."""
    if changes is None:
        return HookRun(name=traits.name)
    if not isinstance(changes, Changes):
        return _failed(traits, f"returned a {type(changes).__name__}; return Changes(...) or nothing")
    if problem := problem_with(traits.trigger, changes):
        return _failed(traits, f"cannot have its changes: {problem}")
    try:
        size = len(canonical(Changes.model_validate(changes.model_dump())))
    except ValidationError as error:
        return _failed(traits, f"returned changes that cannot be kept: {problems_text(error)}")
    except (ValueError, TypeError) as error:  # what JSON or UTF-8 cannot carry
        return _failed(traits, f"returned changes that cannot be kept: {error_record(error, traits.name).message}")
    if size > room:
        allowed = f"{room:,} are left of what all hooks of this place may change"
        return _failed(traits, f"returned changes of {size:,} bytes, {allowed}")
    return HookRun(name=traits.name, changes=changes)


async def _with_checked_call(
    traits: HookTraits,
    changes: Changes,
    room: int,
    judge: Callable[[ModelCallChanges], Awaitable[ModelCallChanges | str]] | None,
) -> HookRun:
    """Return the run with what the worker knows of the model that is asked instead, or why it cannot be."""
    if judge is None or changes.model_call is None:
        return _failed(traits, "cannot change the model call: nobody here knows of models")
    checked = await judge(replace(changes.model_call, hooks=()))
    if isinstance(checked, str):
        return _failed(traits, f"cannot change the model call so: {checked}")
    return _checked(traits, replace(changes, model_call=checked), room)


def _failed(traits: HookTraits, why: str) -> HookRun:
    text = f"the hook {traits.name!r} ({traits.trigger}) {why}"
    return HookRun(name=traits.name, error=ErrorRecord(type="HookFailed", message=text, source=traits.name))
