"""What the fake model says, by model name; `slow` leaves time to kill the worker in the middle of a model call."""

from holdfast.testing.script import Script, call, say

script: dict[str, Script] = {
    "fake": (call("multiply", a=6, b=7), say("Six times seven is 42.")),
    "slow": (call("multiply", a=6, b=7), say("Six times seven is still 42.", delay_seconds=15)),
}
