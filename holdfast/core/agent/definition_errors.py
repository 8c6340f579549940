"""Builds a definition from plain data, or lists every problem with it in one line. Reads no file."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.errors import DefinitionInvalid
from holdfast.core.base.field_errors import field_problems


def definition_of(data: Mapping[str, object]) -> AgentDefinition:
    """Return the agent that `data` describes.

    Raises DefinitionInvalid with every problem, each with its field and, for what is unknown, the nearest known name.
    """
    try:
        return AgentDefinition.model_validate(dict(data))
    except ValidationError as error:
        raise DefinitionInvalid(field_problems(error, AgentDefinition, may_hold_secrets=False)) from None
