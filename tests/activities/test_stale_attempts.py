"""Attempts that nobody waits for, on a real server: they are refused before the endpoint is asked."""

from __future__ import annotations

import dataclasses

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.stale_attempts import refuse_if_unwanted
from holdfast import AgentDefinition
from holdfast.core.wire.contracts import RECORD_ACTIVITY
from holdfast.testing.script import Reply, say
from tests.serving import Serve

pytestmark = pytest.mark.temporal


async def test_an_attempt_that_the_server_has_given_up_is_not_made(serve: Serve) -> None:
    async with serve([say("too late", delay_seconds=600, failures=(Reply(status=503),))]) as served:
        execution_id = await served.client.start(AgentDefinition(name="speaker"), "speak")
        await served.endpoint.until(lambda requests: len(requests) == 2)
        described = await served.client.temporal.get_workflow_handle(execution_id).describe()
        [pending] = described.raw_description.pending_activities
        environment = ActivityEnvironment(client=served.client.temporal)
        environment.info = dataclasses.replace(
            environment.info,
            namespace=served.client.temporal.namespace,
            workflow_id=execution_id,
            workflow_run_id=described.run_id,
            activity_id=pending.activity_id,
            attempt=pending.attempt,
        )
        await environment.run(refuse_if_unwanted)  # the one under way
        environment.info = dataclasses.replace(environment.info, attempt=pending.attempt + 1)
        with pytest.raises(ApplicationError, match="the server no longer waits for this attempt"):
            await environment.run(refuse_if_unwanted)
        await served.client.stop(execution_id)
        await served.client.result(execution_id)
        with pytest.raises(ApplicationError, match="the run has ended"):
            await environment.run(refuse_if_unwanted)
        environment.info = dataclasses.replace(environment.info, activity_type=RECORD_ACTIVITY)
        await environment.run(refuse_if_unwanted)  # what it came to is to be kept, however often that is tried
