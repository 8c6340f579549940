"""`OutputType`: what a tool declares to return, read from its annotation. Checks and writes results; runs nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, is_dataclass
from types import UnionType
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, JsonValue, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.safe_text import clamped, encodable
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.tools.tool_results import StopRun

PROBLEM_CHARS_MAX: Final = 1_000
"""The longest text on why a result does not fit: the model is to read it."""

_UNIONS: Final = (Union, UnionType)
_AWAITED: Final = (Awaitable, Coroutine)


@dataclass(frozen=True, slots=True)
class OutputType:
    """The declared type of a tool's results: a pydantic model, TypedDict or dataclass, or a union or list of such."""

    adapter: TypeAdapter[Any]
    schema: Mapping[str, JsonValue]
    """Its JSON schema, of results as they are written."""

    def text_of(self, value: object) -> str:
        """Return what the tool returned as text: JSON as its type writes it, or a text that its type allows.

        Raises ValueError for what does not fit, with the first problems as one line.
        """
        result = value.result if isinstance(value, StopRun) else value
        try:
            checked: object = self.adapter.validate_python(result)
            if isinstance(checked, str):
                return encodable(checked)
            # the warnings are about instances that were never checked: of dataclasses, or changed since
            return self.adapter.dump_json(checked, by_alias=True, warnings="error").decode()
        except ValidationError as error:
            problem = problems_text(error, "the result")
        except Exception as error:  # noqa: BLE001  # a validator or serializer of the type's own can raise anything
            problem = f"{type(error).__name__}: {error}"
        raise ValueError(" ".join(clamped(problem, PROBLEM_CHARS_MAX).split()))


def output_type(tool_name: str, function: Callable[..., Any]) -> OutputType | None:
    """Return the type that `function` declares to return; none for texts, plain values and no annotation.

    A `StopRun` in a union counts nothing: its result is what is checked. Raises InvalidInput for a type that pydantic
    cannot check or describe.
    """
    annotation = _without_stop(_awaited(get_type_hints(function, include_extras=True).get("return")))
    if not _is_declared(annotation):
        return None
    try:
        adapter = TypeAdapter[Any](annotation)
        schema = adapter.json_schema(mode="serialization")
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        why = str(error).splitlines()[0]
        problem = f"its return annotation {annotation!r} cannot be checked ({why}); correct it, or annotate `object`"
        raise InvalidInput(f"tool {tool_name!r}: {problem}") from None
    return OutputType(adapter, cast("Mapping[str, JsonValue]", schema))


def _awaited(annotation: Any) -> Any:  # noqa: ANN401  # any annotation
    """Return what an awaitable comes to: a plain function may return one."""
    return get_args(annotation)[-1] if get_origin(annotation) in _AWAITED else annotation


def _without_stop(annotation: Any) -> Any:  # noqa: ANN401  # any annotation
    if get_origin(annotation) not in _UNIONS:
        return annotation
    members: list[object] = [each for each in get_args(annotation) if each is not StopRun]
    return cast("Any", Union)[tuple(members)] if members else annotation


def _is_declared(annotation: Any) -> bool:  # noqa: ANN401  # any annotation
    """Return whether there is a model, TypedDict or dataclass in `annotation`."""
    declared: bool = is_dataclass(annotation) or is_typeddict(annotation) or _is_model(annotation)
    return (declared and annotation is not StopRun) or any(map(_is_declared, get_args(annotation)))


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
