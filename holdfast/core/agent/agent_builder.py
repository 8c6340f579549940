"""`AgentBuilder`: a definition written in Python, one call per subject. Gives the same object as the file forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, JsonValue

from holdfast.core.agent.answer_types import format_of
from holdfast.core.agent.budget import UnpricedPolicy
from holdfast.core.agent.definition import AgentDefinition, Named, name_of
from holdfast.core.agent.definition_errors import definition_of
from holdfast.core.agent.tool_selection import ALL
from holdfast.core.base.errors import DefinitionInvalid, InvalidInput
from holdfast.core.base.usage import Prices

Answer = Literal["text", "json_object"] | type[BaseModel] | Mapping[str, JsonValue]
"""What an agent answers: words, any JSON object, an instance of a pydantic model, or what a JSON Schema says."""


@dataclass(frozen=True, slots=True)
class AgentBuilder:
    """A definition being written. Every call returns a new builder, so that one can be the base of several.

    What takes one value replaces it, what takes several (tools, hooks, limits, ...) adds to it. Nothing is judged
    before `build`, which then tells every problem.

        clerk = AgentBuilder.named("clerk").prompt("You find orders.").tools(find_order).limit(max_steps=8).build()
    """

    fields: Mapping[str, Any]

    @classmethod
    def named(cls, name: str) -> AgentBuilder:
        """Begin an agent of that name."""
        return cls({"name": name})

    @classmethod
    def like(cls, definition: AgentDefinition) -> AgentBuilder:
        """Begin with all that `definition` says."""
        return cls(dict(definition))

    def describe(self, description: str, *, label: str | None = None) -> AgentBuilder:
        """Say what the agent is for, and what people are shown for its name."""
        return self.with_(description=description, **_given(label=label))

    def prompt(self, system_prompt: str) -> AgentBuilder:
        """Say what the model is told first."""
        return self.with_(system_prompt=system_prompt)

    def model(
        self,
        model: str | None = None,
        *,
        temperature: float | None = None,
        max_output_tokens: int | None = None,
        prices: Prices | None = None,
        patience_seconds: float | None = None,
    ) -> AgentBuilder:
        """Choose the model, how it answers, what it costs, how long a call is tried; what is not given stays."""
        chosen = self._merged(
            "llm", model=model, temperature=temperature, max_output_tokens=max_output_tokens, prices=prices
        )
        return chosen.with_(**_given(model_patience_seconds=patience_seconds))

    def tools(self, first: str | Named, *more: str | Named) -> AgentBuilder:
        """Add tools, by name or themselves; `tools("all")` takes every one that is offered. None by default."""
        return self._chosen("tools", first, *more)

    def no_tools(self) -> AgentBuilder:
        """Take none of the tools chosen so far."""
        return self.with_(tools=())

    def deny(self, first: str | Named, *more: str | Named) -> AgentBuilder:
        """Add tools that the agent must not have."""
        return self._added("tools_deny", first, *more)

    def hooks(self, first: str | Named, *more: str | Named) -> AgentBuilder:
        """Add hooks, by name or themselves; `hooks("all")` takes every one that is offered. None by default."""
        return self._chosen("hooks", first, *more)

    def no_hooks(self) -> AgentBuilder:
        """Take none of the hooks chosen so far."""
        return self.with_(hooks=())

    def capabilities(self, first: str | Named, *more: str | Named) -> AgentBuilder:
        """Add capabilities: bundles of tools, hooks and prompt text that the worker offers."""
        return self._added("capabilities", first, *more)

    def subagents(self, first: str | Named, *more: str | Named) -> AgentBuilder:
        """Add agents that this one may call, by name or as definitions."""
        return self._added("subagents", first, *more)

    def approve(
        self,
        first: str | Named,
        *more: str | Named,
        arguments: Mapping[str, str] | None = None,
        when: Literal["always", "never"] = "always",
        cost_above: float | None = None,
        expires_seconds: float | None = None,
    ) -> AgentBuilder:
        """Add a rule behind those there are: calls of these tools wait for a person, or need not (`ApprovalRule`)."""
        rule: dict[str, Any] = {
            "tools": [name_of(each) for each in (first, *more)],
            "arguments": {} if arguments is None else arguments,
            "when": when,
            "cost_above": cost_above,
            "expires_seconds": expires_seconds,
        }
        return self.with_(approvals=(*self.fields.get("approvals", ()), rule))

    def limit(
        self,
        *,
        max_steps: int | None = None,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
        max_cost: float | None = None,
        deadline: datetime | None = None,
        unpriced: UnpricedPolicy | None = None,
    ) -> AgentBuilder:
        """Set limits of every execution (`ExecutionBudget`); those not given stay."""
        return self._merged(
            "budget",
            max_steps=max_steps,
            max_tokens=max_tokens,
            max_seconds=max_seconds,
            max_cost=max_cost,
            deadline=deadline,
            unpriced=unpriced,
        )

    def answers(self, form: Answer, *, strict: bool = False) -> AgentBuilder:
        """Say what the final answer must be; `strict` asks the provider to hold to a schema itself."""
        return self.with_(response_format=_format(form, strict=strict))

    def with_(self, **fields: Any) -> AgentBuilder:  # noqa: ANN401  # fields of any type, as in dataclasses.replace
        """Set any other field of `AgentDefinition` by its name."""
        return AgentBuilder({**self.fields, **fields})

    def build(self) -> AgentDefinition:
        """Return the definition. Raises DefinitionInvalid with every problem in one line."""
        try:
            return definition_of(self.fields)
        except DefinitionInvalid as error:
            raise DefinitionInvalid(f"agent {str(self.fields['name'])[:80]!r}: {error}") from None

    def _chosen(self, field: str, *values: str | Named) -> AgentBuilder:
        before = self.fields.get(field) or ()
        names = (*((before,) if before == ALL else before), *(name_of(value) for value in values))
        return self.with_(**{field: ALL if names == (ALL,) else names})  # `build` refuses names beside `all`

    def _added(self, field: str, *values: str | Named) -> AgentBuilder:
        return self.with_(**{field: (*(self.fields.get(field) or ()), *(name_of(value) for value in values))})

    def _merged(self, field: str, **values: object) -> AgentBuilder:
        before = self.fields.get(field, {})
        kept = dict(before) if isinstance(before, BaseModel) else before
        return self.with_(**{field: {**kept, **_given(**values)}})


def _given(**values: object) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _format(form: Answer, *, strict: bool) -> dict[str, Any]:
    """Return the fields of the response format; `build` judges them with the rest."""
    if isinstance(form, str):
        return {"type": form}
    if not isinstance(form, type):
        return {"type": "json_schema", "json_schema": form, "strict": strict}
    try:
        return dict(format_of(form, strict=strict))
    except InvalidInput as error:
        raise DefinitionInvalid(error.message) from None
