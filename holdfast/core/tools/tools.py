"""`@tool`: makes a Python function a tool that a model can call. Describes and checks tools; the drivers run them.

The function's name, annotations and Google-style docstring become the schema the model sees. A parameter annotated
`ToolContext` is filled in by us and hidden from the model; so is one whose type is not JSON: a `@resource` gives it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.fields import FieldInfo

from holdfast.core.base.errors import HoldfastError, InvalidArguments, InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.base.model_retry import ModelRetry
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.tools.output_types import OutputType, output_type
from holdfast.core.tools.schema_arguments import any_arguments, object_parameters, object_schema
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_traits import (
    ToolOptions,
    ToolSchema,
    ToolTraits,
    check_name,
    schema_of,
    traits_of,
    with_schema,
)

P = ParamSpec("P")
R = TypeVar("R")

_SECTION: Final = re.compile(r"(Args|Arguments|Returns|Raises|Yields|Examples?|Notes?):\s*")
_PARAMETER: Final = re.compile(r" {1,4}(\w+)(?: \([^)]*\))?: (.+)")


@dataclass(frozen=True, slots=True)
class Tool(Generic[P, R]):
    """A function with its schema and traits. Calling it calls the function.

    `source` says where it comes from, for errors. With `checked_by_schema` its arguments are checked against the JSON
    Schema that the model sees, and passed on unchanged: in the parameter `object_parameter`, or else as keywords.
    """

    function: Callable[P, R]
    schema: ToolSchema
    traits: ToolTraits
    arguments: type[BaseModel]
    context_parameter: str | None
    retry_on: tuple[type[Exception], ...] = field(default=(), kw_only=True)
    output: OutputType | None = field(default=None, kw_only=True)
    """What its return annotation declares; none leaves results unchecked."""
    resources: Mapping[str, Any] = field(default_factory=dict[str, Any], kw_only=True)
    """The parameters that take a resource, by name, with their types."""
    checked_by_schema: bool = field(default=False, kw_only=True)
    object_parameter: str | None = field(default=None, kw_only=True)
    source: str = field(default="", kw_only=True)

    @property
    def name(self) -> str:
        """What the model calls it, and its activity's type."""
        return self.schema.name

    @property
    def label(self) -> str:
        """What an error calls it."""
        return f"tool {self.name!r}"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, unchecked."""
        return self.function(*args, **kwargs)

    def renamed(self, name: str) -> Self:
        """Return this tool under another name; raises InvalidInput for one that cannot name a tool."""
        check_name(name)
        schema = replace(self.schema, name=name)
        return replaced(self, schema=schema, traits=with_schema(replace(self.traits, name=name), schema))

    def tries_again(self, error: BaseException) -> bool:
        """Return whether a call that raised `error` is retried while it has attempts left.

        Never for what we raise ourselves: arguments that do not fit will not fit the next time; nor for a ModelRetry.
        """
        return isinstance(error, self.retry_on) and not isinstance(error, HoldfastError | ModelRetry)

    def bind(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        """Return the keyword arguments for the function, converted to its types.

        Raises InvalidArguments, naming every bad field, when `arguments` do not fit the schema. Those of a tool that is
        `checked_by_schema` are not checked here: `runtime.argument_check` does that.
        """
        if self.checked_by_schema:
            whole = dict(arguments)
            bound: dict[str, Any] = {self.object_parameter: whole} if self.object_parameter else whole
            return bound if self.context_parameter is None else {**bound, self.context_parameter: context}
        try:
            checked = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            raise InvalidArguments(problems_text(error)) from None
        fields = type(checked).model_fields
        bound = {str(field.alias): getattr(checked, name) for name, field in fields.items()}
        if self.context_parameter is not None:
            bound[self.context_parameter] = context
        return bound


AnyTool = Tool[Any, Any]


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, JsonValue] | None = None,
    retry_on: tuple[type[Exception], ...] = (),
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, JsonValue] | None = None,
    retry_on: tuple[type[Exception], ...] = (),
    **options: Unpack[ToolOptions],
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a tool of a function, sync (run in a thread) or async.

    Args:
        function: the function, when used as a bare decorator.
        name: what the model calls it; the function's own name by default.
        description: what the model reads about it; the docstring before its sections by default.
        schema: a JSON Schema of the arguments, instead of the function's annotations. What a call passes is checked
            against it and not converted; the function takes it as `**arguments`, or as one parameter annotated `dict`.
        retry_on: exceptions after which a call is begun again, with a growing wait, up to `attempts_max`; any other
            goes to the model at once.
        options: see `ToolOptions` and `RemoteOptions`.

    Raises InvalidInput, naming the tool, for what cannot be offered to a model and for options that contradict each
    other.
    """

    def decorate(target: Callable[P, R]) -> Tool[P, R]:
        tool_name = name or str(getattr(target, "__name__", ""))
        traits = traits_of(tool_name, options, retry_on)
        summary, about = _docstring(target)
        text = summary if description is None else description
        output = output_type(tool_name, target)
        promised = None if output is None else output.schema
        whole: str | None = None
        resources: Mapping[str, Any] = {}
        if schema is None:
            arguments, context_parameter, resources = _arguments_model(tool_name, target, about)
            parameters = arguments.model_json_schema()
            parameters.pop("title", None)
            model_schema = schema_of(tool_name, text, parameters, promised)
        else:
            arguments, model_schema = any_arguments(tool_name), object_schema(tool_name, text, schema, "schema")
            model_schema = replace(model_schema, output=promised)
            whole, context_parameter = object_parameters(tool_name, target, schema)
        return Tool(
            target,
            model_schema,
            replace(with_schema(traits, model_schema), context=context_parameter is not None),
            arguments,
            context_parameter,
            retry_on=retry_on,
            output=output,
            resources=resources,
            checked_by_schema=schema is not None,
            object_parameter=whole,
            source=f"{target.__module__}.{getattr(target, '__qualname__', tool_name)}",
        )

    return decorate if function is None else decorate(function)


def _arguments_model(
    tool_name: str, function: Callable[..., Any], about: Mapping[str, str]
) -> tuple[type[BaseModel], str | None, Mapping[str, Any]]:
    """Return a model of the parameters, the name of the one that takes the context, and those that take resources."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, tuple[Any, FieldInfo]] = {}
    context_parameter: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidInput(f"tool {tool_name!r}: parameter {parameter.name!r} must be an ordinary named parameter")
        if parameter.name not in hints:
            raise InvalidInput(f"tool {tool_name!r}: parameter {parameter.name!r} needs a type annotation")
        if ToolContext in (hints[parameter.name], *get_args(hints[parameter.name])):
            context_parameter = parameter.name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        field_info = Field(default, alias=parameter.name, description=about.get(parameter.name))
        # fields have names of ours, because a parameter may be called like something of pydantic's (`json`, `_id`)
        fields[f"argument_{len(fields)}"] = (hints[parameter.name], cast("FieldInfo", field_info))
    config = ConfigDict(extra="forbid", allow_inf_nan=False, protected_namespaces=())
    try:
        return create_model(tool_name, __config__=config, **cast("dict[str, Any]", fields)), context_parameter, {}
    except PydanticUserError:  # what is no JSON type, a resource may give
        taken = {name: each for name, each in fields.items() if not is_json_type(each[0])}
        if not taken:
            raise
    own = {name: each for name, each in fields.items() if name not in taken}
    model = create_model(tool_name, __config__=config, **cast("dict[str, Any]", own))
    return model, context_parameter, {str(info.alias): plain_type(hint) for hint, info in taken.values()}


def is_json_type(hint: Any) -> bool:  # noqa: ANN401  # whatever stands as an annotation
    """Return whether a model could send values of this type, as JSON."""
    try:
        TypeAdapter(hint).json_schema()
    except PydanticUserError:
        return False
    return True


def plain_type(hint: object) -> object:
    """Return a type without what `Annotated` adds to it."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the docstring's text before its sections, and the `Args:` description of each parameter."""
    summary: list[str] = []
    about: dict[str, list[str]] = {}
    section = parameter = ""
    for line in (inspect.getdoc(function) or "").splitlines():
        if heading := _SECTION.fullmatch(line):
            section = heading[1]
        elif not section:
            summary.append(line)
        elif section in ("Args", "Arguments"):
            if entry := _PARAMETER.fullmatch(line):
                parameter = entry[1]
                about[parameter] = [entry[2]]
            elif parameter and line.strip():
                about[parameter].append(line.strip())
    return "\n".join(summary).strip(), {name: " ".join(lines) for name, lines in about.items()}
