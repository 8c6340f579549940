"""The bare loop: an agent on Temporal as one writes it by hand after reading Temporal's AI samples. No Holdfast.

The shape is that of temporalio/ai-cookbook's agentic loops: the workflow holds the messages, one activity asks the
model with all of them, one activity runs each tool call. It has no budget, no stop, no query and no heartbeat.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any, Final, cast

from openai import AsyncOpenAI
from pydantic import BaseModel
from temporalio import activity, workflow

from bench.task import PROMPT, TOOL, page_text

CALL_TIMEOUT: Final = timedelta(seconds=60)

TOOLS: Final[list[dict[str, Any]]] = [
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "Return the text of a page.",
            "parameters": {
                "type": "object",
                "properties": {"page": {"type": "integer"}, "size": {"type": "integer"}},
                "required": ["page", "size"],
                "additionalProperties": False,
            },
        },
    }
]


class AskRequest(BaseModel):
    """One model call, whole."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]


class Endpoint:
    """The model call, with a client that lives as long as the worker."""

    def __init__(self, client: AsyncOpenAI, model: str) -> None:
        self._client = client
        self._model = model

    @activity.defn
    async def ask(self, request: AskRequest) -> dict[str, Any]:
        """Return the assistant's message, without the fields that are null."""
        answer = await self._client.chat.completions.create(
            model=self._model, messages=cast("Any", request.messages), tools=cast("Any", request.tools)
        )
        return answer.choices[0].message.model_dump(mode="json", exclude_none=True)


@activity.defn(name=TOOL)
async def read_page(arguments: dict[str, Any]) -> str:
    """Return the text of a page."""
    return page_text(arguments["page"], arguments["size"])


@workflow.defn
class BareLoop:
    """Ask, run the tools, append, ask again."""

    @workflow.run
    async def run(self, question: str) -> str:
        """Return the model's last answer."""
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": question},
        ]
        while True:
            answer = await workflow.execute_activity_method(
                Endpoint.ask, AskRequest(messages=messages, tools=TOOLS), start_to_close_timeout=CALL_TIMEOUT
            )
            messages.append(answer)
            calls: list[dict[str, Any]] = answer.get("tool_calls", [])
            if not calls:
                return str(answer["content"])
            messages.extend(await asyncio.gather(*(self._call_tool(call) for call in calls)))

    async def _call_tool(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        result: str = await workflow.execute_activity(
            function["name"], json.loads(function["arguments"]), result_type=str, start_to_close_timeout=CALL_TIMEOUT
        )
        return {"role": "tool", "tool_call_id": call["id"], "content": result}
