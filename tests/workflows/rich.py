"""A run with everything in it: tools, payments, a subagent, a summary, a re-ask, hooks. It can stand still anywhere."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

from holdfast import AgentDefinition, tool
from holdfast.client import Holdfast
from holdfast.core.agent.hooks import Changes, HookContext, Trigger, hook
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.loop.conversation_summary import INSTRUCTION
from holdfast.testing.holds import Hold
from holdfast.testing.script import Call, Reply, call, calls, say
from tests.serving import Served
from tests.workflows.waiting import waiting_calls

RICH = AgentDefinition.model_validate(
    {
        "name": "rich",
        "tools": "all",
        "hooks": "all",
        "system_prompt": "rich",
        "subagents": ["helper"],
        "approvals": [{"tools": ["pay"], "expires_seconds": 6}],
        "response_format": {"type": "json_object"},
        "context": {"summary": {"above_input_tokens": 1_000, "keep_messages": 2}},
    }
)
HELPER = AgentDefinition(name="helper", system_prompt="helper", tools=(), hooks=())
PLACES = ("start", "first model", "hook", "tool", "approval", "subagent", "summary", "re-ask")


class Stage:
    """A run with a tool, four payments, a subagent, a summary, a re-ask and hooks, which stands still at `place`."""

    def __init__(self, place: str = "") -> None:
        self.place = place
        self.hook, self.tool = Hold(), Hold()
        self._asked = 0
        if place != "hook":
            self.hook.release()

    def play(self, request: dict[str, Any]) -> Reply:
        first = request["messages"][0]["content"]
        if first == INSTRUCTION:
            return self._at("summary", say("SUMMARY"))
        if first == "helper":
            return self._at("subagent", say("found"))
        self._asked += 1
        return [
            self._at("first model", call("nap")),
            calls(*(Call("pay", {"amount": n}) for n in range(4))),
            calls(Call("spawn", {"agent": "helper", "task": "look"}), usage=(2_000, 1)),
            say("not an object"),
            self._at("re-ask", say('{"right": true}')),
        ][self._asked - 1]

    def _at(self, place: str, turn: Reply) -> Reply:
        return say("too late", delay_seconds=600) if place == self.place else turn

    @property
    def offer(self) -> Toolset:
        @tool
        async def nap() -> str:
            """Stand still until let go."""
            await self.tool.stand()
            return "rested"

        @tool
        def pay(amount: int) -> str:
            """Pay."""
            return f"paid {amount}"

        async def note(context: HookContext) -> Changes:
            if context.trigger is Trigger.BEFORE_TOOL:
                await self.hook.stand()
            said = (user_message("mind the gap"),) if context.trigger is Trigger.AFTER_TOOL else ()
            seen = f"{context.trigger} {context.step_number} {context.call.id if context.call else ''}"
            return Changes(metadata={seen: True}, messages=said)

        hooks = tuple(hook(trigger, name=f"at_{trigger}", timeout_seconds=5)(note) for trigger in Trigger)
        return Toolset(tools=(nap, pay), hooks=hooks)

    async def drive(self, at_work: Served, execution_id: str) -> None:
        """Do what people do in this run, up to its place."""
        if self.place == "first model":
            await at_work.endpoint.until(lambda requests: len(requests) == 1)
            return
        if self.place == "hook":
            await self.hook.until_held()
            return
        await self.tool.until_held()
        if self.place == "tool":
            return
        await at_work.client.message(execution_id, "meanwhile")
        self.tool.release()
        ids = await waiting_calls(at_work.client, execution_id, 4)
        if self.place == "approval":
            return
        said = zip(ids, ("approve", "deny", "edit"), (None, None, {"amount": 9}), strict=False)
        verdicts = {
            call_id: Verdict.model_validate({"decision": verdict, "by": "ann", "arguments": arguments})
            for call_id, verdict, arguments in said
        }  # all at once: the fourth call's patience runs for each of them
        await asyncio.gather(*(at_work.client.decide(execution_id, *each) for each in verdicts.items()))
        mark = {"subagent": b'"look"', "summary": INSTRUCTION[:40].encode(), "re-ask": b"cannot be used"}.get(
            self.place
        )
        if mark is not None:
            await at_work.endpoint.until(
                lambda requests: any(mark in each.raw and each.ended_at is None for each in requests)
            )


async def start(client: Holdfast, execution_id: str | None = None) -> str:
    agent_id = str(uuid4()) if execution_id is None else execution_id
    return await client.start(RICH, "do it", agent_id=agent_id, execution_id=execution_id, subagents=[HELPER])
