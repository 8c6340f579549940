"""An agent whose executions are kept as their workflow and the `record` activity do it, without either."""

from __future__ import annotations

from uuid import uuid4

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.loop.events import ExecutionStarted, ModelAnswered, ToolReturned
from holdfast.core.wire.carry_over import SealedHistory
from holdfast.core.wire.contracts import RecordRequest
from holdfast.core.wire.execution_record import parts_needed, record_of
from holdfast.core.wire.records import ExecutionRecord
from holdfast.storage.records import Records
from tests.core.building import Run, call

USAGE = Usage(input_tokens=10, output_tokens=5)


class Kept:
    """One agent: each turn is an execution that begins with what the store has of the one before."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.run = Run()
        self.agent_id = str(uuid4())
        self.snapshot: str | None = None

    async def turn(self, question: str, answer: str, result: str | None = None, steps: int = 1) -> ExecutionRecord:
        """Answer a question, with `steps` tool calls before if there is a `result`, and keep the execution."""
        run, past = self.run, SealedHistory()
        if self.snapshot is not None:
            run.state = past.restored(await self.records.frames(self.snapshot), agent_id=self.agent_id)
        else:
            run.state = run.state.model_copy(update={"agent_id": self.agent_id})
        self._step(ExecutionStarted(str(uuid4()), (user_message(question),), run.budget, run.tick()))
        for _ in range(0 if result is None else steps):
            asked = InferenceResponse(tool_calls=(call("a"),), usage=USAGE)
            self._step(ModelAnswered(asked, run.tick()))
            self._step(ToolReturned("a", result or "", run.tick(), run.tick()))
        self._step(ModelAnswered(InferenceResponse(text=answer, usage=USAGE), run.tick()))
        return await self._keep(past, question)

    def _step(self, event: ExecutionStarted | ModelAnswered | ToolReturned) -> None:
        self.run.state, _ = self.run.loop.step(self.run.state, event)

    async def _keep(self, past: SealedHistory, question: str) -> ExecutionRecord:
        snapshot = past.snapshot(self.run.state)
        for part in snapshot.parts:
            if not await self.records.has_part(part.digest):
                assert await self.records.write_part(past.part(part.digest) or b"") == part.digest
        self.snapshot = await self.records.write_snapshot(snapshot)
        needed = {part.digest: await self.records.read_part(part.digest) for part in parts_needed(snapshot)}
        record = record_of(RecordRequest(agent="tester", task=question[:200]), snapshot, self.snapshot, needed)
        await self.records.write(record)
        return record


class Flipped(PayloadCodec):
    """Stands for encryption: every bit is turned, and nothing can be read without turning it back."""

    async def encode(self, payloads: list[Payload]) -> list[Payload]:  # type: ignore[override]
        return [
            Payload(metadata={"encoding": b"flipped"}, data=bytes(255 - each for each in one.SerializeToString()))
            for one in payloads
        ]

    async def decode(self, payloads: list[Payload]) -> list[Payload]:  # type: ignore[override]
        if any(one.metadata.get("encoding") != b"flipped" for one in payloads):
            raise ValueError("this was never flipped")
        return [Payload.FromString(bytes(255 - each for each in one.data)) for one in payloads]
