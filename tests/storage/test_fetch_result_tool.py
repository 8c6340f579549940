"""Long results: kept whole, shown in part, read on in by their own run alone, and never a reason to lose a call."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from holdfast import AgentDefinition, StopRun, tool
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import TOOL_RESULT_BYTES_MAX, TOOL_RESULT_CHARS_MAX
from holdfast.core.base.errors import InvalidArguments, InvalidInput, ObjectMissing
from holdfast.core.base.safe_text import json_size
from holdfast.core.base.truncation import FETCH_TOOL
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tools import AnyTool
from holdfast.local import LocalDriver
from holdfast.runtime.tool_runner import run_tool, with_fetch_tool
from holdfast.storage.fetch_result_tool import FETCHED_BYTES_MAX, RESULT_KEPT_BYTES_MAX, ResultStore
from holdfast.storage.object_store import Objects
from holdfast.storage.parts import RESULT_PART_BYTES, EncodedParts
from holdfast.testing import ScriptedModel, call, say
from tests.storage.reading import part_of, reads_on

RUN = "5f0c1d52-9d2c-4d39-b1a5-6a8f4a1d6a01"
OTHER_RUN = "5f0c1d52-9d2c-4d39-b1a5-6a8f4a1d6a02"
CONTEXT = ToolContext(RUN, "key", attempt=1)
NUMBERED = "".join(f"line {number}\n" for number in range(200_000))


@pytest.fixture
def results(tmp_path: Path) -> ResultStore:
    return ResultStore(EncodedParts(Objects((tmp_path / "objects").as_uri())))


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_a_short_result_is_shown_whole_and_not_kept(results: ResultStore, tmp_path: Path) -> None:
    text = "x" * TOOL_RESULT_CHARS_MAX
    assert await results.bounded(text, CONTEXT, 60) == text
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [NUMBERED, "ä€😀" * 30_000, "\x1b" * 60_000, "a" + "😀" * 200_000],
    ids=["lines", "characters of many bytes", "control characters", "odd offsets"],
)
async def test_reading_on_gives_the_whole_result(results: ResultStore, text: str) -> None:
    shown = await results.bounded(text, CONTEXT, 60)
    assert len(shown) <= TOOL_RESULT_CHARS_MAX
    assert json_size(shown) <= TOOL_RESULT_BYTES_MAX
    part = part_of(shown)
    read = part.text
    assert part.total == f"{len(text.encode()):,}"
    while True:
        page = await results.read(RUN, part.ref, part.offset, FETCHED_BYTES_MAX)
        assert len(page) <= TOOL_RESULT_CHARS_MAX
        assert json_size(page) <= TOOL_RESULT_BYTES_MAX
        if "[cut: " not in page:
            break
        assert part_of(page).offset > part.offset
        part = part_of(page)
        read += part.text
    assert read + page == text


async def test_a_part_begins_and_ends_with_whole_characters(results: ResultStore) -> None:
    ref = part_of(await results.bounded("é" * 100_000, CONTEXT, 60)).ref
    for offset, limit in ((0, 1), (1, 17), (2, 20), (3, 21)):
        part = part_of(await results.read(RUN, ref, offset, limit))
        assert set(part.text) == {"é"}
        assert part.offset == offset + offset % 2 + len(part.text.encode())


async def test_a_reference_holds_in_its_own_run_alone(results: ResultStore) -> None:
    canary = "canary-7f3a" * 10_000
    ref = part_of(await results.bounded(canary, ToolContext(OTHER_RUN, "key", 1), 60)).ref
    assert "canary" in await results.read(OTHER_RUN, ref, 0, 100)
    attempts = [ref, f"../{OTHER_RUN}/{ref}", f"%2e%2e/{OTHER_RUN}/{ref}", f"{ref}\n", ref.upper(), "", "0" * 24]
    for attempt in attempts:
        with pytest.raises(InvalidArguments) as refused:
            await run_tool(results.tool(), {"ref": attempt}, CONTEXT)
        assert "canary" not in str(refused.value)


async def test_a_place_that_is_none_is_refused(results: ResultStore) -> None:
    ref = part_of(await results.bounded(NUMBERED, CONTEXT, 60)).ref
    size = len(NUMBERED)
    for offset, limit in ((-1, 10), (0, 0), (size, 10), (10**18, 10)):
        with pytest.raises(InvalidArguments):
            await results.read(RUN, ref, offset, limit)
    assert await results.read(RUN, ref, size - 1, 10) == "\n"


@pytest.mark.slow
async def test_more_than_is_kept_is_cut_and_said(results: ResultStore, tmp_path: Path) -> None:
    text = "é" * (RESULT_KEPT_BYTES_MAX // 2 + 1_000)
    part = part_of(await results.bounded("a" + text, CONTEXT, 60))
    assert part.total == f"{RESULT_KEPT_BYTES_MAX - 1:,} that are kept (the result had {len(text) * 2 + 1:,})"
    parts = [path for path in files_in(tmp_path) if path.suffix != ".parts"]
    assert len(parts) == RESULT_KEPT_BYTES_MAX // RESULT_PART_BYTES
    assert sum(path.stat().st_size for path in parts) < RESULT_KEPT_BYTES_MAX + 100 * len(parts)
    end = await results.read(RUN, part.ref, RESULT_KEPT_BYTES_MAX - 5, 100)
    assert end == "é" * 2


class Away(Objects):
    """A place that never answers."""

    async def write(self, name: str, data: bytes) -> None:
        del name, data
        await asyncio.Event().wait()


class Broken(Objects):
    """A place that fails as none should."""

    async def write(self, name: str, data: bytes) -> None:
        raise RuntimeError(name, data)


@pytest.mark.parametrize(
    ("kind", "folder", "said"),
    [(Away, "x", "the storage took too long"), (Broken, "x", "RuntimeError"), (Objects, "file/x", "cannot write ")],
)
async def test_a_result_that_cannot_be_kept_is_shown_in_part_and_the_call_counts(
    kind: type[Objects], folder: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    results = ResultStore(EncodedParts(kind((tmp_path / folder).as_uri())))
    effects: list[int] = []

    @tool(timeout_seconds=1, attempts_max=3)
    def huge() -> str:
        effects.append(1)
        return "x" * 10**6

    reply = await run_tool(huge, {}, CONTEXT, results=results)
    assert effects == [1]
    assert reply.text.startswith("x" * 40_000)
    assert len(reply.text) <= TOOL_RESULT_CHARS_MAX
    last = reply.text.splitlines()[-1]
    assert last.startswith(f"[the rest was not kept: {said}")
    assert FETCH_TOOL not in reply.text


@tool
def huge() -> str:
    """Return much."""
    return NUMBERED


async def test_in_process_a_model_reads_on_as_on_temporal(results: ResultStore) -> None:
    driver = LocalDriver(
        AgentDefinition(name="a", tools="all"), model=ScriptedModel(reads_on()), tools=[huge], results=results
    )
    state = await driver.execute("read it")
    told = [each.result for step in state.steps for each in step.tool_executions]
    parts = [part_of(each) for each in told]
    assert len(parts) == 3
    assert NUMBERED.startswith("".join(part.text for part in parts))


async def test_without_a_place_results_are_cut_as_ever() -> None:
    text = (await run_tool(huge, {}, CONTEXT)).text
    assert text.endswith(f"[cut: the beginning of {len(NUMBERED):,} characters]")


async def test_the_tool_is_offered_beside_others_and_can_be_chosen_or_denied(results: ResultStore) -> None:
    def offered(there: list[AnyTool], agent: AgentDefinition) -> bool:
        return FETCH_TOOL in with_fetch_tool(Toolset(tools=tuple(there)), results).equip(agent).tools

    assert offered([huge], AgentDefinition(name="a", tools="all"))
    assert offered([huge], AgentDefinition(name="a", tools=("huge", FETCH_TOOL)))
    assert not offered([huge], AgentDefinition(name="a", tools=("huge",)))
    assert not offered([huge], AgentDefinition(name="a", tools="all", tools_deny=(FETCH_TOOL,)))
    assert not offered([], AgentDefinition(name="a", tools="all")), "where no tool could bring a long result"


def test_its_name_is_no_other_tools(results: ResultStore) -> None:
    with pytest.raises(InvalidInput, match="'fetch_result' is a name of our own"):
        tool(name=FETCH_TOOL)(huge.function)
    assert results.tool().name == results.tool().traits.name == FETCH_TOOL
    assert results.tool().traits.idempotent
    assert "context" not in str(results.tool().schema.parameters)


async def test_a_result_that_asks_to_stop_is_kept_too(results: ResultStore) -> None:
    @tool
    def last() -> object:
        return StopRun(NUMBERED, "enough")

    reply = await run_tool(last, {}, CONTEXT, results=results)
    assert reply.stop == "enough"
    assert part_of(reply.text).total == f"{len(NUMBERED):,}"


async def test_what_is_no_text_is_kept_as_the_text_it_is_shown_as(results: ResultStore) -> None:
    @tool
    def odd() -> object:
        return ["\ud800" + "x" * 100_000, b"\xff" * 10]

    part = part_of((await run_tool(odd, {}, CONTEXT, results=results)).text)
    assert (await results.read(RUN, part.ref, 0, 10_000)).startswith(part.text[:9_000])


async def test_a_long_value_is_read_whole_from_the_store(results: ResultStore) -> None:
    rows: list[dict[str, object]] = [{"id": number, "name": f"ü{number}"} for number in range(5_000)]

    @tool
    def read_rows() -> list[dict[str, object]]:
        """Return many rows."""
        return rows

    model = ScriptedModel([call("read_rows"), say("done")])
    agent = AgentDefinition(name="a", tools="all")
    state = await LocalDriver(agent, model=model, tools=[read_rows], results=results).execute("read")
    execution = state.last_tool_execution
    assert execution is not None
    assert execution.reference is not None
    assert execution.value == execution.result, "a part of it is no value"
    whole = await results.whole(state.running.execution_id, execution.reference)
    assert json.loads(whole) == rows
    with pytest.raises(ObjectMissing):
        await results.whole(OTHER_RUN, execution.reference)
    with pytest.raises(InvalidInput, match="is no reference"):
        await results.whole(RUN, "../x")
