"""Running one check of the doctor: bounded in time; whatever it raises becomes a finding."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.errors import HoldfastError
from holdfast.server.doctor.findings import Finding, from_error, wrong

CHECK_SECONDS: Final = 3.5
"""How long one check may take; those that ask the server begin when it is reached."""

STORAGE: Final = "storage"

Agents = Mapping[str, AgentDefinition]


async def bounded(check: str, findings: Awaitable[list[Finding]], seconds: float = CHECK_SECONDS) -> list[Finding]:
    """Return what a check finds; what it raises, or that it does not end, is a finding, too."""
    try:
        async with asyncio.timeout(seconds):
            return await findings
    except TimeoutError:
        return [
            wrong(
                check,
                f"no answer within {seconds:g} s",
                "a disk, a network or a server hangs, or this machine is overloaded: try again",
            )
        ]
    except HoldfastError as error:
        return [from_error(check, error)]
    except Exception as error:  # noqa: BLE001  # a diagnosis ends with findings, whatever is broken
        text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return [wrong(check, f"the check itself has failed ({text})", "the other checks hold; please report this one")]


async def shared(agents: Awaitable[Agents]) -> Agents:
    """Await what several checks wait for: one that has no more time must not take it from the others."""
    return await asyncio.shield(agents)
