"""`holdfast chat`: a conversation with one agent, in a terminal or line by line through pipes."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from holdfast.cli.busy_indicator import busy
from holdfast.cli.command_context import agent_id_of, connected, metadata_of, refuse_other_tenant
from holdfast.cli.commands.approvals import login
from holdfast.cli.commands.sessions import print_answer
from holdfast.cli.options import AsJson, Attach, Metadata, Policy, Tenant, with_server
from holdfast.cli.screens import output
from holdfast.cli.shell_completion import agent_ids, agent_names
from holdfast.cli.worker_wait import when_served
from holdfast.connection.settings import Settings
from holdfast.core.base.bounds import QUESTION_BYTES_MAX
from holdfast.core.base.errors import HoldfastError, InvalidInput, SessionClosed
from holdfast.runtime.files.message_files import message_files

if TYPE_CHECKING:
    from holdfast.client import AgentHandle
    from holdfast.client.agent_handle import SendOptions
    from holdfast.core.conversation.attachments import Attachment
    from holdfast.runtime.files.message_files import MessageFile

    ReadFiles: TypeAlias = tuple[MessageFile | Attachment, ...]

INTERRUPTED: Final = 130

REMEMBERED: Final = 2
"""How many messages are shown of a conversation that goes on."""


@with_server("agents_dir", "modules", "task_queue")
def chat(
    agent: Annotated[
        str | None,
        typer.Argument(
            help="Creates a new agent: a name in the agents folder, or a definition file.", autocompletion=agent_names
        ),
    ] = None,
    *,
    agent_id: Annotated[
        str | None,
        typer.Option(
            "--id", help="The session to continue; a new one without it.", metavar="ID", autocompletion=agent_ids
        ),
    ] = None,
    while_running: Policy = None,
    metadata: Metadata = None,
    attach: Attach = None,
    tenant: Tenant = "",
    as_json: AsJson = False,
    settings: Settings,
) -> None:
    """Talk with an agent. Ctrl-C stops its run, Ctrl-D leaves; the session stays open."""
    if agent is None and agent_id is None:
        raise InvalidInput("which agent? name a definition for a new one, or an existing session with --id")
    options: SendOptions = {"while_running": while_running, "metadata": metadata_of(metadata)}
    files = message_files(attach or ())
    raise typer.Exit(asyncio.run(_chat(settings, agent, agent_id, tenant, options, files, as_json=as_json)))


async def _chat(
    settings: Settings,
    name: str | None,
    agent_id: str | None,
    tenant: str,
    options: SendOptions,
    files: ReadFiles,
    *,
    as_json: bool,
) -> int:
    with busy("opening the session") as opening:
        holdfast = await connected(settings)
        id_ = None if agent_id is None else await agent_id_of(holdfast, agent_id)
        agent = holdfast.agent(id_, name, tenant=tenant)
        view = await when_served(holdfast, agent.open, opening, "the session", agent.agent_id)
    refuse_other_tenant(view, tenant)
    back = f"holdfast chat --id {agent.agent_id}"
    if view.status == "closed":
        raise SessionClosed(f"the session of agent {agent.agent_id} is closed; fork it: holdfast fork {agent.agent_id}")
    output.hint(f"agent {agent.agent_id} ({view.definition.name}); to return: {back}")
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return await _lines(agent, options, files, as_json=as_json)
    from holdfast.cli.screens.chat_files import ChatFiles
    from holdfast.cli.screens.chat_screen import Conversation
    from holdfast.cli.screens.terminal_input import LeaveRequest

    if view.executions:
        await _show_recent(agent)
    attached = ChatFiles(files)
    if files:
        attached.show()
    try:
        await Conversation(holdfast, agent, options, login(), attached).hold()
    except LeaveRequest as leaving:
        output.hint(f"the session stays open: {back}")
        return INTERRUPTED if leaving.interrupted else 0
    return 0


async def _show_recent(agent: AgentHandle) -> None:
    """Show the end of the conversation so far."""
    with suppress(HoldfastError):  # a conversation goes on without that
        messages = [each for each in await agent.messages() if each.text and each.role in ("user", "assistant")]
        for each in messages[-REMEMBERED:]:
            output.hint(f"{'> ' if each.role == 'user' else ''}{output.short(each.shown_text)}")


async def _lines(agent: AgentHandle, options: SendOptions, files: ReadFiles, *, as_json: bool) -> int:
    """Answer line by line; the first that comes to no answer is the last, and says so with its exit code.

    `files` go with the first one.
    """
    lines = _Lines()
    while (line := await lines.next()) is not None:
        if line.strip():
            with_files: SendOptions = {**options, "attachments": files}
            receipt, files = await agent.send(line, **with_files), ()
            if code := await print_answer(agent, receipt, as_json=as_json):
                return code
    return 0


class _Lines:
    """The lines of standard input, each read when it is wanted; a thread waits for them."""

    def __init__(self) -> None:
        self._requests = threading.Semaphore(0)
        self._read: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._serve, daemon=True).start()

    async def next(self) -> str | None:
        """Return the next line; none at the end."""
        self._requests.release()
        return await self._read.get()

    def _serve(self) -> None:
        while self._requests.acquire():
            line = sys.stdin.readline(QUESTION_BYTES_MAX + 1)
            with suppress(RuntimeError):  # nobody wants it any more: the loop has ended
                self._loop.call_soon_threadsafe(self._read.put_nowait, line.rstrip("\n") if line else None)
