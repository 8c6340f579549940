"""A priced agent with a subagent whose model has no known price: every view says so, in one form (issue 10, money)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.common import SearchAttributeKey

from holdfast.client import Holdfast
from holdfast.core.conversation.amounts import dollars, no_price, refused_price, short_dollars
from holdfast.core.wire import search_attributes
from tests.cli.page import examples, keys
from tests.cli.program import Ended, Project, Running
from tests.workflows.test_story_on_server import current_details

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("dev")]

UNPRICED = "nobodys-model"
AGENTS = {
    "payer": "llm: {model: payer, prices: {input_usd: 1, output_usd: 2}}\nsubagents: [guest]\nbudget: {max_cost: 1}",
    "guest": f"llm: {{model: {UNPRICED}}}",
}
OWN_COST = 0.00028
"""What the payer's own two model calls cost: 200 tokens in and 40 out."""


@dataclass(frozen=True, slots=True)
class Paid:
    """A run of the payer: what `run --json` said of it, and who asks about it."""

    project: Project
    client: Holdfast
    told: Any

    @property
    def id(self) -> str:
        return str(self.told["execution_id"])

    def shown(self, *words: str) -> str:
        """Return what a command says of the run."""
        ended = self.project.run(*words)
        assert (ended.code, ended.err) == (0, ""), ended
        return ended.out

    def lines(self, *words: str) -> list[Any]:
        """Return the lines of JSON of a command."""
        return [json.loads(line) for line in self.shown(*words, "--json").splitlines()]


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agents")
    for name, front in AGENTS.items():
        (folder / f"{name}.md").write_text(f"---\n{front}\ntools: []\n---\nYou are {name}.\n")
    return folder


def run(project: Project, agents: Path, agent: str, *options: str) -> Ended:
    return project.run("run", agent, "look", "--agents", str(agents), "--json", *options)


@pytest.fixture(scope="module")
def paid(project: Project, dev: Running, agents: Path) -> Paid:  # noqa: ARG001  # it serves the run
    ended = run(project, agents, "payer")
    assert (ended.code, ended.err) == (0, ""), ended
    client = asyncio.run(Holdfast.connect(project.settings))
    return Paid(project, client, ended.document)


WHOLE = dollars(OWN_COST, (UNPRICED,))
"""`> 0.0003 USD (unpriced: nobodys-model)`: how each view says what the run cost."""

FIRST, SECOND = 0.00014, 0.00014
"""What its steps cost; the first is without the subagent's tokens."""

GUEST = dollars(0, (UNPRICED,))
"""What the subagent's run cost."""


@pytest.mark.slow
def test_the_root_is_warned_of_its_subagents_model(paid: Paid) -> None:
    assert paid.told["warnings"] == [no_price(UNPRICED)]
    assert paid.told["unpriced"] == [UNPRICED]
    assert paid.told["cost"] == pytest.approx(OWN_COST)
    (state,) = paid.lines("show", paid.id)
    assert (state["warnings"], state["unpriced"]) == ([no_price(UNPRICED)], [UNPRICED])
    (record,) = paid.lines("record", paid.id)
    assert record["unpriced"] == [UNPRICED]


@pytest.mark.parametrize("view", ["show", "watch", "record", "tree"])
def test_a_run_is_shown_with_what_its_cost_is_without(paid: Paid, view: str) -> None:
    shown = paid.shown(view, paid.id)
    assert f", {WHOLE}" in shown
    assert "0.0003 USD" not in shown.replace(WHOLE, ""), "the cost stands nowhere unmarked"


@pytest.mark.slow
def test_the_cost_of_a_run_is_told_by_agent_and_model_and_its_total_is_what_show_says(paid: Paid) -> None:
    (told,), (shown,) = paid.lines("cost", paid.id), paid.lines("show", paid.id)
    assert keys(told) == keys(examples("holdfast cost")[0])
    assert told["cost"] == pytest.approx(OWN_COST)
    assert told["usage"]["total_tokens"] == 360 == sum(each["usage"]["total_tokens"] for each in told["lines"])
    assert (told["unpriced"], told["executions"], told["id"]) == ([UNPRICED], 2, paid.id)
    own, guests = told["lines"]
    assert (own["agent"], own["calls"], own["cost"], own["unpriced"]) == ("payer", 2, pytest.approx(OWN_COST), False)
    assert (guests["agent"], guests["calls"], guests["cost"], guests["unpriced"]) == ("guest", 1, 0, True)
    assert shown["unpriced"] == [UNPRICED]
    *rows, end = paid.shown("cost", paid.id).splitlines()
    assert rows[1].startswith("payer ")
    assert rows[1].endswith(" 0.0003")
    assert rows[2].startswith("guest ")
    assert rows[2].endswith(" ?")
    assert rows[3].startswith("total ")
    assert end == f"2 runs, 360 tokens, {WHOLE}"


def test_each_step_is_shown_with_what_its_cost_is_without(paid: Paid) -> None:
    heading, one, two, end = paid.shown("show", paid.id, "--steps").splitlines()
    column = heading.index("cost") + len("cost")
    assert one[:column].endswith(f" {short_dollars(FIRST, (UNPRICED,))}")
    assert two[:column].endswith(f"  {short_dollars(SECOND)}")
    assert WHOLE in end
    steps = paid.lines("show", paid.id, "--steps")
    assert [each["unpriced"] for each in steps] == [[UNPRICED], []]
    assert steps[0]["calls"][0]["unpriced"] == [UNPRICED]


def test_a_subagents_run_is_shown_with_what_its_cost_is_without(paid: Paid) -> None:
    root, child = paid.shown("tree", paid.id).splitlines()
    assert (WHOLE in root, GUEST in child) == (True, True)
    (told,) = paid.lines("tree", paid.id)
    assert (told["unpriced"], told["children"][0]["unpriced"]) == ([UNPRICED], [UNPRICED])


@pytest.mark.slow
def test_events_tell_what_costs_are_without(paid: Paid) -> None:
    told = paid.lines("show", paid.id, "--events")
    (guest,) = [each for each in told if each["kind"] == "SubagentCompleted"]
    assert (guest["cost"], guest["unpriced"]) == (0, [UNPRICED])
    used = [each for each in told if each["kind"] == "TokenUsageReported"]
    assert [(each["unpriced"], each["total_unpriced"]) for each in used] == [([UNPRICED], [UNPRICED]), ([], [UNPRICED])]
    shown = paid.shown("show", paid.id, "--events").splitlines()
    assert next(line for line in shown if "SubagentCompleted" in line).endswith(GUEST)
    totals = [line.rpartition(" tokens, ")[2] for line in shown if "TokenUsageReported" in line]
    assert totals == [f"{dollars(FIRST, (UNPRICED,))} so far", f"{WHOLE} so far"]


@pytest.mark.slow
def test_reports_mark_the_run_its_steps_and_its_subagents(paid: Paid) -> None:
    first = dollars(FIRST, (UNPRICED,))
    page = paid.shown("export", paid.id, "--format", "html").replace("&gt;", ">")
    for cost in (WHOLE, first, GUEST):
        assert f"{cost}" in page
    text = paid.shown("export", paid.id, "--format", "markdown").replace("\\", "")
    assert f"| cost | {WHOLE} |" in text
    assert f"| {first} |" in text
    assert f", {GUEST}" in text
    (told,) = [json.loads(paid.shown("export", paid.id, "--format", "json"))]
    assert told["summary"]["unpriced"] == [UNPRICED]


def test_lists_the_server_and_the_web_ui_say_it(paid: Paid) -> None:
    query = f"WorkflowId = '{paid.id}'"
    row = paid.shown("list", "--query", query).splitlines()[1]
    assert dollars(OWN_COST, (UNPRICED,), unit="") in row
    ((listed,),) = paid.lines("list", "--query", query)
    assert listed["unpriced"] == [UNPRICED]

    async def server() -> tuple[str | None, dict[str, Any], str]:
        run = await paid.client.temporal.get_workflow_handle(paid.id).describe()
        attribute = run.typed_search_attributes.get(SearchAttributeKey.for_keyword(search_attributes.UNPRICED))
        return attribute, await paid.client.debug(paid.id), await current_details(paid.client, paid.id)

    attribute, facts, details = asyncio.run(server())
    assert (attribute, facts["unpriced"]) == (UNPRICED, [UNPRICED])
    assert f"| US dollars | > 0.0003 (unpriced: `{UNPRICED}`) | 1 |" in details
    assert f"no price is known for model '{UNPRICED}'" in details
    rows = [
        line.split(" | ")[-1].removesuffix(" |") for line in details.splitlines() if line.startswith(("| 1 |", "| 2 |"))
    ]
    assert rows == [short_dollars(FIRST, (UNPRICED,)), short_dollars(SECOND)]


@pytest.mark.slow
def test_a_budget_that_refuses_them_refuses_the_subagent(project: Project, agents: Path) -> None:
    told = run(project, agents, "payer", "--unpriced", "refuse").document
    assert (told["status"], told["warnings"], told["unpriced"]) == ("completed", [], [])
    assert told["usage"]["input_tokens"] == 200, "the subagent's model was not asked"
    shown = project.run("show", told["execution_id"])
    (error,) = (line for line in shown.out.splitlines() if line.startswith("error "))
    assert error == f"error spawn: SubagentFailed: the agent 'guest' failed: PriceUnknown: {refused_price(UNPRICED)}"


@pytest.mark.slow
def test_a_budget_that_refuses_them_refuses_the_run(project: Project, agents: Path) -> None:
    ended = run(project, agents, "guest", "--unpriced", "refuse")
    assert ended.code == 4
    told = ended.document
    assert (told["status"], told["usage"]["input_tokens"], told["steps"]) == ("failed", 0, 0)
    shown = project.run("run", "guest", "look", "--agents", str(agents), "--unpriced", "refuse")
    assert f"PriceUnknown: {refused_price(UNPRICED)}" in shown.out + shown.err


@pytest.mark.slow
def test_a_session_can_be_told_to_refuse_them(project: Project, agents: Path) -> None:
    agent_id = str(uuid4())
    sent = project.run("send", agent_id, "hello", "--agent", str(agents / "guest.md"), "--json").document
    assert (sent["unpriced"], sent["warnings"]) == ([UNPRICED], [no_price(UNPRICED)])
    seen = project.run("session", "show", agent_id)
    assert GUEST in seen.out
    changed = project.run("session", "change", agent_id, "--unpriced", "refuse", "--json")
    assert changed.document["definition"]["budget"]["unpriced"] == "refuse"
    refused = project.run("send", agent_id, "and again")
    assert refused.code == 4
    assert refused_price(UNPRICED) in refused.err + refused.out
