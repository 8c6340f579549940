"""`holdfast session ACTION ID`: showing and steering one agent's session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer
from pydantic import ValidationError

from holdfast.cli.command_context import agent_id_of, ask_agent, ask_server
from holdfast.cli.help_format import Group
from holdfast.cli.limit_options import with_limits
from holdfast.cli.options import AgentId, AsJson, Policy, WithLatest, with_server
from holdfast.cli.screens import pending_calls, session_event_lines, session_views
from holdfast.cli.screens.output import hint
from holdfast.cli.shell_completion import agent_names
from holdfast.connection.settings import Settings
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.model_call_changes import MODEL_FACTS
from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.core.wire.session_contracts import SessionView, WhileRunning

if TYPE_CHECKING:
    from holdfast.client import AgentHandle, Holdfast
    from holdfast.client.waiting_calls import WaitingCalls

NO_CHANGE: Final = ExecutionBudget()

session = typer.Typer(name="session", help="Show or steer an agent's session.", cls=Group)


@session.command(cls=WithLatest)
@with_server()
def show(
    agent_id: AgentId,
    *,
    events: Annotated[bool, typer.Option("--events", help="The session's events so far, one per line.")] = False,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Show a session: status, waiting messages and calls, usage; or its events."""
    if events:
        session_event_lines.print_events(ask_agent(settings, agent_id, lambda agent: agent.events()), as_json=as_json)
        return

    async def ask(holdfast: Holdfast) -> tuple[SessionView, WaitingCalls | None]:
        return await pending_calls.of_session(holdfast, await agent_id_of(holdfast, agent_id))

    view, calls = ask_server(settings, ask)
    session_views.print_session(view, calls, as_json=as_json)


@session.command(cls=WithLatest)
@with_server()
def stop(
    agent_id: AgentId,
    *,
    reason: Annotated[str, typer.Option(help="Why; kept with the run.")] = "",
    after_step: Annotated[bool, typer.Option("--after-step", help="Let the step under way finish first.")] = False,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Stop the run under way; waiting messages follow."""
    mode: StopMode = "after_step" if after_step else "now"
    view = ask_agent(settings, agent_id, lambda agent: agent.stop(reason, mode=mode, source="cli"))
    if view.running_id is not None and not as_json:
        hint(f"stop requested for {view.running_id}")
    session_views.print_session(view, as_json=as_json)


@session.command(cls=WithLatest)
@with_server()
def clear(agent_id: AgentId, *, as_json: AsJson = False, settings: Settings) -> None:
    """Forget the conversation, after the run under way. Records stay."""
    session_views.print_session(ask_agent(settings, agent_id, lambda agent: agent.clear()), as_json=as_json)


@session.command(cls=WithLatest)
@with_server()
def suspend(agent_id: AgentId, *, as_json: AsJson = False, settings: Settings) -> None:
    """Begin no run until the session is resumed; messages wait."""
    session_views.print_session(ask_agent(settings, agent_id, lambda agent: agent.suspend()), as_json=as_json)


@session.command(cls=WithLatest)
@with_server()
def resume(agent_id: AgentId, *, as_json: AsJson = False, settings: Settings) -> None:
    """Resume a suspended session; waiting messages follow."""
    session_views.print_session(ask_agent(settings, agent_id, lambda agent: agent.resume()), as_json=as_json)


@session.command(cls=WithLatest)
@with_server()
def close(
    agent_id: AgentId,
    *,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the run under way, and answer no waiting message.")
    ] = False,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Close the session for good. Records stay, and the agent can be forked."""
    session_views.print_session(ask_agent(settings, agent_id, lambda agent: agent.close(stop=stop)), as_json=as_json)


@session.command(cls=WithLatest)
@with_server("agents_dir", "modules")
@with_limits(" per run")
def change(
    agent_id: AgentId,
    *,
    agent: Annotated[
        str | None,
        typer.Option(
            help="The new definition: a name in the agents folder, or a definition file.", autocompletion=agent_names
        ),
    ] = None,
    system_prompt: Annotated[str | None, typer.Option(help="The new system prompt.")] = None,
    model: Annotated[str | None, typer.Option(help="The new model.")] = None,
    budget: ExecutionBudget,
    while_running: Policy = None,
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Change the agent; a run under way follows the change from its next step."""
    if (agent, system_prompt, model, while_running) == (None, None, None, None) and budget == NO_CHANGE:
        raise InvalidInput("nothing to change; give at least one option (see `holdfast session change --help`)")

    async def ask(holdfast: Holdfast) -> SessionView:
        handle = holdfast.agent(await agent_id_of(holdfast, agent_id))
        return await _change(handle, settings, agent, system_prompt, model, budget, while_running)

    session_views.print_session(ask_server(settings, ask), as_json=as_json)


async def _change(
    agent: AgentHandle,
    settings: Settings,
    name: str | None,
    system_prompt: str | None,
    model: str | None,
    budget: ExecutionBudget,
    while_running: WhileRunning | None,
) -> SessionView:
    """Change the agent; of its model and its limits, what is not given stays."""
    from holdfast.client.definition_files import find_agent

    definition = None if name is None else find_agent(name, settings)
    llm: LLM | None = None
    limits: ExecutionBudget | None = None
    if model is not None or budget != NO_CHANGE:
        before = definition or (await agent.open()).definition
        llm = None if model is None else _with_model(before.llm, model)
        limits = None if budget == NO_CHANGE else before.budget.overridden_by(budget)
    return await agent.change(
        definition, system_prompt=system_prompt, llm=llm, budget=limits, while_running=while_running
    )


def _with_model(llm: LLM, model: str) -> LLM:
    try:
        return LLM.model_validate({**llm.model_dump(exclude=set(MODEL_FACTS)), "model": model})
    except ValidationError as error:
        raise InvalidInput(f"the model cannot be used: {problems_text(error)}") from None
