"""The static metadata of a run or a session: summary, details, memo. They go through the codec, if one is on.

Continue-as-new keeps the memo but neither summary nor details (an SDK limit), so current details name the agent as
well.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from holdfast.core.agent.budget import LIMITS, SECONDS, ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.bounds import SUMMARY_LINE_CHARS_MAX, WORD_CHARS_MAX
from holdfast.core.base.frozen import canonical
from holdfast.core.conversation.amounts import duration, in_full, moment
from holdfast.core.conversation.display_text import summary_line
from holdfast.core.conversation.markdown_escaping import block, code, table

DESCRIPTION_LINE_CHARS_MAX: Final = 120
"""The longest summary of a run or a session, in characters; SUMMARY_LINE_BYTES_MAX holds for it, too."""

DESCRIPTION_QUESTION_CHARS_MAX: Final = 500
"""How much of the question the static details of a run hold; its start event, and a parent's, store them."""

AGENT: Final = "agent"
VERSION: Final = "holdfast"
DEFINITION: Final = "definition"
"""Names in the memo: the agent's name, which Holdfast began the run, the SHA-256 of the definition."""
STARTED: Final = "started"
"""The name in the memo of a Temporal run that continues an execution: when that began, in ISO 8601."""


@dataclass(frozen=True, slots=True)
class WorkflowDescription:
    """The static metadata of a workflow: the summary is one line, the details are Markdown."""

    summary: str
    details: str
    memo: dict[str, str]


def of_run(definition: AgentDefinition, question: str, budget: ExecutionBudget, version: str) -> WorkflowDescription:
    """Return the metadata of a run that a client starts."""
    line = summary_line(f"{definition.name}: {question}", DESCRIPTION_LINE_CHARS_MAX)
    return WorkflowDescription(line, _details(definition, question, budget), memo_of(definition, version))


def of_subagent(definition: AgentDefinition, task: str, budget: ExecutionBudget, version: str) -> WorkflowDescription:
    """Return the metadata of a subagent's run."""
    line = summary_line(f"{definition.name}: {task}", SUMMARY_LINE_CHARS_MAX)
    return WorkflowDescription(line, _details(definition, task, budget), memo_of(definition, version))


def of_execution(definition: AgentDefinition, number: int, question: str, version: str) -> WorkflowDescription:
    """Return the metadata of a session's execution, the `number`th."""
    line = summary_line(f"execution {number}: {question}", SUMMARY_LINE_CHARS_MAX)
    return WorkflowDescription(line, _details(definition, question, definition.budget), memo_of(definition, version))


def of_session(definition: AgentDefinition | None, version: str) -> WorkflowDescription:
    """Return the metadata of a session; without a definition, of one that should be in the store."""
    if definition is None:
        return WorkflowDescription("session", "", {VERSION: version})
    memo = memo_of(definition, version)
    return WorkflowDescription(f"session of {definition.name}", _details(definition, "", definition.budget), memo)


def memo_of(definition: AgentDefinition, version: str) -> dict[str, str]:
    """Return the memo: agent, version of Holdfast, digest of the definition. It holds no conversation text."""
    return {AGENT: definition.name, VERSION: version, DEFINITION: sha256(canonical(definition)).hexdigest()}


def limits_of(budget: ExecutionBudget) -> list[tuple[str, str]]:
    """Return the limits that are set, each with its name, formatted."""
    allowed = [(limit, amount) for limit in LIMITS if (amount := limit.of(budget)) is not None]
    limits = [
        ("time", duration(amount)) if limit is SECONDS else (limit.unit, in_full(amount)) for limit, amount in allowed
    ]
    if budget.deadline is not None:
        limits.append(("deadline", moment(budget.deadline)))
    return limits


def _details(definition: AgentDefinition, question: str, budget: ExecutionBudget) -> str:
    about = f"**{definition.name}**"
    if definition.description:
        about += f": {code(definition.description, DESCRIPTION_QUESTION_CHARS_MAX)}"
    limits = limits_of(budget)
    parts = (
        about,
        f"Model: {code(definition.llm.model, WORD_CHARS_MAX)}" if definition.llm.model else "",
        f"Asked:\n\n{block(question, DESCRIPTION_QUESTION_CHARS_MAX)}" if question.strip() else "",
        table(("limit", ">"), limits) if limits else "No limits.",
    )
    return "\n\n".join(filter(None, parts))
