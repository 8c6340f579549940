"""The coder's model as a script, so that it runs without a key; it goes on from what the tools return.

python -m holdfast.testing.openai_server --script examples.coder.scripted_model:turn --port 8123
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.testing import Reply, call, say

TESTS: Final = "python3 -m pytest -q check_words.py 2>/dev/null || python3 -m unittest check_words"
"""With pytest where the workspace has it."""

STEPS: Final = (
    call("list_files"),
    call("shell", command=TESTS),
    call("read_file", path="words.py"),
    call("shell", command="cp words.py words.py.orig"),
    call("edit_file", path="words.py", old="for word in text.split():", new="for word in text.lower().split():"),
    call("shell", command=TESTS),
    call("shell", command="diff -u words.py.orig words.py > fix.patch; rm words.py.orig; cat fix.patch"),
)
UNKNOWN: Final = "OutcomeUnknown"
"""What an answer begins with, in brackets, whose worker was lost: these commands may be repeated."""


def turn(request: dict[str, Any]) -> Reply:
    """Return what the model says to `request`: the next step, or the last one again where its outcome is unknown."""
    results = [str(each["content"]) for each in request["messages"] if each["role"] == "tool"]
    done = sum(UNKNOWN not in each for each in results)
    if done < len(STEPS):
        return STEPS[done]
    passed = "OK" in results[-2] or "passed" in results[-2]
    return say("The test passes; fix.patch has the change." if passed else "The test still fails.")
