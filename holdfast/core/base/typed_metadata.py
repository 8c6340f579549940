"""Metadata as a value of the user's type: what `metadata_as` of the contexts of tools and hooks does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import to_json

from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.validation_errors import problems_text

MetadataT = TypeVar("MetadataT", bound=BaseModel)


def metadata_as(metadata: Mapping[str, JsonValue], model: type[MetadataT]) -> MetadataT:
    """Return the metadata as a `model`; entries that it does not name are passed over, if it allows that.

    Raises InvalidInput with the first problems in one line.
    """
    try:
        return model.model_validate_json(to_json(dict(metadata)))  # as JSON: a date is a text there
    except ValidationError as error:
        problem = problems_text(error, "the metadata")
    raise InvalidInput(f"the metadata of this run is no {model.__name__}: {problem}; give it where the run is started")
