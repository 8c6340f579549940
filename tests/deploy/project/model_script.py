"""What the fake model says, by model name; each `slow` answer leaves time to kill something in the middle of it."""

from holdfast.testing.script import Call, Script, call, calls, say

SLOW_SECONDS = 15

script: dict[str, Script] = {
    "fake": (call("multiply", a=6, b=7), say("Six times seven is 42.")),
    "slow": (
        call("multiply", a=6, b=7),
        calls(Call("multiply", {"a": 42, "b": 1}), delay_seconds=SLOW_SECONDS),
        calls(Call("multiply", {"a": 1, "b": 42}), delay_seconds=SLOW_SECONDS),
        say("Six times seven is still 42.", delay_seconds=SLOW_SECONDS),
    ),
}
