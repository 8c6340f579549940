"""The model of the team as a script, so that it runs without a key; it really uses what the tools return.

python -m holdfast.testing.openai_server --script examples.research_team.scripted_model:turn --port 8123
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.testing import Call, Reply, call, calls, say

SPAWN: Final = "spawn"
PARTS: Final = (
    "In what state is the bridge?",
    "How much traffic does it carry?",
    "What would a repair cost?",
)
NOTES: Final = {PARTS[0]: ("bridge",), PARTS[1]: ("traffic", "ferry"), PARTS[2]: ("repairs",)}


def turn(request: dict[str, Any]) -> Reply:
    """Return what the model says to `request`: which of the three it plays, the tools it is offered tell."""
    offered = {each["function"]["name"] for each in request.get("tools", ())}
    if SPAWN in offered:
        return _lead(request["messages"])
    if "read_note" in offered:
        return _researcher(request["messages"])
    return say("no objections", usage=(400, 10))


def _lead(messages: list[dict[str, Any]]) -> Reply:
    found = _results(messages)
    if not found:
        wanted = (Call(SPAWN, {"agent": "researcher", "task": part}) for part in PARTS)
        return calls(*wanted, usage=(500, 90))
    draft = " ".join(found[: len(PARTS)])
    if len(found) == len(PARTS):
        task = f"Draft: {draft}\nFindings:\n" + "\n".join(found)
        return calls(Call(SPAWN, {"agent": "critic", "task": task}), usage=(900, 200))
    return say(f"{draft} (The critic: {found[-1]}.)", usage=(1_200, 120))


def _researcher(messages: list[dict[str, Any]]) -> Reply:
    found = _results(messages)
    if not found:
        return call("list_notes")
    task = next(each["content"] for each in messages if each["role"] == "user")
    wanted = NOTES.get(task, ("bridge",))
    if len(found) == 1:
        return calls(*(Call("read_note", {"name": name}) for name in wanted), usage=(350, 30))
    facts = [text.strip().splitlines()[-1] for text in found[1:]]
    return say(" ".join(f"{fact} [{name}]" for fact, name in zip(facts, wanted, strict=True)), usage=(700, 60))


def _results(messages: list[dict[str, Any]]) -> list[str]:
    return [each["content"] for each in messages if each["role"] == "tool"]
