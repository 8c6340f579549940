"""The metrics of an execution, counted from the loop's events: under whose name its tokens are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from holdfast.core.agent.definition import LLM, FallbackRoute
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.loop.events import StepDue
from tests.core.building import Run
from workflows.execution.metrics import ExecutionMetrics


def test_tokens_are_counted_for_the_model_that_used_them(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, counted = ExecutionMetrics(lambda: "tester", tuple[str, ...]), Counter[str]()

    def add(_: object, amount: int, model: str = "", **__: str) -> None:
        counted[model] += amount

    def record(_: object, value: float, **__: str) -> None: ...

    monkeypatch.setattr(metrics, "_add", add)
    monkeypatch.setattr(metrics, "_record", record)
    run = Run(llm=LLM(model="first", fallback=(FallbackRoute(model="second"),))).begin()
    away = ErrorRecord(type="ProviderUnavailable", message="we are moving house", source="model")
    happenings: tuple[Callable[[], object], ...] = (
        lambda: run.model_fails(away, wasted=Usage(input_tokens=7)),
        lambda: run.answer("done", usage=Usage(input_tokens=100, output_tokens=20)),
    )
    for happens in happenings:
        before = run.state
        happens()
        metrics.count(StepDue(run.tick()), before, run.state, ())  # which event it was does not matter here
    assert (counted["first"], counted["second"]) == (7, 120)
