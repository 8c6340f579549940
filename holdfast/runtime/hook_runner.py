"""Running the hooks of one place, the same way in-process and inside an activity. Keeps nothing of what they change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from pydantic import ValidationError

from holdfast.core.agent.hooks import Changes, Hook, HookContext, HookRun, HookTraits, problem_with, seen_by_next
from holdfast.core.agent.tools import told
from holdfast.core.base.frozen import canonical
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.runtime.user_code import Exited, call_foreign


async def run_hooks(
    hooks: Mapping[str, Hook],
    wanted: Sequence[HookTraits],
    context: HookContext,
    changes_bytes_max: int,
    *,
    apart: bool = False,
) -> list[HookRun]:
    """Run `wanted` one after another, each seeing what those before it changed, up to the first that fails.

    A hook fails by raising, by returning what is no `Changes`, by asking for what its place does not allow, by asking
    for more than is left of `changes_bytes_max`, or by taking longer than its `timeout_seconds` (a sync one cannot
    be ended: it is left behind in its thread). A blocked call is not shown to the hooks behind the one that blocked
    it. `apart` as in `user_code.call_foreign`.
    """
    runs: list[HookRun] = []
    room = changes_bytes_max
    for traits in wanted:
        run = await _run(hooks.get(traits.name), traits, context, room, apart=apart)
        runs.append(run)
        if run.error is not None or (run.changes is not None and run.changes.block is not None):
            break
        if run.changes is not None:
            room -= len(canonical(run.changes))
            context = seen_by_next(context, run.changes)
    return runs


async def _run(found: Hook | None, traits: HookTraits, context: HookContext, room: int, *, apart: bool) -> HookRun:
    if found is None:
        return _failed(traits, "is not offered by this worker any more")
    limit = asyncio.timeout(traits.timeout_seconds)
    try:
        async with limit:
            changes = await call_foreign("hook", traits.name, partial(found.function, context), apart=apart)
    except TimeoutError:
        if limit.expired():
            return _failed(traits, f"took longer than {traits.timeout_seconds:g} s")
        return _failed(traits, "raised TimeoutError")
    except Exited as exited:
        return _raised(traits, exited.error)
    except Exception as error:  # noqa: BLE001  # whatever a hook raises ends the run with its name
        return _raised(traits, error)
    return _checked(traits, changes, room)


def _raised(traits: HookTraits, error: BaseException) -> HookRun:
    record = error_record(error, traits.name)
    return _failed(traits, f"raised {record.type}: {record.message}")


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
        return _failed(traits, f"returned changes that cannot be kept: {told(error)}")
    except (ValueError, TypeError) as error:  # what JSON or UTF-8 cannot carry
        return _failed(traits, f"returned changes that cannot be kept: {error_record(error, traits.name).message}")
    if size > room:
        allowed = f"{room:,} are left of what all hooks of this place may change"
        return _failed(traits, f"returned changes of {size:,} bytes, {allowed}")
    return HookRun(name=traits.name, changes=changes)


def _failed(traits: HookTraits, why: str) -> HookRun:
    text = f"the hook {traits.name!r} ({traits.trigger}) {why}"
    return HookRun(name=traits.name, error=ErrorRecord(type="HookFailed", message=text, source=traits.name))
