"""Checks values against a JSON Schema, bounded and without the network. Slow to import (0.1 s)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast

from jsonschema import Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend  # pyright: ignore[reportUnknownVariableType]  # untyped in the stubs
from pydantic import JsonValue
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable

from holdfast.core.base.bounds import FORMAT_PLACE_CHARS_MAX, FORMAT_PROBLEMS_MAX
from holdfast.core.base.safe_text import clamped

SCHEMA_REFS_MAX: Final = 20_000
"""The most references that one check follows: nested unions that fail multiply at every level.

That many take 0.4 s (measured), well inside the silence after which a worker is taken for dead.
"""

SCHEMA_STEPS_MAX: Final = 200_000
"""The most keywords that one check against a foreign schema evaluates: 64 KB can list a thousand alternatives for each
of ten thousand items. What tools take and return needs a few thousand."""

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
UNBOUNDED: Final = ("unevaluatedProperties", "unevaluatedItems")
"""Keywords that evaluate all others at their place again: nested, steps grow by powers of 2.6 (measured)."""

PATTERN_PROPERTIES: Final = "patternProperties"
INVERTING: Final = ("not", "oneOf", "if", "contains")
"""Keywords that may refuse a value because a rule within them accepts it."""

DRAFTS: Final[Mapping[str, type[Validator]]] = {
    str(draft.META_SCHEMA["$schema"]).removesuffix("#"): draft
    for draft in (Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator)
}


class TooMuchWork(Exception):
    """The value takes more steps to check than are allowed."""


class HangsOnPattern(Exception):
    """Whether a keyword accepts the value hangs on a pattern that is not checked."""


def broken_schema(schema: Mapping[str, Any]) -> str | None:
    """Return why `schema` is unusable, if so: it is invalid, or refers to something outside itself."""
    whole = dict(schema)
    try:
        dialect = _dialect(whole)
        dialect.check_schema(whole)
        _look_up_references(whole, dialect)
        # a schema that is only a reference to itself never ends, whatever the value
        _drained(dialect, whole, {})
    except SchemaError as error:
        return _problem_line(error)
    except Unresolvable as error:
        return f"the reference {error.ref[:FORMAT_PLACE_CHARS_MAX]!r} leads to nothing within the schema"
    except RecursionError:
        return "it refers to itself without end, or is nested too deep"
    except Exception as error:  # noqa: BLE001  # a schema is foreign data: whatever breaks the check is its fault
        return clamped(f"it cannot be used ({type(error).__name__}: {error})", FORMAT_PLACE_CHARS_MAX)
    return None


def schema_problems(value: JsonValue, schema: Mapping[str, Any], *, foreign: bool = False) -> list[str]:
    """Return the first problems of `value`, each with its JSON path; none when it fits. Never raises.

    One thing is not bounded: a `pattern` that backtracks without end does so on a value of any size, and blocks the
    whole process. Definitions come from the worker's operator, not from models; a `foreign` schema does not, and its
    patterns count as fulfilled.
    """
    whole = dict(schema)
    try:
        return _drained(_dialect(whole), whole, value, foreign=foreign)
    except TooMuchWork:
        return ["$: it takes too many steps to check; answer with something simpler"]
    except RecursionError:
        return ["$: it is nested too deep to check against the schema; answer with something flatter"]
    except Exception as error:  # noqa: BLE001  # an answer must not end a worker's call, whatever the schema does to it
        return [clamped(f"$: it cannot be checked ({type(error).__name__}: {error})", FORMAT_PLACE_CHARS_MAX)]


def _drained(dialect: type[Validator], schema: dict[str, Any], value: JsonValue, *, foreign: bool = False) -> list[str]:
    validator = _bounded(dialect, foreign=foreign)
    checking = validator(schema, registry=Registry())  # an empty one: by default `$ref`s are fetched
    return [_problem_line(error) for error in islice(checking.iter_errors(value), FORMAT_PROBLEMS_MAX)]


def _dialect(schema: dict[str, Any]) -> type[Validator]:
    """Return the validator for the schema's own draft, by default the latest."""
    name = schema.get("$schema")
    if name is None:
        return Draft202012Validator
    if not isinstance(name, str) or (plain := name.removesuffix("#")) not in DRAFTS:
        raise ValueError(f"its $schema {str(name)[:FORMAT_PLACE_CHARS_MAX]!r} is none that is known; leave it out")
    return DRAFTS[plain]


def _look_up_references(schema: dict[str, Any], dialect: type[Validator]) -> None:
    """Raise Unresolvable for a reference out of the schema or to nothing; nothing is fetched."""
    whole: Resource[Any] = Resource.from_contents({"$schema": dialect.META_SCHEMA["$schema"], **schema})
    waiting = [(whole, Registry[Any]().resolver_with_root(whole))]
    while waiting:
        resource, resolver = waiting.pop()
        contents: object = resource.contents
        for key, ref in cast("dict[str, Any]", contents).items() if isinstance(contents, dict) else ():
            if key in REFERENCES:
                resolver.lookup(ref)
            if key in UNBOUNDED:
                raise ValueError(f"{key!r} takes unbounded time; use additionalProperties or items")
        waiting.extend((inner, resolver.in_subresource(inner)) for inner in resource.subresources())


def _bounded(dialect: type[Validator], *, foreign: bool) -> type[Validator]:
    """Return `dialect` without its two sources of more than linear work, and for a `foreign` schema without patterns.

    Every recursion goes through a reference, and a union that fails tries all its members at every level. The package
    finds repeated items by comparing all pairs: 2,000 objects took 2.6 s. In a `foreign` schema each keyword counts.
    """

    def counted(follow: Any, left: Iterator[int]) -> Any:  # noqa: ANN401  # the package's keyword functions are untyped
        def following(*arguments: Any) -> Iterator[ValidationError]:  # noqa: ANN401  # the same
            if next(left, None) is None:
                raise TooMuchWork
            yield from follow(*arguments)

        return following

    def refused(*_: object) -> Iterator[ValidationError]:
        raise TooMuchWork

    rules: dict[str, Any] = {key: refused for key in UNBOUNDED if key in dialect.VALIDATORS}
    references = iter(range(SCHEMA_REFS_MAX))
    rules |= {key: counted(rule, references) for key, rule in dialect.VALIDATORS.items() if key in REFERENCES}
    rules["uniqueItems"] = _unique_items
    if foreign:
        steps = iter(range(SCHEMA_STEPS_MAX))
        rules = {**dialect.VALIDATORS, **rules, **_without_patterns(dialect)}
        rules = {key: counted(rule, steps) for key, rule in rules.items()}
    extended = cast("Any", extend)
    validator: type[Validator] = extended(dialect, rules)
    return validator


def _without_patterns(dialect: type[Validator]) -> dict[str, Any]:
    """Return the rules of `dialect` that run no regular expression, and refuse nothing that hangs on one."""
    depth = 0

    def fulfilled(*_: object) -> Iterator[ValidationError]:
        if depth:
            raise HangsOnPattern
        yield from ()

    def unless_it_hangs(rule: Any) -> Any:  # noqa: ANN401  # as above
        def following(*arguments: Any) -> Iterator[ValidationError]:  # noqa: ANN401  # as above
            nonlocal depth
            depth += 1
            try:
                problems = list(rule(*arguments))
            except HangsOnPattern:
                if depth > 1:
                    raise
                problems = []
            finally:
                depth -= 1
            yield from problems

        return following

    def additional(checking: Any, allowed: Any, value: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401  # as above
        rule = fulfilled if PATTERN_PROPERTIES in schema else dialect.VALIDATORS["additionalProperties"]
        yield from rule(checking, allowed, value, schema)

    inverting = {key: unless_it_hangs(dialect.VALIDATORS[key]) for key in INVERTING if key in dialect.VALIDATORS}
    return {**inverting, "pattern": fulfilled, PATTERN_PROPERTIES: fulfilled, "additionalProperties": additional}


def _unique_items(checking: Any, unique: object, items: Any, _: object) -> Iterator[ValidationError]:  # noqa: ANN401  # as above
    if unique is True and checking.is_type(items, "array"):
        spelled = {json.dumps(_normal(item), sort_keys=True) for item in items}
        if len(spelled) < len(items):
            yield ValidationError("has items that repeat; each may be there once")


def _normal(value: object) -> object:
    """Return `value` with numbers that are equal spelled equally: to a schema 1.0 is 1, and true is not."""
    if isinstance(value, dict):
        return {name: _normal(each) for name, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_normal(each) for each in cast("list[object]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _problem_line(error: ValidationError | SchemaError) -> str:
    """Return the place and the problem; a message that quotes half the answer is replaced by the broken rule."""
    text = error.message
    if len(text) > FORMAT_PLACE_CHARS_MAX:
        rule = json.dumps(error.validator_value, ensure_ascii=False, default=str)
        text = f"breaks the schema's {error.validator}: {rule}"
        if len(text) > FORMAT_PLACE_CHARS_MAX:
            text = f"{text[: FORMAT_PLACE_CHARS_MAX - 1]}…"
    return f"{error.json_path[:FORMAT_PLACE_CHARS_MAX]}: {text}"
