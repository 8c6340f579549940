"""Who acts on a scene from outside, and when: the same for the in-process driver and for Temporal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from holdfast.core.conversation.stop_reasons import StopMode
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import turn_number
from tests.chaos.certificate.scene import Asked, Begun, Deed, Scene, Waits
from tests.chaos.certificate.served import gate_of

LOOK_SECONDS: Final = 0.05
REASON: Final = "enough"
PERSON: Final = "ann"


class Actor(Protocol):
    """Whoever acts on a run."""

    async def waiting(self) -> Sequence[str]:
        """Return the ids of the calls that wait for a person; none where nobody answers."""
        ...

    async def approve(self, call_id: str) -> bool:
        """Allow a call; return whether that was taken."""
        ...

    async def stop(self, mode: StopMode) -> None:
        """Stop the run; return when that is acknowledged."""
        ...

    async def inject(self, text: str) -> None:
        """Send the execution under way a message; return when it has arrived there."""
        ...


async def act(scene: Scene, actor: Actor, endpoint: FakeOpenAI, ledger: Path) -> None:
    """Do all that the scene's people do, each deed at its moment."""
    for deed in scene.deeds:
        await _come(deed, actor, endpoint, ledger)
        match deed.do:
            case "approve":
                while not await _approved(actor):  # noqa: ASYNC110  # nobody tells that it waits again
                    await asyncio.sleep(LOOK_SECONDS)
            case "inject":
                await actor.inject(deed.text)
            case "open":
                gate_of(ledger).touch()
            case "stop":
                await actor.stop(deed.mode)


async def _approved(actor: Actor) -> bool:
    return any([await actor.approve(call_id) for call_id in await actor.waiting()])


async def _come(deed: Deed, actor: Actor, endpoint: FakeOpenAI, ledger: Path) -> None:
    match deed.when:
        case Asked(turn):
            seconds = float("inf")
            await endpoint.until(lambda all_: any(turn_number(each.body) == turn for each in all_), seconds)
        case Begun(tool):
            while not Ledger(ledger).count(name=tool, phase="started"):  # noqa: ASYNC110  # a file tells nobody
                await asyncio.sleep(LOOK_SECONDS)
        case Waits():
            while not await actor.waiting():  # noqa: ASYNC110  # nobody tells of it
                await asyncio.sleep(LOOK_SECONDS)
