"""The options that limit a run: one for each limit of a budget."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, cast

import typer
from pydantic import ValidationError

from holdfast.cli.options import ServerTools, Unpriced
from holdfast.core.agent.budget import LIMITS, ExecutionBudget, Limit
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.validation_errors import problems_text


def with_limits(per: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each limit of a budget; it takes what they come to as `budget`.

    `per` is what the help says behind a limit's unit.
    """
    options = {limit.field: _limit(limit, per) for limit in LIMITS} | {
        "unpriced": Unpriced,
        "server_tools": ServerTools,
    }
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in options.items()
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def limited(**values: Any) -> None:  # noqa: ANN401  # of the command's own parameters
            command(budget=budget_of({name: values.pop(name) for name in options}), **values)

        signature = inspect.signature(command, eval_str=True)
        own = list(signature.parameters.values())
        place = list(signature.parameters).index("budget")
        cast("Any", limited).__signature__ = signature.replace(parameters=[*own[:place], *added, *own[place + 1 :]])
        return limited

    return decorate


def _limit(limit: Limit, per: str) -> Any:  # noqa: ANN401  # an annotation as typer reads it
    return Annotated[limit.number | None, typer.Option(help=f"At most this many {limit.unit}{per}.", min=0)]


def budget_of(limits: Mapping[str, float | str | None]) -> ExecutionBudget:
    """Return the limits that options name, those of none left out. Raises InvalidInput."""
    try:
        return ExecutionBudget.model_validate({name: each for name, each in limits.items() if each is not None})
    except ValidationError as error:
        raise InvalidInput(f"the limits cannot be used: {problems_text(error)}") from None
