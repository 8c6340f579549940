"""What the pure core takes: time per step at every depth, a state to JSON and back, imports. No server, no network."""

from __future__ import annotations

import argparse
import gc
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final, TypeVar
from uuid import UUID

from bench.report import Goal, hand_over, show_goals, show_table
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.initial_state import new_agent
from holdfast.core.agent.state import AgentState
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import ToolCall, user_message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.loop.agent_loop import AgentLoop
from holdfast.core.loop.events import ExecutionStarted, ModelAnswered, ToolReturned
from holdfast.core.tools.tool_traits import ToolTraits

ValueT = TypeVar("ValueT")

DEPTHS: Final = (10, 100, 1_000, 10_000)
WINDOW_STEPS: Final = 5
"""How many steps are timed at once: few, so that even the shallowest windows stay near their depth."""
WINDOWS: Final = 21
WARM_STEPS: Final = 200
CHUNK_STEPS: Final = 50
"""How many steps' events are made ahead: few, because the collector looks at them too."""
SAVED_STEPS: Final = 1_000
RESULT_BYTES: Final = 2_048
TIMES: Final = 7
"""How often a reading, a writing and an import are measured; the median counts."""

STEP_US_MAX: Final = 100.0
FLAT_RATIO_MAX: Final = 1.2
WRITE_MS_MAX: Final = 60.0
READ_MS_MAX: Final = 100.0
IMPORT_S_MAX: Final = 0.25

TOOL: Final = "read_page"
MODULES: Final = ("holdfast", "holdfast.core.loop.agent_loop", "holdfast.local")
START: Final = datetime(2026, 1, 1, tzinfo=UTC)

EPILOG: Final = """\
A step is one model answer with one tool call and that call's result: two events. Its time is CPU time of this process
with the garbage collector on: the median of windows of a few steps each from that depth on, which leaves the rare full
collections out. `average` has them in: the growing itself from the first step to that depth, the making of the events
(about 6 µs) included. Saving and reading count wall-clock time with the collector on; what is read is thrown away
outside the measured time. An import is the CPU time of a fresh interpreter that does nothing else; its own start is in
it.

JSON: {machine, steps: [{depth, step_us, average_us}], saved: {steps, bytes, write_ms, read_ms}, imports:
{module: seconds}, goals: [{wanted, measured, met}]}. The exit code is 1 when a goal is missed.
"""


@dataclass(frozen=True, slots=True)
class Depth:
    """The time of one step when so many are archived, and the average of all steps until then."""

    depth: int
    step_us: float
    average_us: float


@dataclass(frozen=True, slots=True)
class Saved:
    """What it takes to save a state and to read it."""

    steps: int
    bytes: int
    write_ms: float
    read_ms: float


def new_loop() -> AgentLoop:
    """Return the rules of the measured agent: the one place that knows how a loop is made."""
    return AgentLoop(AgentDefinition(name="measured"), tools={TOOL: ToolTraits(name=TOOL)})


def started_state(loop: AgentLoop) -> AgentState:
    """Return an agent with an execution under way whose limits are set and far away, so that they are computed."""
    budget = ExecutionBudget(max_steps=10**6, max_tokens=10**12, max_seconds=10**6)
    agent = new_agent(AgentDefinition(name="measured"), agent_id=str(UUID(int=1)), at=START)
    state, _ = loop.step(agent, ExecutionStarted(str(UUID(int=2)), (user_message("Read."),), budget, START))
    return state


def events(number: int) -> tuple[ModelAnswered, ToolReturned]:
    """Return what the world says in step `number`."""
    at = START + timedelta(milliseconds=10 * number)
    call = ToolCall(id=f"call_{number}", name=TOOL, arguments={"page": number})
    answer = InferenceResponse(
        tool_calls=(call,), finish_reason="tool_calls", usage=Usage(input_tokens=900, output_tokens=30), model="m"
    )
    page = f"{number:08}".ljust(RESULT_BYTES, ".")
    return ModelAnswered(answer, at), ToolReturned(call.id, page, at, at + timedelta(milliseconds=5))


def walked(loop: AgentLoop, state: AgentState, steps: int) -> tuple[AgentState, float]:
    """Return the state after that many steps more, and the CPU seconds they took."""
    first, seconds = state.step_count, 0.0
    for start in range(first, first + steps, CHUNK_STEPS):
        answers = [events(number) for number in range(start, min(start + CHUNK_STEPS, first + steps))]
        began = time.process_time()
        for answered, returned in answers:
            state, _ = loop.step(state, answered)
            state, _ = loop.step(state, returned)
        seconds += time.process_time() - began
    if state.step_count != first + steps:
        raise RuntimeError(f"{state.step_count} steps are archived instead of {first + steps}: {state.debug()}")
    return state, seconds


def step_times(loop: AgentLoop) -> list[Depth]:
    """Measure a step at every depth."""
    walked(loop, started_state(loop), WARM_STEPS)
    results: list[Depth] = []
    for depth in DEPTHS:
        began = time.process_time()
        state, _ = walked(loop, started_state(loop), depth)
        growing = time.process_time() - began
        windows: list[float] = []
        for _ in range(WINDOWS):
            state, seconds = walked(loop, state, WINDOW_STEPS)
            windows.append(seconds)
        results.append(Depth(depth, median(windows) / WINDOW_STEPS * 1e6, growing / depth * 1e6))
    return results


def saving(loop: AgentLoop) -> Saved:
    """Measure how a state is saved and read."""
    state, _ = walked(loop, started_state(loop), SAVED_STEPS)
    data = state.to_json()
    if AgentState.from_json(data) != state:
        raise RuntimeError("what was read is not what was saved")
    write_ms, read_ms = timed(state.to_json), timed(lambda: AgentState.from_json(data))
    return Saved(SAVED_STEPS, len(data), write_ms, read_ms)


def timed(work: Callable[[], ValueT]) -> float:
    """Return the median milliseconds that `work` takes; its result is dropped outside."""
    results: list[float] = []
    for _ in range(TIMES):
        gc.collect()
        began = time.perf_counter()
        result = work()
        results.append((time.perf_counter() - began) * 1e3)
        del result
    return median(results)


def import_seconds(module: str) -> float:
    """Return the median CPU seconds of a fresh interpreter that imports `module`."""
    results: list[float] = []
    for _ in range(TIMES):
        began = children_seconds()
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)  # noqa: S603  # our own modules
        results.append(children_seconds() - began)
    return median(results)


def children_seconds() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def goals(steps: Sequence[Depth], saved: Saved, imports: dict[str, float]) -> list[Goal]:
    """Judge the figures."""
    slowest = max(each.step_us for each in steps)
    ratio = steps[-1].step_us / steps[0].step_us
    brought_in = imports[MODULES[0]]
    return [
        Goal(f"a step <= {STEP_US_MAX:.0f} µs", f"{slowest:.1f} µs", slowest <= STEP_US_MAX),
        Goal(f"deepest / shallowest <= {FLAT_RATIO_MAX}", f"{ratio:.2f}", ratio <= FLAT_RATIO_MAX),
        Goal(
            f"saving {SAVED_STEPS:,} steps <= {WRITE_MS_MAX:.0f} ms",
            f"{saved.write_ms:.1f} ms",
            saved.write_ms <= WRITE_MS_MAX,
        ),
        Goal(f"reading them <= {READ_MS_MAX:.0f} ms", f"{saved.read_ms:.1f} ms", saved.read_ms <= READ_MS_MAX),
        Goal(f"import {MODULES[0]} <= {IMPORT_S_MAX} s", f"{brought_in:.3f} s", brought_in <= IMPORT_S_MAX),
    ]


def main() -> int:
    """Measure, tell, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there instead of to stdout")
    options = parser.parse_args()
    imports = {module: import_seconds(module) for module in MODULES}
    loop = new_loop()
    saved = saving(loop)
    steps = step_times(loop)
    rows = [(f"{each.depth:,}", f"{each.step_us:.1f}", f"{each.average_us:.1f}") for each in steps]
    show_table("Time per step", ("archived steps", "µs", "average µs"), rows)
    show_table(
        f"A state of {saved.steps:,} steps, {RESULT_BYTES:,} bytes per result",
        ("bytes", "write ms", "read ms"),
        [(f"{saved.bytes:,}", f"{saved.write_ms:.1f}", f"{saved.read_ms:.1f}")],
    )
    show_table("Imports", ("module", "s"), [(module, f"{seconds:.3f}") for module, seconds in imports.items()])
    judged = goals(steps, saved, imports)
    show_goals(judged)
    figures = {"steps": [asdict(each) for each in steps], "saved": asdict(saved), "imports": imports}
    hand_over(figures, judged, options.json)
    return 0 if all(goal.met for goal in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
