"""Which options of a definition's `LLM` an API does not know. Sends nothing and knows no provider."""

from __future__ import annotations

from holdfast.core.agent.definition import LLM, OPTIONS
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.server_tools import ServerTool
from holdfast.models.model_apis import APIS, ModelApi


def options_problem(llm: LLM, api: ModelApi) -> str:
    """Return why `llm` cannot be asked through `api`: the options that it does not know; empty when it knows all."""
    unknown = [name for name in OPTIONS if getattr(llm, name) not in (None, ()) and name not in api.options]
    if not unknown:
        return next(filter(None, (_tool_problem(tool, api) for tool in llm.server_tools)), "")
    named = ", ".join(f"llm.{name}" for name in unknown)
    known = ", ".join(name for name in OPTIONS if name in api.options) or "none"
    others = " or ".join(each.name for each in APIS.values() if each.options.issuperset(unknown))
    remedy = f"leave {'it' if len(unknown) == 1 else 'them'} out"
    more = f", or use a model of the API {others}" if others else ""
    return f"{api.title} does not know {named} (it knows: {known}); {remedy}{more}"


def _tool_problem(tool: ServerTool, api: ModelApi) -> str:
    """Return why a tool of the provider's cannot be asked for; empty where it can."""
    options = api.server_tools.get(tool.type)
    if options is None:
        return f"llm.server_tools: {api.title} runs no tool {tool.type!r}; {suggestion(tool.type, api.server_tools)}"
    for name in tool.options:
        if name not in options:
            return f"llm.server_tools: {tool.type} of {api.title} has no option {name!r}; {suggestion(name, options)}"
    missing = [name for name, must_be in options.items() if must_be and name not in tool.options]
    return f"llm.server_tools: {tool.type} of {api.title} needs the option {missing[0]!r}" if missing else ""
