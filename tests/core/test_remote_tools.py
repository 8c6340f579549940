"""Tools that are served elsewhere, and what `@tool` refuses about where and how calls run."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.base.bounds import TOOL_DESCRIPTION_CHARS_MAX
from holdfast.core.base.errors import HoldfastError, InvalidArguments, InvalidInput
from holdfast.core.base.frozen import canonical
from holdfast.core.tools.remote_tools import RemoteTool, remote_tool
from holdfast.core.tools.tool_errors import ended_without_answer, never_begun
from holdfast.core.tools.tool_traits import LOCAL_TOOL_SECONDS_MAX, ToolTraits
from holdfast.core.tools.tools import AnyTool, tool

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}


def declared(**given: Any) -> RemoteTool:  # noqa: ANN401  # any option, also wrong ones
    usual: dict[str, Any] = {"name": "far", "description": "d", "parameters": SCHEMA, "task_queue": "gpu"}
    return remote_tool(**usual | given)


def made(**options: Any) -> AnyTool:  # noqa: ANN401  # as above
    def work() -> None:
        """Work."""

    return tool(**options)(work)


def test_a_remote_tool_is_a_schema_and_traits() -> None:
    far = declared(timeout_seconds=5, idempotent=True)
    assert far.schema.parameters == SCHEMA
    size = len(canonical(far.schema))
    assert far.traits == ToolTraits(
        name="far",
        timeout_seconds=5,
        idempotent=True,
        task_queue="gpu",
        heartbeats=False,
        remote=True,
        described_bytes=size,
    )


def test_calling_a_remote_tool_says_where_it_is() -> None:
    with pytest.raises(InvalidInput, match="'far' is served by another worker, on the task queue 'gpu'"):
        declared()(n=1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"parameters": {"type": "array"}}, "must be a JSON Schema of an object"),
        ({"task_queue": ""}, "task_queue: String should have at least 1 character"),
        ({"task_queue": "x" * 201}, "task_queue: String should have at most 200"),
        ({"name": "a b"}, "cannot name a tool"),
        ({"description": "x" * (TOOL_DESCRIPTION_CHARS_MAX + 1)}, "at most 1,024 are allowed"),
        ({"retries": 3}, "the option 'retries', did you mean|is given the option 'retries'"),
    ],
)
def test_a_remote_tool_that_cannot_be_offered_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        declared(**given)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"at_most_once": True, "idempotent": True}, "not both"),
        ({"at_most_once": True, "attempts_max": 2}, "`at_most_once` is one attempt"),
        ({"at_most_once": True, "retry_on": (OSError,)}, "never begun again"),
        ({"retry_on": (OSError,), "attempts_max": 1}, "`attempts_max` of 2 or more"),
        ({"retry_on": (KeyboardInterrupt,)}, "a tuple of exception classes"),
        ({"retry_on": OSError}, "a tuple of exception classes"),
        ({"local": True}, "`idempotent` too"),
        ({"local": True, "at_most_once": True}, "`idempotent` too"),
        ({"local": True, "idempotent": True, "task_queue": "gpu"}, "no `task_queue`"),
        ({"local": True, "idempotent": True, "timeout_seconds": 2}, "3 attempts of 2 s can take 6 s"),
        ({"queue_seconds_max": 1}, "name one"),
        ({"timeout": 3}, "the option 'timeout'"),
    ],
)
def test_options_that_contradict_each_other_are_refused_with_the_tools_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        made(name="pay", **options)
    assert "'pay'" in str(caught.value)


def test_a_local_tool_has_a_short_time_unless_it_says_so() -> None:
    traits = made(name="quick", local=True, idempotent=True).traits
    assert traits.timeout_seconds * traits.attempts_max <= LOCAL_TOOL_SECONDS_MAX
    assert made(name="quick", local=True, idempotent=True, timeout_seconds=5, attempts_max=1).traits.local


def test_an_error_is_tried_again_after_by_its_class_and_never_when_it_is_ours() -> None:
    flaky = made(name="flaky", retry_on=(Exception,))
    assert flaky.tries_again(OSError())
    assert not flaky.tries_again(KeyboardInterrupt())
    assert not flaky.tries_again(InvalidArguments("n: too large"))
    assert not flaky.tries_again(HoldfastError("ours"))
    assert not made(name="plain").tries_again(OSError())


def test_a_call_that_nobody_took_is_told_apart_from_one_whose_end_is_unknown() -> None:
    traits = declared(at_most_once=True, queue_seconds_max=30).traits
    record = never_begun(traits)
    assert record.type == "ToolUnavailable"
    assert record.message == "no worker took the call from the task queue 'gpu' within 30 s; it was not begun"
    assert ended_without_answer(traits, "why").type == "OutcomeUnknown"
