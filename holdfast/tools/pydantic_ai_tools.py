"""`from_pydantic_ai`: tools and toolsets of Pydantic AI as ours."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import Any, Final, Unpack, cast

from pydantic import ValidationError

from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidArguments, InvalidInput
from holdfast.core.base.model_retry import ModelRetry
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_traits import ToolOptions
from holdfast.tools.foreign_tools import ForeignTool, check_approval, toolset_of

LISTING_SECONDS_MAX: Final = 60.0
"""How long a toolset may take to list its tools as the worker starts; some ask a server."""


def from_pydantic_ai(
    tools: Iterable[object] | object,
    *,
    deps: object = None,
    approved_by_rules: bool = False,
    **options: Unpack[ToolOptions],
) -> Toolset:
    """Return a toolset of Pydantic AI's tools: `Tool`s, plain functions, toolsets, or a list of these.

    Names, descriptions and schemas stay, `prepare` functions run here, and at each call. `ModelRetry` of Pydantic AI
    has the model try again, as ours does; any other exception is an error for the model. A toolset is entered for each
    call.

    Args:
        tools: a toolset, or a list of tools, functions and toolsets.
        deps: what the tools get as `RunContext.deps`, the same object in every call.
        approved_by_rules: take tools with `requires_approval` too: the agent's `approvals` decide about their calls.
        options: of every tool, as `@tool` has them; `retries_max` and `sequential` are the tool's own by default.

    Raises InvalidInput for a tool that runs outside (`external`), for one that asks for approval, and for a toolset
    that cannot list its tools.
    """
    every = cast("Iterable[object]", tools) if isinstance(tools, Iterable) else (tools,)
    found: list[ForeignTool] = []
    for toolset in _toolsets(every):
        listed = _listed(toolset, deps)
        found += [_foreign(toolset, each, deps, approved_by_rules=approved_by_rules) for each in listed]
    return toolset_of(found, options)


def _toolsets(every: Iterable[object]) -> Iterator[Any]:
    """Yield the toolsets, single tools and functions as one of their own."""
    sdk = import_module("pydantic_ai")
    abstract = import_module("pydantic_ai.toolsets").AbstractToolset
    single: list[object] = []
    for each in every:
        if isinstance(each, abstract):
            yield each
        elif isinstance(each, sdk.Tool) or callable(each):
            single.append(each)
        else:
            text = f"{type(each).__name__} is no tool of Pydantic AI"
            raise InvalidInput(f"{text}; give Tool(...), a function, or a toolset such as FunctionToolset(...)")
    if single:
        yield import_module("pydantic_ai.toolsets").FunctionToolset(single)


def _listed(toolset: Any, deps: object) -> list[Any]:  # noqa: ANN401  # of Pydantic AI
    """Return the toolset's tools, listed in a thread of its own: whoever calls may be in an event loop."""

    async def listed() -> list[Any]:
        async with asyncio.timeout(LISTING_SECONDS_MAX), toolset:
            return list((await toolset.get_tools(_run_context(deps))).values())

    with ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(partial(asyncio.run, listed())).result()
        except Exception as error:
            text = f"the tools of {toolset.label} of Pydantic AI cannot be listed ({type(error).__name__}: {error})"
            raise InvalidInput(f"{text}; see that what it needs is there as the worker starts") from error


def _foreign(toolset: Any, listed: Any, deps: object, *, approved_by_rules: bool) -> ForeignTool:  # noqa: ANN401  # of Pydantic AI
    about = listed.tool_def
    name: str = about.name
    if about.kind not in ("function", "unapproved"):
        text = f"the tool {name!r} of Pydantic AI runs outside (kind {about.kind!r})"
        raise InvalidInput(f"{text}; serve it from a worker of yours with @remote_tool")
    asks = about.kind == "unapproved"
    check_approval(name, asks=asks, approved_by_rules=approved_by_rules)

    async def call(arguments: dict[str, Any], own: ToolContext) -> object:
        context = _run_context(
            deps, tool_name=name, tool_call_id=own.call_id, tool_call_approved=asks, max_retries=listed.max_retries
        )
        async with toolset:
            try:
                return _plain(await _called(toolset, name, arguments, context))
            except import_module("pydantic_ai").ModelRetry as error:
                raise ModelRetry(error.message) from error

    own_options: dict[str, Any] = {"sequential": True} if about.sequential else {}
    if listed.max_retries:
        own_options["retries_max"] = min(listed.max_retries, 100)
    return ForeignTool(
        name=name,
        description=about.description or "",
        parameters=about.parameters_json_schema,
        call=call,
        source=f"the tool {name!r} of Pydantic AI",
        output=about.return_schema,
        options=cast("ToolOptions", own_options),
    )


async def _called(toolset: Any, name: str, arguments: dict[str, Any], context: Any) -> object:  # noqa: ANN401  # of Pydantic AI
    """Call the tool as Pydantic AI's own tool manager does: find it, check the arguments, run it."""
    tools = await toolset.get_tools(context)
    if name not in tools:
        raise InvalidArguments(f"{toolset.label} of Pydantic AI has no tool {name!r} any more")
    tool = tools[name]
    try:
        checked = tool.args_validator.validate_python(arguments)
    except ValidationError as error:
        raise InvalidArguments(problems_text(error)) from None
    if tool.args_validator_func is not None:
        judged = tool.args_validator_func(context, **checked)
        if inspect.isawaitable(judged):
            await judged
    return await toolset.call_tool(name, checked, context, tool)


def _run_context(deps: object, **fields: Any) -> Any:  # noqa: ANN401  # of Pydantic AI
    """Return a RunContext with `deps` and the call; its model is one that answers nothing."""
    model = import_module("pydantic_ai.models.test").TestModel()
    usage = import_module("pydantic_ai.usage").RunUsage()
    return import_module("pydantic_ai").RunContext(deps=deps, model=model, usage=usage, **fields)


def _plain(result: object) -> object:
    """Return the value of a `ToolReturn`, with what it adds for the model beside it."""
    if getattr(result, "kind", None) != "tool-return" or not hasattr(result, "return_value"):
        return result
    whole = cast("Any", result)
    return whole.return_value if whole.content is None else {"result": whole.return_value, "content": whole.content}
