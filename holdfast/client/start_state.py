"""`InitialState`: a state that a run starts from: its checks, and how it travels to the workflow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.client.validation import check_definition
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.handoffs import conversation_holder, definition_digest, taken_over
from holdfast.core.agent.initial_state import first_run
from holdfast.core.agent.state import UNBORN_ID, AgentState
from holdfast.core.base import bounds
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.wire.carry_over import SealedHistory
from holdfast.core.wire.contracts import ExecutionInput


@dataclass(frozen=True, slots=True)
class InitialState:
    """A state that was given to `Holdfast.start`; `origin` is the digest of the definition that was given with it."""

    state: AgentState
    origin: str | None = None

    @property
    def agent_id(self) -> str | None:
        """The agent's id; none for an `AgentState.empty`."""
        return None if self.state.agent_id == UNBORN_ID else self.state.agent_id

    @property
    def execution_id(self) -> str | None:
        """The execution that is gone on with; none where another one begins."""
        return self.state.running.execution_id if self._is_under_way else None

    @property
    def tenant(self) -> str:
        """The tenant of the execution that is gone on with; empty where another one begins."""
        return self.state.running.tenant if self._is_under_way else ""

    @property
    def _is_under_way(self) -> bool:
        return self.state.status is ExecutionStatus.IN_PROGRESS

    def check(self, question: str, execution_id: str | None, budget: ExecutionBudget | None) -> None:
        """Refuse what cannot be asked of this state. Raises InvalidInput."""
        own = self.execution_id
        if own is not None and execution_id not in {None, own}:
            problem = f"the state belongs to run {own}, which is under way and keeps its id"
            raise InvalidInput(f"{problem}; leave out the id {execution_id}")
        if own is not None and budget is not None and budget != ExecutionBudget():
            problem = f"the state belongs to run {own}, which is under way and keeps its budget"
            raise InvalidInput(f"{problem}; leave out the limits")
        if own is None and not question and not self._awaits_answer:
            raise InvalidInput("the state has no unanswered message; give a question")
        self.state.to_json()

    @property
    def last_question(self) -> str:
        """What a person said last in its conversation."""
        return next(
            (each.text for each in reversed(self.state.messages) if each.role == "user" and not each.shows_results), ""
        )

    @property
    def _awaits_answer(self) -> bool:
        """Whether its conversation ends with what somebody else than the agent says."""
        messages = self.state.messages
        return bool(messages) and messages[-1].role != "assistant"

    def begun_with(
        self, current: AgentDefinition, agents: Iterable[AgentDefinition]
    ) -> tuple[InitialState, AgentDefinition]:
        """Return the state and the definition by which it goes on: model, prompt and answers' form are the state's.

        That is the definition of the agent that the conversation was handed to, if it was, with the budget of the
        `current` one. Raises DefinitionInvalid.
        """
        holder = conversation_holder(self.state, current, agents)
        taken = taken_over(self.state, holder)
        state = first_run(taken, holder, agent_id=taken.agent_id, at=taken.updated_at)
        going_on = replace(
            holder,
            budget=current.budget,
            system_prompt=state.context.system_prompt,
            llm=state.llm or holder.llm,
            response_format=state.context.response_format,
        )
        return InitialState(taken, definition_digest(current)), check_definition(going_on)

    def workflow_arguments(self, start: ExecutionInput) -> tuple[ExecutionInput, tuple[bytes, ...]]:
        """Return the workflow's arguments: `start` with the state, and the sealed segments of that.

        Raises InvalidInput for a state larger than CARRIED_BYTES_MAX.
        """
        state = self.state
        if self._is_under_way:
            start = replace(start, budget=state.running.budget)
        else:
            state = state.for_next_execution(state.updated_at)
        past = SealedHistory()
        carried = past.carried(replace(state, agent_id=start.agent_id) if self.agent_id else state)
        if past.size > bounds.CARRIED_BYTES_MAX:
            problem = f"the state's conversation and steps take {past.size:,} bytes"
            raise InvalidInput(
                f"{problem}, at most {bounds.CARRIED_BYTES_MAX:,} are allowed; clear or shorten it first"
            )
        return replace(start, state=carried, origin=self.origin), tuple(each.data for each in past.sealed)
