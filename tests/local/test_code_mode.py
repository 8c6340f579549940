"""Code Mode in-process: a script's calls are calls of the step, and what a script may not do is refused."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes, HookContext, hook
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import TOOL_RESULT_CHARS_MAX
from holdfast.core.base.call_digest import call_digest
from holdfast.core.base.errors import UnknownTool
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import AgentStepType, Outcome, ToolExecution
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.tools.code_mode import RUN_CODE, SCRIPT_CALLS_MAX, CodeMode
from holdfast.core.tools.tools import tool
from holdfast.core.wire.script_contracts import ScriptAdvance, ScriptRequest, ScriptResult
from holdfast.local import LocalDriver
from holdfast.runtime import script_runner
from holdfast.runtime.script_runner import COUNTS_CPU, advance
from holdfast.testing.script import call, say
from holdfast.testing.scripted_model import ScriptedModel

ROOT = Path(__file__).resolve().parents[2]
AGENT = AgentDefinition(name="coder", tools="all", code=CodeMode())


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def look_up(key: str) -> dict[str, str]:
    """Look a word up."""
    if key == "missing":
        raise KeyError(key)
    return {"key": key, "value": key.upper()}


async def ran(code: str, agent: AgentDefinition = AGENT, **options: object) -> tuple[AgentState, ScriptedModel]:
    model = ScriptedModel([call(RUN_CODE, code=code), say("done")])
    driver = LocalDriver(agent, model=model, tools=[add, look_up], **options)  # type: ignore[arg-type]  # a test's own
    return await driver.execute("go"), model


def executions(state: AgentState) -> tuple[ToolExecution, ...]:
    return state.running.step_executions[0].step.tool_executions


async def test_a_script_calls_tools_and_the_model_sees_its_output_alone() -> None:
    code = "total = 0\nfor n in range(3):\n    total = await add(total, b=n)\nprint('sum', total)\nawait look_up('x')"
    state, model = await ran(code)
    [script, *nested] = executions(state)
    assert (script.name, script.result) == (RUN_CODE, 'sum 3\n{"key":"x","value":"X"}')
    assert [(each.name, each.value) for each in nested] == [
        *(("add", 0), ("add", 1), ("add", 3)),
        ("look_up", {"key": "x", "value": "X"}),
    ]
    assert {each.parent_call_id for each in nested} == {script.call.id}
    roles = [message.role for message in model.requests[1].messages]
    assert roles == ["user", "assistant", "tool"]


def other(code: str) -> ScriptAdvance:
    """Take up a script that had called `add(1, 2)` before."""
    [asked] = advance(ScriptRequest(code="await add(1, 2)", tools=("add",), calls_max=9), {"add": add}).calls
    before = ScriptResult(tool="add", digest=call_digest(asked.tool, asked.arguments), value=3)
    return advance(ScriptRequest(code=code, tools=("add",), results=(before,), calls_max=9), {"add": add})


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("await add(1, 3)", "its call 1, of add, had other arguments before"),
        ("n = add(1, 3)\nawait add(1, 2)", "its call 1, of add, had other arguments before"),
        ("1 + 2", "it made 0 calls, and 1 before"),
    ],
)
def test_a_script_that_asks_for_something_else_than_before_is_told(code: str, problem: str) -> None:
    error = other(code).error
    assert error is not None
    assert (error.type, error.message.split(": another")[0]) == ("ScriptDiverged", problem)
    assert (other("await add(1, 2)").output, other("await add(b=2, a=1)").output) == ("3", "3")


async def test_a_script_whose_calls_a_hook_and_a_person_have_changed_goes_on() -> None:
    async def edited(_: ToolCall) -> Verdict:
        return Verdict(decision="edit", by="ann", arguments={"a": 5, "b": 5})

    @hook("before_tool", tools=("look_up",))
    def change(_: HookContext) -> Changes:
        return Changes(arguments={"key": "y"})

    rules = (ApprovalRule(tools=("add",)),)
    agent = AgentDefinition(name="coder", tools="all", hooks="all", code=CodeMode(), approvals=rules)
    code = "n = await add(1, 2)\nword = await look_up('x')\nawait look_up('z')\n[n, word['value']]"
    state, _ = await ran(code, agent, approver=edited, hooks=[change])
    [script, first, *_] = executions(state)
    assert script.result == '[10,"Y"]'
    assert first.asked_digest == call_digest("add", {"a": 1, "b": 2})
    assert AgentState.from_json(state.to_json()) == state


async def test_calls_that_are_gathered_run_at_once() -> None:
    meeting = asyncio.Barrier(3)

    @tool
    async def meet(name: str) -> str:
        await meeting.wait()
        return name

    code = "import asyncio\n' '.join(await asyncio.gather(*[meet(n) for n in ('a', 'b', 'c')]))"
    model = ScriptedModel([call(RUN_CODE, code=code), say("done")])
    state = await LocalDriver(AGENT, model=model, tools=[meet]).execute("go")
    assert executions(state)[0].result == "a b c"


async def test_a_failed_call_raises_in_the_script_what_the_model_would_see_and_fails_no_step() -> None:
    state, _ = await ran("try:\n    await look_up('missing')\nexcept RuntimeError as error:\n    print(error)")
    script, nested = executions(state)
    assert script.result == nested.answer.content == "Error (KeyError): 'missing'"
    assert state.running.step_executions[0].step.step_type is AgentStepType.TOOL_EXECUTION


async def test_a_call_of_a_script_waits_for_approval_and_a_denial_raises() -> None:
    asked: list[ToolCall] = []

    async def approver(requested: ToolCall) -> Verdict:
        asked.append(requested)
        return Verdict(decision="deny" if requested.arguments["a"] == 2 else "approve", by="kim", reason="no twos")

    agent = AgentDefinition(name="coder", tools="all", code=CodeMode(), approvals=(ApprovalRule(tools=("add",)),))
    code = "print(await add(a=1, b=1))\ntry:\n    await add(a=2, b=2)\nexcept RuntimeError as error:\n    print(error)"
    state, _ = await ran(code, agent, approver=approver)
    script, *nested = executions(state)
    assert [each.arguments for each in asked] == [{"a": 1, "b": 1}, {"a": 2, "b": 2}]
    assert [each.outcome for each in nested] == [Outcome.SUCCEEDED, Outcome.DENIED]
    assert script.result is not None
    assert "denied by kim: no twos" in script.result


async def test_only_hides_the_tools_that_a_script_calls() -> None:
    agent = AgentDefinition(name="coder", tools="all", code=CodeMode(tools=("add",), only=True))
    state, model = await ran("await add(1, 2)", agent)
    assert executions(state)[0].result == "3"
    shown = {each.name: each for each in model.requests[0].tools}
    assert set(shown) == {"look_up", RUN_CODE}
    assert "add(a: int, b: int) -> Any  # Add two numbers." in shown[RUN_CODE].description
    assert "look_up" not in shown[RUN_CODE].description


async def test_a_tool_that_code_names_and_the_agent_lacks_is_refused() -> None:
    agent = AgentDefinition(name="coder", tools="all", code=CodeMode(tools=("ad",)))
    with pytest.raises(UnknownTool, match=r"code\.tools names the tool 'ad'.*add"):
        await ran("1", agent)


@pytest.mark.slow
async def test_a_script_makes_no_more_calls_than_a_step_may() -> None:
    within = f"for n in range({SCRIPT_CALLS_MAX}):\n    await add(n, 1)\n"
    code = f"{within}try:\n    await add(0, 0)\nexcept RuntimeError as error:\n    print(error)"
    state, _ = await ran(code)
    script, *nested = executions(state)
    assert len(nested) == SCRIPT_CALLS_MAX
    assert script.result is not None
    assert f"at most {SCRIPT_CALLS_MAX} calls" in script.result


async def test_a_call_that_is_not_awaited_is_not_made() -> None:
    state, _ = await ran("add(1, 2)\n'end'")
    [script] = executions(state)
    assert script.result == "end\n(1 calls were not awaited, so they were not made)"


REFUSED = {
    "open('/etc/passwd').read()": "PermissionError",
    "open('/tmp/x', 'w').write('x')": "PermissionError",
    "from pathlib import Path\nPath('/etc/passwd').read_text()": "PermissionError",
    "import os\nos.environ['HOME']": "not supported",
    "import os\nos.system('id')": "AttributeError",
    "import os\nos.listdir('/')": "PermissionError",
    "import socket": "ModuleNotFoundError",
    "import subprocess": "ModuleNotFoundError",
    "import ctypes": "ModuleNotFoundError",
    "__import__('os').system('id')": "NameError",
    "().__class__.__base__.__subclasses__()": "AttributeError",
    "(lambda: 0).__globals__": "AttributeError",
    "eval(\"__import__('os')\")": "NameError",
    "print('on')\nwhile True: pass": "it computed for more than 2 s and was ended\non"
    if COUNTS_CPU
    else "TimeoutError",
    "x = 'a' * 10**9": "MemoryError",
    "x = [0]\nwhile True: x = x + x": "MemoryError",
    "10**10**8": "MemoryError",
    "def f(): return f()\nf()": "RecursionError",
    "print('x' * 10**6)": "MemoryError",
    "for _ in range(10**6): print('x' * 100)": "MemoryError",
    "while True: nothing()": "NameError",
    "while True:\n    try: nothing()\n    except NameError: pass": "RuntimeError",
    "run_code(code='1')": "NameError",
    "search_tools(query='x')": "NameError",
    "await add({1: 2}, object())": "",
    "def": "SyntaxError",
}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CPU time is counted: leave a script the clock's time of a busy machine."""
    if COUNTS_CPU:
        monkeypatch.setattr(script_runner, "LIMITS", {**script_runner.LIMITS, "max_feed_duration_secs": 90.0})
        monkeypatch.setattr(script_runner, "PROCESS_SECONDS_MAX", 95.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("code", REFUSED)
async def test_what_a_script_may_not_do_is_refused(code: str) -> None:
    state, _ = await ran(code)
    script = executions(state)[0]
    assert script.error is not None, script.result
    assert script.error.type == "ScriptFailed"
    assert REFUSED[code] in script.error.message


@pytest.mark.usefixtures("patient")
@pytest.mark.skipif(not COUNTS_CPU, reason="CPU time is counted on Linux")
async def test_a_busy_machine_takes_nothing_of_a_scripts_time(monkeypatch: pytest.MonkeyPatch) -> None:
    limit, waited = script_runner.limit_cpu, list[int]()

    def busy(pid: int | None) -> None:
        limit(pid)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            pass  # it stops when the signal reaches its processor

        def go_on(stopped: int = pid) -> None:
            waited.append(stopped)
            os.kill(stopped, signal.SIGCONT)

        threading.Timer(2 * script_runner.SCRIPT_CPU_SECONDS_MAX, go_on).start()

    monkeypatch.setattr(script_runner, "limit_cpu", busy)
    state, _ = await ran("sum(range(1000))")
    assert (executions(state)[0].result, len(waited)) == ("499500", 1)


async def test_the_clock_ends_a_script_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_runner, "LIMITS", {**script_runner.LIMITS, "max_feed_duration_secs": 0.5})
    state, _ = await ran("while True: pass")
    assert "TimeoutError" in str(executions(state)[0].error)


async def test_clock_and_random_numbers_are_the_same_each_time() -> None:
    code = (
        "import random, time, datetime\ntime.sleep(1000)\n[random.random(), time.time(), str(datetime.datetime.now())]"
    )
    first, second = [executions((await ran(code))[0])[0].result for _ in range(2)]
    assert first == second
    assert first is not None
    assert "2000-01-01" in first


async def test_the_script_of_the_page_runs() -> None:
    @tool
    def list_orders(status: str) -> list[dict[str, str]]:
        return [{"customer": name, "status": status} for name in ("a", "b", "c")]

    @tool
    def get_customer(id: str) -> dict[str, bool]:  # noqa: A002  # the page's own name
        return {"vip": id != "b"}

    page = (ROOT / "docs" / "code-mode.md").read_text()
    [code] = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    model = ScriptedModel([call(RUN_CODE, code=code), say("done")])
    state = await LocalDriver(AGENT, model=model, tools=[list_orders, get_customer]).execute("go")
    assert executions(state)[0].result == "2 of 3"


async def test_an_argument_that_is_no_json_is_an_error_that_the_script_can_catch() -> None:
    code = "try:\n    await add(a=float('nan'), b=1)\nexcept TypeError as error:\n    print(error)"
    state, _ = await ran(code)
    [script] = executions(state)
    assert str(script.result).startswith("add: its arguments are no JSON: ")


async def test_a_long_value_is_cut_as_a_tool_s_result_is() -> None:
    state, _ = await ran("'x' * 3_000_000")
    [script] = executions(state)
    assert state.status is ExecutionStatus.COMPLETED
    assert len(str(script.result)) == TOOL_RESULT_CHARS_MAX
    assert str(script.result).endswith("[cut: the beginning of 3,000,000 characters]")


PRINTED_ORDER = """
from holdfast.core.wire.script_contracts import ScriptRequest
from holdfast.runtime.script_runner import advance
from tests.local.test_code_mode import look_up

letters = "{'a', 'b', 'c', 'd', 'e', 'f'}"
for code in (f"await look_up({letters})", letters):
    ran = advance(ScriptRequest(code=code, tools=("look_up",), calls_max=1), {"look_up": look_up})
    print([each.arguments for each in ran.calls], ran.output)
"""


@pytest.mark.slow
def test_a_set_has_the_same_order_in_each_process() -> None:
    told = {
        subprocess.run(
            (sys.executable, "-c", PRINTED_ORDER),
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    letters = list("abcdef")
    assert told == {f"[{{'key': {letters}}}] \n[] {json.dumps(letters, separators=(',', ':'))}\n"}
