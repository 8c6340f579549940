"""Base classes for JSON: `JsonForm` round-trips without loss, `SparseForm` leaves out defaults. Holds no value."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Self, cast

from pydantic import BaseModel, SerializerFunctionWrapHandler, ValidationError, model_serializer
from pydantic_core import PydanticSerializationError, from_json, to_json

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import Frozen, canonical
from holdfast.core.base.stored_forms import FIRST, FORMAT
from holdfast.core.base.validation_errors import problem_text

_PROBLEMS_SHOWN: Final = 3


class JsonForm(Frozen):
    """A frozen value with `to_dict` and `from_dict`, which lose nothing."""

    def to_dict(self) -> dict[str, Any]:
        """Return the value as JSON-ready data; InvalidInput where it holds what JSON cannot carry."""
        try:
            return cast("dict[str, Any]", from_json(canonical(self)))
        except (PydanticSerializationError, ValueError) as error:
            raise InvalidInput(f"this {type(self).__name__} cannot be written as JSON: {error}") from None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the value that `to_dict` wrote; InvalidInput names the fields that are wrong in anything else."""
        try:
            return cls.model_validate_json(to_json(data), strict=True)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False)
            lines = (f"{'.'.join(map(str, each['loc'])) or 'all of it'}: {problem_text(each)}" for each in problems)
            first = "; ".join([*lines][:_PROBLEMS_SHOWN])
            more = f" (and {len(problems) - _PROBLEMS_SHOWN} more)" if len(problems) > _PROBLEMS_SHOWN else ""
            raise InvalidInput(f"this is not a valid {cls.__name__}: {first}{more}") from None
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            raise InvalidInput(f"this is not a valid {cls.__name__}: {error}") from None


class SparseForm(Frozen):
    """A frozen value that is written without its fields that are as by default, and read back as it was.

    For what each step puts into a history. What digests are taken over is written whole.
    """

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data = cast("dict[str, Any]", write(self))
        for name, default in _defaults(type(self)):
            if getattr(self, name) == default:
                data.pop(name, None)
        return data


@cache
def _defaults(kind: type[BaseModel]) -> tuple[tuple[str, object], ...]:
    fields = kind.model_fields.items()
    return tuple(
        (name, field.get_default(call_default_factory=True, validated_data={}))
        for name, field in fields
        # a form says its version, but for the first
        if not field.is_required() and (name != FORMAT or field.default == FIRST)
    )
