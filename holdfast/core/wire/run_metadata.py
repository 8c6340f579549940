"""What stands on a run or a session from its start on: summary, details, memo. They go through the codec, if one is on.

The server hands the memo on when a run continues in a new one; the SDK gives it neither summary nor details then, so
the current details of such a run name its agent as well.
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
"""How much of the question the static details of a run hold; the start's event, and a parent's, keep them."""

AGENT: Final = "agent"
VERSION: Final = "holdfast"
DEFINITION: Final = "definition"
"""Names in the memo: the agent's name, which Holdfast began the run, the SHA-256 of the definition."""


@dataclass(frozen=True, slots=True)
class WorkflowDescription:
    """The summary is one line, the details Markdown."""

    summary: str
    details: str
    memo: dict[str, str]


def of_run(definition: AgentDefinition, question: str, budget: ExecutionBudget, version: str) -> WorkflowDescription:
    """Return the cover of a run that somebody has started."""
    line = summary_line(f"{definition.name}: {question}", DESCRIPTION_LINE_CHARS_MAX)
    return WorkflowDescription(line, _details(definition, question, budget), memo_of(definition, version))


def of_subagent(definition: AgentDefinition, task: str, budget: ExecutionBudget, version: str) -> WorkflowDescription:
    """Return the cover of a subagent's run."""
    line = summary_line(f"{definition.name}: {task}", SUMMARY_LINE_CHARS_MAX)
    return WorkflowDescription(line, _details(definition, task, budget), memo_of(definition, version))


def of_execution(definition: AgentDefinition, number: int, said: str, version: str) -> WorkflowDescription:
    """Return the cover of a session's execution, the `number`th."""
    line = summary_line(f"execution {number}: {said}", SUMMARY_LINE_CHARS_MAX)
    return WorkflowDescription(line, _details(definition, said, definition.budget), memo_of(definition, version))


def of_session(definition: AgentDefinition | None, version: str) -> WorkflowDescription:
    """Return the cover of a session; without a definition, of one that is expected to have been kept."""
    if definition is None:
        return WorkflowDescription("session", "", {VERSION: version})
    memo = memo_of(definition, version)
    return WorkflowDescription(f"session of {definition.name}", _details(definition, "", definition.budget), memo)


def memo_of(definition: AgentDefinition, version: str) -> dict[str, str]:
    """Return what the memo tells: of which agent, and by which code, the run was begun. Nothing that anybody said."""
    return {AGENT: definition.name, VERSION: version, DEFINITION: sha256(canonical(definition)).hexdigest()}


def limits_of(budget: ExecutionBudget) -> list[tuple[str, str]]:
    """Return the limits that there are, each with its name, in words."""
    allowed = [(limit, amount) for limit in LIMITS if (amount := limit.of(budget)) is not None]
    limits = [
        ("time", duration(amount)) if limit is SECONDS else (limit.unit, in_full(amount)) for limit, amount in allowed
    ]
    if budget.deadline is not None:
        limits.append(("deadline", moment(budget.deadline)))
    return limits


def _details(definition: AgentDefinition, asked: str, budget: ExecutionBudget) -> str:
    about = f"**{definition.name}**"
    if definition.description:
        about += f": {code(definition.description, DESCRIPTION_QUESTION_CHARS_MAX)}"
    limits = limits_of(budget)
    parts = (
        about,
        f"Model: {code(definition.llm.model, WORD_CHARS_MAX)}" if definition.llm.model else "",
        f"Asked:\n\n{block(asked, DESCRIPTION_QUESTION_CHARS_MAX)}" if asked.strip() else "",
        table(("limit", ">"), limits) if limits else "No limits.",
    )
    return "\n\n".join(filter(None, parts))
