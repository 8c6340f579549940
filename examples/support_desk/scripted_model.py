"""The model of the desk as a script, so that it runs without a key; it really uses what the tools return.

python -m holdfast.testing.openai_server --script examples.support_desk.scripted_model:turn --port 8123
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from holdfast.testing import Reply, call, say

ORDER: Final = re.compile(r"\b[0-9]{4}\b")
MONEY: Final = re.compile(r"money|refund|pa(y|id)|\bback\b", re.IGNORECASE)


def turn(request: dict[str, Any]) -> Reply:
    """Return what the model says to `request`: it looks the order up, and pays it back when asked to."""
    messages: list[dict[str, Any]] = request["messages"]
    asked = max(place for place, each in enumerate(messages) if each["role"] == "user")
    text = str(messages[asked]["content"])
    found = [str(each["content"]) for each in messages[asked:] if each["role"] == "tool"]
    numbers = ORDER.findall(" ".join(str(each["content"]) for each in messages[: asked + 1] if each["role"] == "user"))
    if not numbers:
        return say("Which order is it? The number has four digits.")
    if not found:
        return call("look_up_order", number=int(numbers[-1]))
    if len(found) > 1 or not found[0].startswith("{"):
        return say(f"This is what came of it: {found[-1]}")
    order = json.loads(found[0])
    left = order["cents"] - order["paid_back_cents"]
    if MONEY.search(text) and left > 0:
        return call("refund", number=order["number"], cents=left)
    paid = f", {order['paid_back_cents'] / 100:.2f} euros of it paid back" if order["paid_back_cents"] else ""
    return say(f"{order['item']} for {order['cents'] / 100:.2f} euros{paid}: {order['status']}.")
