"""The list on a real server: in each Temporal run, in the next execution of a session, and on every screen."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import AgentDefinition, tool
from holdfast.capabilities.built_in import with_built_in
from holdfast.cli.screens.progress_bars import FINE
from holdfast.cli.screens.tree_frame import Viewport
from holdfast.client import Settings
from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.todos import Todo
from holdfast.core.loop.own_tools.todo_list import REMINDER
from holdfast.core.wire.execution_events import AgentExecutionStarted
from holdfast.testing.holds import Hold
from holdfast.testing.script import Call, calls, say
from holdfast.view.html import to_html
from holdfast.view.live_tree import LiveView, after, headed
from holdfast.view.markdown import to_markdown
from holdfast.view.report import read_report
from tests.serving import Serve
from tests.serving import served as served_at
from tests.workflows.chains import chain_of
from tests.workflows.chats import Chat
from tests.workflows.histories import replayed
from tests.workflows.test_story_on_server import current_details
from tests.workflows.waiting import LOOK_SECONDS

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

AGENT = AgentDefinition(name="clerk", capabilities=("todo",))
WRITES = calls(Call("write_todos", {"items": [{"text": "count <b>", "status": "done"}, {"text": "tell"}]}))
LIST = (Todo(text="count <b>", status="done"), Todo(text="tell"))


async def test_the_list_is_in_each_temporal_run_and_costs_no_activity(settings: Settings, tmp_path: Path) -> None:
    settings = replace(settings, continue_events=1)
    script = [WRITES, calls(Call("write_todos", {"items": "none"})), say("done")]
    async with served_at(settings, tmp_path / "ledger.jsonl", script, Toolset()) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        state = await served.client.result(execution_id)
        chain = await chain_of(served.client, execution_id)
        await replayed(served.client, execution_id)
    assert len(chain) > 1, "it has continued as new"
    assert state.todos == LIST
    scheduled = [each.activity_task_scheduled_event_attributes for run in chain for each in run.events]
    assert {each.activity_type.name for each in scheduled if each.activity_id} == {"inference", "record_execution"}


@pytest.mark.slow
async def test_the_next_execution_of_a_session_is_shown_the_list(serve: Serve) -> None:
    async with serve([WRITES, say("later"), say("told")]) as served:
        chat = Chat(served.client, AGENT)
        await chat.ask("one")
        state = await chat.ask("two")
        shown = served.endpoint.requests[-1].body["messages"][-1]
    assert state.todos == LIST
    assert shown == {"role": "user", "content": f"{REMINDER}\n[x] count <b>\n[ ] tell"}


async def test_people_see_the_list(serve: Serve) -> None:
    hold = Hold()

    @tool
    async def look() -> str:
        """Look somewhere."""
        await hold.stand()
        return "seen"

    async with serve([WRITES, calls(Call("look")), say("done")], [look]) as served:
        execution_id = await served.client.start(AGENT.model_copy(update={"tools": ("look",)}), "Go.")
        await hold.until_held()
        async with asyncio.timeout(90):
            while "Todo" not in (details := await current_details(served.client, execution_id)):  # noqa: ASYNC110  # nobody is called back
                await asyncio.sleep(LOOK_SECONDS)
        head = await served.client.state(execution_id)
        hold.release()
        await served.client.result(execution_id)
        report = await read_report(served.client, execution_id)
    assert "**Todo** (1 of 2 done)" in details
    assert "- `[x] count <b>`" in details
    assert "<li>[x] count &lt;b&gt;</li>" in to_html(report)
    assert "tell |" in to_markdown(report)
    began = AgentExecutionStarted(head.agent_id, execution_id, None, head.created_at, 0, agent="clerk", resumed=False)
    view = headed(after(LiveView(), began), head)
    frame = [line.plain.strip() for line in Viewport(head.updated_at, 80, 30, FINE).frame(view)]
    assert [line for line in frame if "todo: 1 of 2 done" in line]
    assert [line for line in frame if line.endswith("[ ] tell")]


def test_a_workers_own_capability_of_that_name_stays() -> None:
    own = Capability(name="todo", prompt="Keep no list.")
    offered = with_built_in(Toolset(capabilities=(own,)))
    assert "write_todos" not in [each.name for each in offered.tools]
    assert [each for each in offered.capabilities if each.name == "todo"] == [own]
