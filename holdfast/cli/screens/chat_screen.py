"""The screen of `holdfast chat`: sends what is typed, shows what the agent does, and asks for approvals."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydantic import JsonValue, ValidationError

from holdfast.cli.screens import output, session_views
from holdfast.cli.screens.chat_files import ChatFiles
from holdfast.cli.screens.chat_output import ENDS, ChatOutput
from holdfast.cli.screens.terminal_input import Keyboard, LeaveRequest
from holdfast.cli.tool_arguments import typed_arguments
from holdfast.client.watch_events import Watched
from holdfast.core.base.errors import HoldfastError, ServerUnavailable, SessionClosed
from holdfast.core.base.safe_text import printable
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.execution_events import AgentExecutionStarted, ApprovalRequested, ApprovalResolved
from holdfast.core.wire.session_contracts import SessionView

if TYPE_CHECKING:
    from holdfast.client import AgentHandle, Holdfast
    from holdfast.client.agent_handle import SendOptions

ChatEvent: TypeAlias = Watched | SessionView | LeaveRequest | HoldfastError
"""An event, what the session is after an execution, a wish to leave, or why we cannot go on."""

SILENCE_SECONDS: Final = 2.0
"""When nothing has happened for so long, we look whether anything still runs: not every end is an event."""

LOOK_SECONDS: Final = 0.1
"""How often to look whether the session has taken in the end of an execution: it is told of after its record."""

PROMPT: Final = "> "
DECIDE: Final = "approve? y(es), n(o), e(dit): "


class Conversation:
    """One person and one agent. `hold` is all of it."""

    def __init__(
        self, client: Holdfast, agent: AgentHandle, options: SendOptions, by: str, files: ChatFiles | None = None
    ) -> None:
        """`files` go with the first message."""
        self._client = client
        self._agent = agent
        self._options = options
        self._by = by
        self._files = files or ChatFiles()
        self._keyboard = Keyboard()
        self._talk = ChatOutput(agent.agent_id)
        self._events: asyncio.Queue[ChatEvent] = asyncio.Queue()
        self._pending_event: asyncio.Task[ChatEvent] | None = None
        self._draft = ""
        """What was typed at a prompt that had to give way."""
        self._busy = False
        """True while something runs, or waits for its turn."""
        self._stopping = False
        self._interrupt_pending = False
        """True after a Ctrl-C until it has been dealt with, which may need a server."""
        self._looking: asyncio.Task[None] | None = None
        self._approvals: dict[tuple[str, str], ApprovalRequested] = {}
        """The calls that wait for a person, by their execution and their id in it."""

    async def hold(self) -> None:
        """Talk until the person leaves. Raises LeaveRequest, and what the agent can be watched no longer for."""
        loop = asyncio.get_running_loop()
        watching = asyncio.create_task(self._watch())
        loop.add_signal_handler(signal.SIGINT, self._interrupted, asyncio.current_task())
        try:
            self._busy = (await self._agent.view()).status == "running"
            with self._keyboard.unechoed():
                while True:
                    await self._go_on()
                    self._interrupt_pending = False
        except asyncio.CancelledError:
            if self._interrupt_pending:
                raise LeaveRequest(interrupted=True) from None
            raise
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            self._talk.end()
            under_way: list[asyncio.Task[Any]] = [
                each for each in (watching, self._looking, self._pending_event) if each is not None
            ]
            for each in under_way:
                each.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    def _interrupted(self, talking: asyncio.Task[Any] | None) -> None:
        """Take note of Ctrl-C. Where the one before still waits for a server that does not answer, leave at once."""
        if self._interrupt_pending and talking is not None:
            talking.cancel()
        self._interrupt_pending = True
        self._events.put_nowait(LeaveRequest(interrupted=True))

    async def _watch(self) -> None:
        try:
            async with aclosing(self._agent.watch()) as watched:
                async for each in watched:
                    self._events.put_nowait(each)
            self._events.put_nowait(SessionClosed(f"the session of agent {self._agent.agent_id} is closed"))
        except HoldfastError as error:
            self._events.put_nowait(error)

    async def _go_on(self) -> None:
        """Take in the next thing that happens, or that is typed."""
        if self._approvals:
            await self._ask(next(iter(self._approvals.values())))
        elif self._busy:
            await self._work_or_typing()
        else:
            line = await self._typed(PROMPT, lambda: not (self._busy or self._approvals), self._draft)
            if line is not None:
                self._draft = ""
                await self._send(line)

    async def _work_or_typing(self) -> None:
        """Show what the agent does; from the first key on, that waits until the line is typed."""
        with self._keyboard.listening() as pressed:
            key = asyncio.create_task(pressed.wait())
            try:
                await asyncio.wait({self._next_event(), key}, timeout=SILENCE_SECONDS, return_when=FIRST_COMPLETED)
            finally:
                key.cancel()
        if pressed.is_set():
            await self._type()
        elif self._next_event().done():
            await self._take(self._pop_event())
        else:
            self._look()

    async def _type(self) -> None:
        try:
            lines, draft = self._keyboard.typed()
            for line in lines:
                await self._say(line)
            if draft:
                self._talk.end()
                await self._send(await self._keyboard.line(PROMPT, draft))
        except LeaveRequest as leaving:
            await self._take(leaving)

    async def _say(self, line: str) -> None:
        """Send a line that was typed, or put in, faster than a prompt could show it."""
        self._talk.end()
        output.say(f"{PROMPT}{line}")
        await self._send(line)

    async def _typed(self, prompt: str, needed: Callable[[], bool], draft: str = "") -> str | None:
        """Return what is typed at a prompt; none when an event has made it no longer `needed`."""
        while needed():
            self._talk.end()
            typing = asyncio.create_task(self._keyboard.line(prompt, draft))
            await asyncio.wait({typing, self._next_event()}, return_when=FIRST_COMPLETED)
            if typing.done() or self._keyboard.entered:
                await asyncio.wait({typing})
                if (error := typing.exception()) is None:
                    return typing.result()
                if not isinstance(error, LeaveRequest):
                    raise error
                await self._take(error)
                continue
            self._draft = draft = self._keyboard.draft
            self._keyboard.put_away()
            typing.cancel()
            await asyncio.gather(typing, return_exceptions=True)
            await self._take(self._pop_event())
        return None

    def _next_event(self) -> asyncio.Task[ChatEvent]:
        """Return the task that waits for the next event, until `_pop_event` takes it."""
        if self._pending_event is None:
            self._pending_event = asyncio.create_task(self._events.get())
        return self._pending_event

    def _pop_event(self) -> ChatEvent:
        event, self._pending_event = self._next_event().result(), None
        return event

    async def _take(self, event: ChatEvent) -> None:
        match event:
            case SessionView():
                self._busy = event.running_id is not None or _will_begin(event)
            case LeaveRequest(interrupted=True) if self._busy and not self._stopping:
                await self._stop()
            case LeaveRequest() | HoldfastError():
                raise event
            case _:
                await self._show(event)

    async def _show(self, watched: Watched) -> None:
        self._talk.show(watched)
        match watched:
            case ApprovalRequested():
                self._approvals[watched.execution_id, watched.call.id] = watched
            case ApprovalResolved():
                if (
                    self._approvals.pop((watched.execution_id, watched.call_id), None) is not None
                ):  # it was not decided here
                    self._talk.note(f"{watched.decision}{f' by {watched.by}' if watched.by else ''}")
            case AgentExecutionStarted() if watched.agent_id == self._agent.agent_id:
                self._busy, self._stopping = True, False
            case _ if isinstance(watched, ENDS):
                waiting = self._approvals.items()
                self._approvals = {id_: each for id_, each in waiting if each.execution_id != watched.execution_id}
                if watched.agent_id == self._agent.agent_id:
                    self._look(watched.execution_id)
            case _:
                pass

    def _look(self, ended: str = "") -> None:
        """Have it told what the session is, once the execution that `ended` is not under way any more."""
        if ended and self._looking is not None:
            self._looking.cancel()  # what it reports late would be older than what comes now
        if self._looking is None or self._looking.done() or ended:
            self._looking = asyncio.create_task(self._report_session(ended))

    async def _report_session(self, ended: str) -> None:
        while True:
            try:
                view = await self._agent.view()
                if view.running_id is None or view.running_id != ended:
                    self._events.put_nowait(view)
                    return
            except ServerUnavailable:  # so a worker is missing, for which the watch waits as well
                pass
            except HoldfastError as error:
                self._events.put_nowait(error)
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _send(self, text: str) -> None:
        self._talk.end()
        if not text.strip() or await self._files.take(text):
            return
        options: SendOptions = {**self._options}
        if self._files.waiting:
            options["attachments"] = self._files.waiting
        try:
            receipt = await self._agent.send(text, **options)
        except HoldfastError as error:
            output.hint(f"not accepted: {error}")
            return
        self._files.sent()
        if self._busy:
            output.hint(f"it {session_views.fate(receipt)}")
        elif receipt.state == "waiting" and (await self._agent.view()).status == "suspended":
            output.hint(f"it waits: the session is suspended (holdfast session resume {self._agent.agent_id})")
            return
        self._busy = True

    async def _stop(self) -> None:
        self._stopping = True
        self._talk.end()
        output.hint("stopping; Ctrl-C again leaves")
        try:
            await self._agent.stop(source="cli")
        except HoldfastError as error:
            output.hint(f"not stopped: {error}")

    async def _ask(self, request: ApprovalRequested) -> None:
        """Ask for a decision about a call, until there is one."""
        call = request.call
        place = request.execution_id, call.id

        def waits() -> bool:
            return place in self._approvals

        self._talk.end()
        whose = "" if request.agent_id == self._agent.agent_id else " of a subagent"
        output.say(f"  {call.name}{whose} waits for approval. Its arguments:")
        output.say(_editable(call.arguments, indent=2))
        while (answer := await self._typed(DECIDE, waits)) is not None:
            try:
                if await self._decide(request, answer.strip().lower(), waits):
                    self._approvals.pop(place, None)
                    return
            except ValidationError as error:
                output.hint(f"that cannot be used: {problems_text(error)}")
            except HoldfastError as error:
                output.hint(str(error))

    async def _decide(self, request: ApprovalRequested, answer: str, waits: Callable[[], bool]) -> bool:
        """Decide as the answer says; return whether that was done."""
        call = request.call
        fields: dict[str, Any] = {"decision": "approve"}
        if answer in ("n", "no"):
            fields = {"decision": "deny", "reason": await self._typed("why? ", waits)}
        elif answer in ("e", "edit"):
            fields = {"decision": "edit", "arguments": await self._edited(_editable(call.arguments), waits)}
        elif answer not in ("y", "yes"):
            return False
        if None in fields.values():
            return False
        verdict = Verdict.model_validate({**fields, "by": self._by, "digest": request.digest})
        return await self._client.decide(request.execution_id, call.id, verdict)

    async def _edited(self, text: str, waits: Callable[[], bool]) -> dict[str, Any] | None:
        """Return other arguments than `text`; none when the person has thought better of it."""
        while text := await self._typed("arguments: ", waits, text) or "":
            try:
                return typed_arguments(text)
            except ValueError as error:
                output.hint(f"{error}; an empty line goes back")
        return None


def _will_begin(view: SessionView) -> bool:
    return bool(view.waiting) and view.status != "suspended"


def _editable(arguments: Mapping[str, JsonValue], indent: int | None = None) -> str:
    """Return arguments as JSON that shows on a terminal as what it is."""
    text = json.dumps(arguments, indent=indent, ensure_ascii=False)
    return text if printable(text) == text else json.dumps(arguments, indent=indent)
