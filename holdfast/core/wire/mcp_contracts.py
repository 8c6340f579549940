"""What the activities of MCP servers take and return. `contracts` has their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field

from holdfast.core.agent.tool_selection import ToolChoice
from holdfast.core.base.bounds import CALL_ID_KEPT_CHARS_MAX
from holdfast.core.base.call_digest import Digest
from holdfast.core.base.frozen import Frozen, is_empty, is_none
from holdfast.core.base.json_form import SparseForm
from holdfast.core.base.json_values import JsonMap
from holdfast.core.conversation.attempt_tally import TaskId
from holdfast.core.conversation.input_requests import INPUT_ROUNDS_MAX, InputAnswer, InputRequest, InputResponse
from holdfast.core.tools.mcp_changes import McpToolsChange
from holdfast.core.tools.mcp_servers import McpChoice

MCP_LEFT_OUT_MAX: Final = 20
"""How many lines about MCP tools that were left out a history keeps."""

REQUEST_STATE_BYTES_MAX: Final = 65_536
"""The largest state of a server that asks a person for something: the history has it twice in each round."""

INPUT_NEEDED: Final = "holdfast.input_needed"
"""The `kind` of a result of `call_mcp_tool` that is no tool's."""

ANSWER_SIGNAL: Final = "answer"
"""The signal and the update by which a person answers what a call's server asks for."""


class CallAnswer(Frozen):
    """The input of the `answer` signal and update: a person's answer for the waiting call of that id."""

    call_id: str = Field(max_length=CALL_ID_KEPT_CHARS_MAX)
    answer: InputAnswer


class McpInputs(Frozen):
    """The answers to what a server asked for, and the state that it wants back with them: never shown, never logged.

    With a `task` they go to that task, and nothing is called.
    """

    round: int = Field(ge=1, le=INPUT_ROUNDS_MAX)
    responses: Mapping[str, InputResponse] = Field(default_factory=dict[str, InputResponse], repr=False)
    request_state: str | None = Field(default=None, repr=False)
    task: TaskId | None = Field(default=None, exclude_if=is_none)


class McpInputNeeded(Frozen):
    """The server asks a person for `requests`, who has `seconds_max` to answer.

    `request_state` and `task` are as in McpInputs.
    """

    kind: Literal["holdfast.input_needed"] = INPUT_NEEDED
    server: str
    requests: tuple[InputRequest, ...]
    seconds_max: float
    request_state: str | None = Field(default=None, repr=False)
    task: TaskId | None = Field(default=None, exclude_if=is_none)


class McpRequest(SparseForm):
    """The MCP servers that an agent names, for its worker to list; the `tenant` is for their credentials."""

    agent: str
    servers: tuple[McpChoice, ...]
    previous: Digest | None = None
    """The catalog that the agent had before, to compare with."""
    tenant: str = ""


class McpResolved(Frozen):
    """The catalog of the servers' tools, which is in the record store, and what was left out of it."""

    catalog: Digest
    tools: int
    changes: tuple[McpToolsChange, ...] = Field(default=(), exclude_if=is_empty)
    left_out: tuple[str, ...] = Field(default=(), max_length=MCP_LEFT_OUT_MAX)


class McpCall(SparseForm):
    """One call of an MCP server's tool, by the name and the catalog that the run has pinned.

    With `inputs` it goes on with a call whose server has asked for something. The `tenant` is for the server's
    credentials.
    """

    catalog: Digest
    name: str
    arguments: JsonMap
    step: int
    call_id: str = Field(max_length=CALL_ID_KEPT_CHARS_MAX)
    tenant: str = ""
    inputs: McpInputs | None = Field(default=None, exclude_if=is_none)


class McpSearch(Frozen):
    """A search among the tools of a pinned catalog that an agent with this choice of tools may call."""

    catalog: Digest
    arguments: JsonMap
    tools: ToolChoice = ()
    tools_deny: tuple[str, ...] = ()
