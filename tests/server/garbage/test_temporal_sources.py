"""What a collection reads of Temporal, page by page: a reference on a last page counts as any other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.schedule.v1 import ScheduleListEntry
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    DescribeScheduleRequest,
    DescribeScheduleResponse,
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
    ListActivityExecutionsResponse,
    ListSchedulesRequest,
    ListSchedulesResponse,
    ListWorkflowExecutionsRequest,
    ListWorkflowExecutionsResponse,
)

from holdfast.server.garbage.mark_file import Listed, MarkFile
from holdfast.server.garbage.references import ReferenceReader
from holdfast.server.garbage.registration import StoreUser
from holdfast.server.garbage.temporal_sources import TemporalSource

PAGES = 3
RUN, SCHEDULE = "run", "schedule"
CLOSED = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED


def digest(what: str, *places: int) -> str:
    """Return a digest that stands on that page alone."""
    return f"{what}-{'-'.join(map(str, places))}".encode().hex().ljust(64, "0")


def naming(text: str) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=f'{{"sha256":"{text}"}}'.encode())


Paged = ListWorkflowExecutionsRequest | GetWorkflowExecutionHistoryRequest | ListSchedulesRequest


class Service:
    """A server that gives one thing a page, PAGES of each."""

    async def list_workflow_executions(
        self, request: ListWorkflowExecutionsRequest, **_: object
    ) -> ListWorkflowExecutionsResponse:
        place, token = turned(request)
        execution = WorkflowExecution(workflow_id=f"{RUN}-{place}", run_id=f"{place}")
        info = WorkflowExecutionInfo(execution=execution, status=CLOSED)
        return ListWorkflowExecutionsResponse(executions=[info], next_page_token=token)

    async def get_workflow_execution_history(
        self, request: GetWorkflowExecutionHistoryRequest, **_: object
    ) -> GetWorkflowExecutionHistoryResponse:
        place, token = turned(request)
        page = GetWorkflowExecutionHistoryResponse(next_page_token=token)
        attributes = page.history.events.add().workflow_execution_signaled_event_attributes
        attributes.input.payloads.append(naming(digest(RUN, int(request.execution.run_id), place)))
        return page

    async def list_schedules(self, request: ListSchedulesRequest, **_: object) -> ListSchedulesResponse:
        place, token = turned(request)
        return ListSchedulesResponse(schedules=[ScheduleListEntry(schedule_id=str(place))], next_page_token=token)

    async def describe_schedule(self, request: DescribeScheduleRequest, **_: object) -> DescribeScheduleResponse:
        described = DescribeScheduleResponse()
        described.memo.fields["large"].CopyFrom(naming(digest(SCHEDULE, int(request.schedule_id))))
        return described

    async def list_activity_executions(self, _: object, **__: object) -> ListActivityExecutionsResponse:
        return ListActivityExecutionsResponse()


def turned(request: Paged) -> tuple[int, bytes]:
    """Return the number of the page that is asked for, and the token of the next one; none after the last."""
    place = int(request.next_page_token or b"0")
    return place, str(place + 1).encode() if place + 1 < PAGES else b""


async def test_every_page_of_runs_histories_and_schedules_is_read(tmp_path: Path) -> None:
    expected = {digest(RUN, run, page) for run in range(PAGES) for page in range(PAGES)}
    expected |= {digest(SCHEDULE, place) for place in range(PAGES)}
    names = {f"payloads/{each[:2]}/{each}": bytes.fromhex(each) for each in expected}
    read: list[int] = []
    temporal = cast("Any", SimpleNamespace(workflow_service=Service()))
    source = TemporalSource(temporal, StoreUser("id", "default", "here:7233"), ReferenceReader(None), read.append)
    with MarkFile(tmp_path / "gc.db", "one") as marks:
        marks.add([Listed(name, trash=False, key=key, size=1, written=0.0) for name, key in names.items()])
        await source.mark(marks, again=False)
        assert {each.name for each in marks.objects(marked=True, trash=False)} == set(names)
        assert list(marks.objects(marked=False, trash=False)) == []
    assert sum(read) == PAGES
