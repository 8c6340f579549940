"""`ask_user`: a question of the agent to a person, which waits durably for its answer."""

from __future__ import annotations

from typing import Final

from holdfast.core.agent.capability_bundles import Capability
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.questions import Question
from holdfast.core.tools.loop_tools import loop_tool

PROMPT: Final = (
    "Where you cannot go on without a decision or a fact that only a person has, ask with ask_user. "
    "Never ask for passwords or keys."
)

ABOUT: Final = (
    "Ask a person and wait for the answer, which can take days. Give the question, with choices where only those will "
    "do, or with fields to ask for several values."
)

ASK_USER: Final = Toolset(
    tools=(loop_tool("ask_user", "ask_user", ABOUT, Question),),
    capabilities=(Capability(name="ask_user", tools=("ask_user",), prompt=PROMPT),),
)
"""The capability `ask_user` with its tool."""
