"""Tools whose arguments a JSON Schema describes instead of annotations: how their functions take them. Checks none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, create_model

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_traits import ToolSchema, schema_of


def object_schema(tool_name: str, description: str, parameters: Mapping[str, JsonValue], field: str) -> ToolSchema:
    """Return the schema of a tool whose arguments the JSON Schema `parameters` describes.

    Raises InvalidInput for a schema that is not that of an object; `field` is what the caller calls it.
    """
    if parameters.get("type") != "object":
        raise InvalidInput(
            f"tool {tool_name!r}: `{field}` must be a JSON Schema of an object: {{'type': 'object', ...}}"
        )
    try:
        return schema_of(tool_name, description, parameters)
    except ValidationError as error:
        raise InvalidInput(f"tool {tool_name!r}: `{field}`: {problems_text(error)}") from None


def any_arguments(tool_name: str) -> type[BaseModel]:
    """Return the model of arguments that a JSON Schema checks and not the model."""
    return create_model(tool_name, __config__=ConfigDict(extra="allow"))


def object_parameters(
    tool_name: str, function: Callable[..., Any], parameters: Mapping[str, JsonValue]
) -> tuple[str | None, str | None]:
    """Return the parameter that takes all arguments as one dict, none for `**arguments`, and that of the context.

    Raises InvalidInput for a function that takes its arguments in another way.
    """
    hints = get_type_hints(function, include_extras=True)
    ordinary: list[inspect.Parameter] = []
    keywords = False
    context: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        if parameter.kind is parameter.VAR_KEYWORD:
            keywords = True
        elif ToolContext in (hint, *get_args(hint)):
            context = parameter.name
        else:
            ordinary.append(parameter)
    names = parameters.get("properties")
    if context is not None and keywords and isinstance(names, dict) and context in names:
        text = f"the parameter {context!r} takes the ToolContext, and `schema` has a property of that name"
        raise InvalidInput(f"tool {tool_name!r}: {text}; rename the parameter")
    if keywords and not ordinary:
        return None, context
    if not keywords and len(ordinary) == 1 and _takes_dict(ordinary[0], hints.get(ordinary[0].name)):
        return ordinary[0].name, context
    raise InvalidInput(
        f"tool {tool_name!r}: with a `schema` the function takes `**arguments`, or one parameter annotated as a dict"
    )


def _takes_dict(parameter: inspect.Parameter, hint: object) -> bool:
    kind = get_origin(hint) or hint
    named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    return named and (
        kind in (None, Any) or (isinstance(kind, type) and issubclass(cast("type[object]", kind), Mapping))
    )
