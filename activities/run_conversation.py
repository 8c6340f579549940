"""`RunConversation`: the conversation of the run that a tool's call belongs to, read from its workflow by query."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio import activity

from activities.run_queries import UNREADABLE, ask_run
from holdfast.core.base.errors import InvalidInput, StorageFailed
from holdfast.core.conversation.messages import Message
from holdfast.core.wire.contracts import TRANSCRIPT_QUERY, TranscriptPage, TranscriptRequest

QUERY_TIMEOUT: Final = timedelta(seconds=10)
"""How long one page may take: without a worker for the run a query would wait for ever."""

PAGE_MESSAGES: Final = 200
"""The most messages of one page; a page's bytes are bounded by the run."""


@dataclass(frozen=True, slots=True)
class RunConversation:
    """The conversation of the activity's run. Tools read it on a loop of their own; the query is made on ours."""

    loop: asyncio.AbstractEventLoop
    context: Context

    @classmethod
    def here(cls) -> RunConversation:
        """Return the conversation of the activity that runs here."""
        return cls(asyncio.get_running_loop(), copy_context())

    async def page(self, start: int) -> Sequence[Message]:
        """Return messages from place `start` on, without their metadata. Raises StorageFailed, InvalidInput."""
        asking = self.context.copy().run(asyncio.run_coroutine_threadsafe, _page(start), self.loop)
        return await asyncio.wrap_future(asking)


async def _page(start: int) -> Sequence[Message]:
    info = activity.info()
    if info.is_local:  # its workflow is in the middle of a task, and answers no query before the call has ended
        raise InvalidInput("a `local` tool cannot read the conversation; leave out `local`")
    run = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
    request = TranscriptRequest(start=start, stop=start + PAGE_MESSAGES)
    try:
        page = await ask_run(run, TRANSCRIPT_QUERY, TranscriptPage, request, rpc_timeout=QUERY_TIMEOUT)
    except UNREADABLE as error:
        raise StorageFailed(f"the run cannot be asked for its conversation: {error}; try again") from None
    return tuple(message.for_model() for message in page.messages)
