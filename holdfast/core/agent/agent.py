"""`Agent`: an agent written in Python, a definition together with the functions that it names."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast, final

from pydantic import JsonValue

from holdfast.core.agent.answer_types import Answers, AnswerT, format_of
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.context_view import Compiler
from holdfast.core.agent.definition import LLM, AgentDefinition, Named, name_of
from holdfast.core.agent.definition_errors import definition_of
from holdfast.core.agent.hooks import Hook
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.agent.tool_selection import ALL
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import DefinitionInvalid, InvalidInput
from holdfast.core.tools.resources import Resource
from holdfast.core.tools.tools import AnyTool, Tool, tool

KindT = TypeVar("KindT")

ALL_OF: Final = ("tools", "hooks")
"""The fields that take the word `all` in place of a list."""

TOOLS_CACHED_MAX: Final = 1_024
"""The most functions whose tool is cached: a program may build agents from new functions without end."""

AnyFunction: TypeAlias = Callable[..., Any]
"""A function that becomes a tool, as with `@tool`."""


SET_BY: Final = {"prompt": "system_prompt", "model": "llm", "answers": "response_format"}
"""The fields of a definition that arguments of `Agent` with another name set."""


@final
class Agent(Generic[AnswerT]):
    """An agent and the functions it names; `LocalDriver`, `Holdfast` and `holdfast worker --import` take it as it is.

        clerk = Agent(name="clerk", prompt="You find orders.", tools=[find_order], answers=Ticket)

    Args:
        name: what the agent is called.
        prompt: the system prompt.
        tools: functions, tools (`@tool`), toolsets, names of tools that the worker offers, or "all" for every one it
            offers.
        answers: what the final answer must be: a pydantic model, a union or list of such or another type (`format_of`),
            "json_object", or a JSON Schema; text by default.
        strict: have the provider enforce the schema (`format_of`).
        model: the model, by name or as an `LLM` with its settings; by default the worker's HOLDFAST_MODEL.
        description: what the agent is for, in a line; another agent's model reads it.
        hooks: hooks (`@hook`), names of hooks that the worker offers, or "all".
        subagents: the agents that it may call: agents, definitions, or names of agents in the agents folder.
        handoffs: the agents that it may hand the conversation to, in the same forms.
        capabilities: bundles of tools, hooks and prompt text, by themselves or by name.
        compiler: turns the conversation into the messages of a model call (`@compiler`), by itself or by name.
        resources: what its tools share, made with `@resource`.
        approvals: which calls wait for a person: rules, or tools whose every call does.
        budget: the limits of every run.
        fields: any other field of `AgentDefinition`, by its name.

    Raises DefinitionInvalid with every problem in one line, or with the first value that is not a tool, hook or name.
    """

    def __init__(  # noqa: PLR0913  # what most agents say; the rest of a definition's fields come by name
        self,
        name: str,
        *,
        prompt: str = "",
        tools: Iterable[str | AnyTool | AnyFunction | Toolset] = (),
        answers: Answers[AnswerT] | Literal["text", "json_object"] | Mapping[str, JsonValue] | None = None,
        strict: bool = False,
        model: str | LLM | None = None,
        description: str = "",
        hooks: Iterable[str | Hook] = (),
        subagents: Iterable[str | AgentDefinition | Agent[Any]] = (),
        handoffs: Iterable[str | AgentDefinition | Agent[Any]] = (),
        capabilities: Iterable[str | Capability] = (),
        compiler: Compiler | str | None = None,
        resources: Iterable[Resource] = (),
        approvals: Iterable[ApprovalRule | str | AnyTool | AnyFunction] = (),
        budget: ExecutionBudget | None = None,
        **fields: Any,  # noqa: ANN401  # of any type, as in dataclasses.replace
    ) -> None:
        with _problems_of(name):
            _check_given_once(fields, prompt=prompt, model=model, answers=answers)
            if strict and (answers is None or isinstance(answers, str)):
                raise DefinitionInvalid("strict needs a type or a JSON Schema; give it as answers=")
            own_tools = [each for value in _listed("tools", tools) for each in _tools_of(value)]
            own_hooks = _listed("hooks", hooks)
            bundles = _listed("capabilities", capabilities)
            callees, successors = _listed("subagents", subagents), _listed("handoffs", handoffs)
            agents = (*callees, *successors)
            data: dict[str, Any] = {
                "name": name,
                "system_prompt": prompt,
                "description": description,
                "tools": _names(own_tools),
                "hooks": _names(own_hooks),
                "capabilities": [name_of(each) for each in bundles],
                "subagents": [name_of(each) for each in callees],
                "handoffs": [name_of(each) for each in successors],
                "approvals": [_rule(each) for each in _listed("approvals", approvals)],
                **fields,
            }
            if model is not None:
                data["llm"] = LLM(model=model) if isinstance(model, str) else model
            if budget is not None:
                data["budget"] = budget
            if answers is not None:
                data["response_format"] = _format(answers, strict=strict)
            if compiler is not None:
                data["context"] = {**dict(data.get("context", {})), "compiler": name_of(compiler)}
            self.definition: Final = definition_of(data)
            self.subagents: Final = distinct_agents(_definitions(agents))
            """The definitions of its subagents and handoffs, and of theirs, as far as they were passed in."""
        self.answers: Final = None if isinstance(answers, str | Mapping) else answers
        """The type of the answers, where they have one."""
        self.toolset: Final[Toolset] = Toolset(
            tools=tuple(each for each in own_tools if not isinstance(each, str)),
            hooks=_of(Hook, own_hooks),
            compilers=() if compiler is None or isinstance(compiler, str) else (compiler,),
            capabilities=_of(Capability, bundles),
            resources=tuple(resources),
        ).joined(*(each.toolset for each in agents if isinstance(each, Agent)))
        """Its functions and those of its subagents and handoffs."""

    @property
    def name(self) -> str:
        """What the agent is called."""
        return self.definition.name

    def __repr__(self) -> str:
        return f"<Agent {self.name!r}>"


AnyAgent: TypeAlias = str | AgentDefinition | Agent[Any]
"""What can stand for an agent: its name in the agents folder, or the path of a file; its definition; itself."""


def agents_in(modules: Iterable[ModuleType]) -> tuple[Agent[Any], ...]:
    """Return the agents that the modules hold, each once."""
    values = (value for module in modules for value in vars(module).values())
    agents: list[Agent[Any]] = [value for value in values if isinstance(value, Agent)]
    return tuple({id(each): each for each in agents}.values())


def answers_of(agent: str | AgentDefinition | Agent[AnswerT] | None) -> Answers[AnswerT] | None:
    """Return the type of an agent's answers, where it is known."""
    return agent.answers if isinstance(agent, Agent) else None  # pyright: ignore[reportReturnType]  # Agent[object] to it


def with_subagents(
    agent: AgentDefinition | Agent[Any], subagents: Iterable[AgentDefinition | Agent[Any]] = ()
) -> tuple[AgentDefinition, tuple[AgentDefinition, ...]]:
    """Return the definition of `agent`, and those of every agent given with it. Raises DefinitionInvalid."""
    for each in (agent, *(subagents := tuple(subagents))):
        if not isinstance(each, Agent | AgentDefinition):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller without a type checker
            raise InvalidInput(f"{repr(each)[:80]} is no agent; give an Agent or an AgentDefinition")
    definition, *others = _definitions((agent, *subagents))
    return definition, distinct_agents(others)


def definitions(agents: Iterable[AgentDefinition | Agent[Any]]) -> tuple[AgentDefinition, ...]:
    """Return the definitions of the agents and of their subagents. Raises DefinitionInvalid for two of one name."""
    return distinct_agents(_definitions(agents))


def distinct_agents(definitions: Iterable[AgentDefinition]) -> tuple[AgentDefinition, ...]:
    """Return the definitions, each once. Raises DefinitionInvalid for two different ones of one name."""
    by_name: dict[str, AgentDefinition] = {}
    for each in definitions:
        if by_name.setdefault(each.name, each) != each:
            raise DefinitionInvalid(f"two different agents are called {each.name!r}; rename one")
    return tuple(by_name.values())


@contextmanager
def _problems_of(name: object) -> Generator[None]:
    """Raise an error of the block as a DefinitionInvalid that names the agent."""
    try:
        yield
    except (DefinitionInvalid, InvalidInput) as error:
        raise DefinitionInvalid(f"agent {str(name)[:80]!r}: {error.message}") from None


def _check_given_once(fields: Mapping[str, object], **own: object) -> None:
    """Raise DefinitionInvalid for a field that is given under its own name and as the argument that sets it."""
    for argument, field in SET_BY.items():
        if field in fields and own[argument]:
            raise DefinitionInvalid(f"{argument} and {field} are both given; give one of them")


def _definitions(agents: Iterable[str | AgentDefinition | Agent[Any]]) -> Iterator[AgentDefinition]:
    """Yield the definitions of those that are more than a name, each followed by those of its subagents."""
    for each in agents:
        if isinstance(each, Agent):
            yield each.definition
            yield from each.subagents
        elif isinstance(each, AgentDefinition):
            yield each


def _listed(field: str, values: Iterable[Any]) -> list[Any]:
    """Return the values as a list; of tools and hooks, and of them alone, `all` may stand for one."""
    if not isinstance(values, str):
        return list(values)
    if values != ALL:
        raise DefinitionInvalid(f"{field} is the text {values[:80]!r}; write a list: {field}=[{values[:80]!r}]")
    if field not in ALL_OF:
        raise DefinitionInvalid(f"{field} cannot be {ALL!r}; name each of them")
    return [values]


def _names(values: Iterable[str | Named]) -> str | list[str]:
    names = [name_of(each) for each in values]
    return ALL if names == [ALL] else names


@lru_cache(maxsize=TOOLS_CACHED_MAX)
def _made_tool(function: AnyFunction) -> AnyTool:
    return tool(function)  # once: two agents with one function name the same tool


def _tool_of(value: AnyTool | AnyFunction) -> AnyTool:
    """Return the tool that `value` is or, as a function, becomes."""
    if not callable(value):  # pyright: ignore[reportUnnecessaryComparison]  # a caller without a type checker
        raise InvalidInput(f"{repr(value)[:80]} is not a tool; give a function, a tool or a tool's name")
    return value if isinstance(value, Tool) else _made_tool(value)  # pyright: ignore[reportUnknownVariableType]  # any


def _tools_of(value: str | AnyTool | AnyFunction | Toolset) -> tuple[str | AnyTool, ...]:
    """Return the tools that an item of `tools` stands for; a name stays one."""
    if isinstance(value, Toolset):
        return value.tools
    return (value if isinstance(value, str) else _tool_of(value),)


def _rule(value: ApprovalRule | str | AnyTool | AnyFunction) -> object:
    """Return the rule that `value` is, or that every call of the tool `value` waits for a person."""
    if isinstance(value, ApprovalRule):
        return value
    return {"tools": [value if isinstance(value, str) else _tool_of(value).name]}


def _of(kind: type[KindT], values: Iterable[object]) -> tuple[KindT, ...]:
    return tuple(each for each in values if isinstance(each, kind))


def _format(answers: object, *, strict: bool) -> dict[str, Any]:
    """Return the fields of the response format; the definition judges them with the rest."""
    if isinstance(answers, str):
        return {"type": answers}
    if isinstance(answers, Mapping):
        return {"type": "json_schema", "json_schema": answers, "strict": strict}
    return dict(format_of(cast("type[Any]", answers), strict=strict))
