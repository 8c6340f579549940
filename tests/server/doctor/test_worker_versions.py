"""What the doctor says of builds, from who polls and how the server routes."""

from __future__ import annotations

import pytest

from holdfast.connection.queue_routing import QueueRouting as Q
from holdfast.server.doctor.findings import Level
from holdfast.server.doctor.worker_versions import builds

V1, V2 = ("q", "v1"), ("q", "v2")
CURRENT = "'v1' of 'q' is current"


@pytest.mark.parametrize(
    ("there", "level", "result"),
    [
        (Q("q", [], 2, None), Level.OK, "workers have no build: each serves every run"),
        (Q("q", [], 0, None), Level.OK, "workers have no build: each serves every run"),
        (
            Q("q", [V1], 0, None),
            Level.ERROR,
            "workers of 'v1' serve 'q', and no build is current: runs wait",
        ),
        (Q("q", [V1], 1, None), Level.WARNING, "no build is current: only workers without a build get runs"),
        (Q("q", [V1], 0, V1), Level.OK, f"{CURRENT}; polling: 'v1'"),
        (Q("q", [V1, V2], 0, V1, V2, 20), Level.OK, f"{CURRENT}, 'v2' gets 20 %; polling: 'v1', 'v2'"),
        (Q("q", [V2], 0, V1), Level.ERROR, f"{CURRENT}, and no worker of 'v1' polls: its new runs wait"),
        (Q("q", [V1], 0, V1, V2, 20), Level.ERROR, "and no worker of 'v2' polls: its new runs wait"),
        (Q("q", [V1], 2, V1), Level.WARNING, f"{CURRENT}: nothing goes to 2 workers without a build"),
    ],
)
def test_runs_that_no_worker_gets_are_an_error(there: Q, level: Level, result: str) -> None:
    finding = builds(there)
    assert finding.level is level
    assert result in finding.result
    assert bool(finding.remedy) is (level is not Level.OK)


def test_the_command_that_promotes_names_a_deployment_that_is_not_the_default() -> None:
    assert builds(Q("holdfast", [("holdfast", "v1")], 0, None)).remedy == "`holdfast deploy promote v1`"
    named = builds(Q("q", [("agents", "v1")], 0, None)).remedy
    assert named == "`holdfast deploy promote v1 --deployment agents`"
