"""`from_openapi`: a toolset of the operations of an HTTP API that an OpenAPI document describes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Unpack, cast

from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.did_you_mean import nearest
from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_traits import RESERVED_NAMES, TIMEOUT_SECONDS, ToolOptions
from holdfast.core.tools.tools import AnyTool, tool
from holdfast.tools.openapi_document import OpenAPIDocument
from holdfast.tools.openapi_operations import (
    SAFE_METHODS,
    Operation,
    OperationEntry,
    checked_base,
    entries,
    operation_of,
)
from holdfast.tools.openapi_requests import HeaderValue, HttpUnreachable, called

OPERATIONS_MAX: Final = 500
"""The most operations of one document that become tools; an agent has at most 128 tools in all."""

LOGGER: Final = logging.getLogger("holdfast.tools")


def from_openapi(
    document: Mapping[str, Any] | str | Path,
    base_url: str | None = None,
    *,
    headers: Mapping[str, HeaderValue] | None = None,
    include: Iterable[str] | None = None,
    **options: Unpack[ToolOptions],
) -> Toolset:
    """Return a toolset with one tool for each operation of an OpenAPI 3.0 or 3.1 document.

        github = from_openapi("github.yaml", headers={"Authorization": "Bearer ${GITHUB_TOKEN}"}, include=["repos*"])

    A tool is called as its operation's id says. Its arguments are the parameters in path, query and headers, and
    `body`; the call's idempotency key goes along as `Idempotency-Key`. An answer from 300 on is an error for the model
    (`HttpError`); redirects are not followed. Calls of GET and HEAD are idempotent, and repeated where no answer comes;
    all others are `at_most_once`.

    Args:
        document: the path of a file, its text as JSON or YAML, or the document itself.
        base_url: the address that paths are appended to; the document's first server by default.
        headers: headers of every request: a text, in which `${NAME}` is a variable of the worker's environment, or a
            function. They are made in the worker, call by call; no schema, history or error has their values.
        include: which operations: names of tools or `METHOD /path`, with `*` and `?`; all by default. Without it, an
            operation that cannot be offered (an upload, a cookie) is left out, and the log says so.
        options: of every tool, as `@tool` has them.

    Raises InvalidInput for a document that is invalid, too large, or refers to something outside itself; MissingPart
    without the extra `openapi`.
    """
    read = OpenAPIDocument(document)
    if base_url is not None:
        checked_base(base_url)
    given = dict(headers or {})
    filled = {name.lower() for name in given}
    patterns = None if include is None else tuple(include)
    chosen = _chosen(tuple(entries(read, RESERVED_NAMES)), patterns)
    tools: list[AnyTool] = []
    problems: list[str] = []
    for entry in chosen:
        try:
            operation = operation_of(read, entry, base_url, filled)
        except InvalidInput as error:
            if patterns is not None:
                raise
            problems.append(error.message)
        else:
            tools.append(_tool(operation, given, read.title, options))
    if problems and not tools:
        raise InvalidInput(f"none of the operations of {read.title} can be offered; the first: {problems[0]}")
    for problem in problems:
        LOGGER.warning("left out of the tools of %s: %s", read.title, problem)
    return Toolset(tools=tuple(tools))


def _chosen(every: tuple[OperationEntry, ...], patterns: tuple[str, ...] | None) -> tuple[OperationEntry, ...]:
    """Return the operations that match one of `patterns`. Raises InvalidInput for a pattern without any."""
    for pattern in patterns or ():
        if not any(_matches(entry, pattern) for entry in every):
            raise InvalidInput(f"include names the operation {pattern!r}, {nearest(pattern, [e.name for e in every])}")
    chosen = [each for each in every if patterns is None or any(_matches(each, pattern) for pattern in patterns)]
    if len(chosen) > OPERATIONS_MAX:
        text = f"{len(chosen):,} operations would become tools, at most {OPERATIONS_MAX} can"
        raise InvalidInput(f"{text}; choose some with include=[...]")
    return tuple(chosen)


def _matches(entry: OperationEntry, pattern: str) -> bool:
    return fnmatchcase(entry.name, pattern) or fnmatchcase(entry.place, pattern)


def _tool(operation: Operation, headers: Mapping[str, HeaderValue], title: str, options: ToolOptions) -> AnyTool:
    timeout_seconds = options.get("timeout_seconds", TIMEOUT_SECONDS)

    async def call(arguments: dict[str, Any], context: ToolContext) -> object:
        return await called(operation, arguments, headers, context.idempotency_key, timeout_seconds)

    own: ToolOptions = {}
    if not {"idempotent", "at_most_once"} & options.keys():
        own = {"idempotent": True} if operation.method in SAFE_METHODS else {"at_most_once": True}
    every = cast("ToolOptions", {**own, **options})
    again = bool(every.get("idempotent")) and every.get("attempts_max") != 1
    made = tool(
        name=operation.name,
        description=operation.description,
        schema=operation.schema,
        retry_on=(HttpUnreachable,) if again else (),
        **every,
    )(call)
    return replace(cast("AnyTool", made), source=f"{operation.place} of {title!r}")
