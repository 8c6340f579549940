"""`holdfast cost`: what a run or a session has cost, by agent and model, in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.command_context import ask_server, resolve_id
from holdfast.cli.options import AsJson, RunOrAgentId, with_server
from holdfast.cli.screens import cost_table, output
from holdfast.connection.settings import Settings

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.view.cost_report import CostReport


@with_server()
def cost(execution_id: RunOrAgentId, *, as_json: AsJson = False, settings: Settings) -> None:
    """Show what a run or a session has cost, subagents included: tokens in parts and US dollars, by agent and model."""
    from holdfast.view.cost_report import run_cost, session_cost, to_dict

    async def ask(holdfast: Holdfast) -> tuple[str, CostReport]:
        id_, is_session = await resolve_id(holdfast, execution_id)
        return id_, await (session_cost(holdfast, id_) if is_session else run_cost(holdfast, id_))

    id_, report = ask_server(settings, ask)
    output.as_json({"id": id_, **to_dict(report)}) if as_json else cost_table.show(report)
