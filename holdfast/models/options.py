"""Which options of a definition's `LLM` an API does not know. Sends nothing and knows no provider."""

from __future__ import annotations

from holdfast.core.agent.definition import LLM, OPTIONS
from holdfast.models.model_apis import APIS, ModelApi


def options_problem(llm: LLM, api: ModelApi) -> str:
    """Return why `llm` cannot be asked through `api`: the options that it does not know; empty when it knows all."""
    unknown = [name for name in OPTIONS if getattr(llm, name) is not None and name not in api.options]
    if not unknown:
        return ""
    named = ", ".join(f"llm.{name}" for name in unknown)
    known = ", ".join(name for name in OPTIONS if name in api.options) or "none"
    others = " or ".join(each.name for each in APIS.values() if each.options.issuperset(unknown))
    remedy = f"leave {'it' if len(unknown) == 1 else 'them'} out"
    more = f", or use a model of the API {others}" if others else ""
    return f"{api.title} does not know {named} (it knows: {known}); {remedy}{more}"
