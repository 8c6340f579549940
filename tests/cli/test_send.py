"""What `holdfast send` says where it stops waiting for an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from holdfast.cli.commands.sessions import _send  # pyright: ignore[reportPrivateUsage]
from holdfast.client import AgentHandle, Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.errors import HoldfastError, SessionClosed, SessionRefused
from holdfast.core.wire.session_contracts import Receipt
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.testing.script import say as answer
from tests.serving import Serve

pytestmark = pytest.mark.temporal

FRIEND = AgentDefinition(name="friend")


async def close(agent: AgentHandle) -> None:
    await agent.close(stop=True)


async def terminate(agent: AgentHandle) -> None:
    temporal = agent._client.temporal  # pyright: ignore[reportPrivateUsage]
    await temporal.get_workflow_handle(session_workflow_id(agent.agent_id)).terminate()


@pytest.mark.parametrize(("end", "error"), [(close, SessionClosed), (terminate, SessionRefused)])
async def test_a_message_that_its_session_did_not_live_to_answer_is_not_promised_an_answer(
    serve: Serve,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
    end: Callable[[AgentHandle], Awaitable[None]],
    error: type[HoldfastError],
) -> None:
    async def say(agent: AgentHandle) -> Receipt:
        receipt = await agent.send("one")
        await end(agent)
        return receipt

    async with serve([answer("two")]) as served:
        agent = served.client.agent(definition=FRIEND)
        await agent.suspend()
        with pytest.raises(error):
            await _send(settings, agent.agent_id, None, "", say, wait=True, as_json=False)
    assert "will be answered" not in capsys.readouterr().err
