"""`Runs` without await; `holdfast.client.Holdfast` documents each method."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Unpack, cast, overload

from pydantic import JsonValue

from holdfast.client import runs
from holdfast.client.execution_summaries import ExecutionSummary
from holdfast.client.run_options import RunOptions
from holdfast.client.sync.portal import Portal
from holdfast.client.waiting_calls import WaitingCall, WaitingCalls
from holdfast.client.watch_events import Watched
from holdfast.core.agent.agent import Agent, AnyAgent
from holdfast.core.agent.answer_types import Answers, AnswerT, AnyAnswers
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.run_result import RunResult
from holdfast.core.agent.state import AgentState
from holdfast.core.conversation.input_requests import InputAction
from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.core.conversation.verdicts import Verdict
from holdfast.runtime.files.message_files import GivenFile


class Runs:
    """What a connection can do with single runs: the first half of `Holdfast`."""

    def __init__(self, portal: Portal, inner: runs.Runs) -> None:
        self._portal = portal
        self._inner = inner

    @property
    def address(self) -> str:
        """The server that this is connected to, HOST:PORT."""
        return self._inner.address

    def find_run(self, reference: str) -> str:
        """Return the id of the run that is meant."""
        return self._portal.run(self._inner.find_run(reference))

    def start(  # noqa: PLR0913  # each is the caller's choice
        self,
        agent: AnyAgent,
        question: str = "",
        *,
        state: AgentState | None = None,
        budget: ExecutionBudget | None = None,
        execution_id: str | None = None,
        agent_id: str | None = None,
        subagents: Iterable[AgentDefinition | Agent[Any]] = (),
        metadata: Mapping[str, JsonValue] | None = None,
        tenant: str = "",
        attachments: Iterable[GivenFile] = (),
    ) -> str:
        """Start a run and return its execution id at once."""
        starting = self._inner.start(
            agent,
            question,
            state=state,
            budget=budget,
            execution_id=execution_id,
            agent_id=agent_id,
            subagents=subagents,
            metadata=metadata,
            tenant=tenant,
            attachments=attachments,
        )
        return self._portal.run(starting)

    @overload
    def run(
        self, agent: AnyAgent, question: str = "", *, answers: Answers[AnswerT], **options: Unpack[RunOptions]
    ) -> RunResult[AnswerT]: ...
    @overload
    def run(
        self, agent: str | AgentDefinition | Agent[AnswerT], question: str = "", **options: Unpack[RunOptions]
    ) -> RunResult[AnswerT]: ...
    def run(
        self, agent: AnyAgent, question: str = "", *, answers: AnyAnswers = None, **options: Unpack[RunOptions]
    ) -> RunResult[Any]:
        """Start a run and return its end, with its answer as `output`: `completed` or `stopped`."""
        return self._portal.run(self._inner.run(agent, question, answers=cast("type[Any]", answers), **options))

    def result(self, execution_id: str) -> AgentState:
        """Wait for the end of a run, however long, and return its final state."""
        return self._portal.run(self._inner.result(execution_id))

    def state(self, execution_id: str) -> AgentState:
        """Return the state as it is now."""
        return self._portal.run(self._inner.state(execution_id))

    def debug(self, execution_id: str) -> dict[str, Any]:
        """Return the few facts one asks for first; asks a worker."""
        return self._portal.run(self._inner.debug(execution_id))

    def message(self, execution_id: str, text: str, *, attachments: Iterable[GivenFile] = ()) -> bool:
        """Say something to a run under way: the model sees it with its next call."""
        return self._portal.run(self._inner.message(execution_id, text, attachments=attachments))

    def decide(self, execution_id: str, call_id: str, verdict: Verdict) -> bool:
        """Decide about a tool call that waits for approval."""
        return self._portal.run(self._inner.decide(execution_id, call_id, verdict))

    def answer_question(
        self,
        execution_id: str,
        call_id: str,
        values: Mapping[str, JsonValue] | None = None,
        *,
        action: InputAction = "accept",
        by: str = "",
        digest: str | None = None,
    ) -> bool:
        """Answer what the server of a tool call asks a person for."""
        answering = self._inner.answer_question(execution_id, call_id, values, action=action, by=by, digest=digest)
        return self._portal.run(answering)

    def stop(
        self,
        execution_id: str,
        reason: str = "",
        *,
        mode: StopMode = "now",
        source: str = "client",
        context: Mapping[str, JsonValue] | None = None,
    ) -> bool:
        """Ask a run to stop; return when the server has taken note."""
        return self._portal.run(self._inner.stop(execution_id, reason, mode=mode, source=source, context=context))

    def follow(self, execution_id: str) -> Generator[AgentState, None, None]:
        """Yield the state whenever it has changed, the final one last; raise where the server has ended the run."""
        return self._portal.each(self._inner.follow(execution_id))

    def watch(self, execution_id: str, *, start: int = 0, subagents: bool = True) -> Generator[Watched, None, None]:
        """Yield what happens in a run, from its beginning and until its end: typed events, and text while it comes."""
        return self._portal.each(self._inner.watch(execution_id, start=start, subagents=subagents))

    def waiting(self, limit: int = 20) -> WaitingCalls:
        """Return the tool calls that wait for a person, over all runs; those that wait longest first."""
        return self._portal.run(self._inner.waiting(limit))

    def approvals(self, limit: int = 100) -> Generator[WaitingCall, None, None]:
        """Yield each tool call that waits for a person: those that wait already, then others as they come."""
        return self._portal.each(self._inner.approvals(limit))

    def runs(self, limit: int = 20, query: str | None = None, *, waiting: bool = False) -> list[ExecutionSummary]:
        """Return the latest runs: those under way first, then the latest to end; asks no worker."""
        return self._portal.run(self._inner.runs(limit, query, waiting=waiting))

    def has_worker(self) -> bool:
        """Return whether a worker has asked for work on the settings' task queue within the last 75 s."""
        return self._portal.run(self._inner.has_worker())

    def has_search_attributes(self) -> bool:
        """Return whether this server knows our search attributes; a start that names unknown ones is refused."""
        return self._portal.run(self._inner.has_search_attributes())
