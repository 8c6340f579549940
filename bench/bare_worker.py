"""The bare loop's worker process: `python -m bench.bare_worker --address HOST:PORT --task-queue NAME`.

Its slots, cache, sticky timeout and transport are those of Holdfast's worker, so that only the loops differ.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from datetime import timedelta
from typing import Final

from openai import AsyncOpenAI
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import GrpcCompression
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from bench.bare import BareLoop, Endpoint, read_page
from holdfast.connection.worker_settings import WorkerSettings

READY: Final = "bare worker ready"


async def serve(address: str, task_queue: str) -> None:
    """Serve until SIGTERM. The model's address and key come from the openai client's own environment variables."""
    client = await Client.connect(
        address, data_converter=pydantic_data_converter, grpc_compression=GrpcCompression.NONE
    )
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncOpenAI(max_retries=0) as model:
        same = WorkerSettings()
        worker = Worker(
            client,
            task_queue=task_queue,
            workflows=[BareLoop],
            workflow_runner=UnsandboxedWorkflowRunner(),
            activities=[Endpoint(model, "scripted").ask, read_page],
            max_concurrent_activities=same.inference_slots,
            max_cached_workflows=same.cached_runs,
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=same.sticky_seconds),
        )
        async with worker:
            sys.stdout.write(f"{READY}\n")
            sys.stdout.flush()
            await stopping.wait()


def main() -> None:
    """Run the worker."""
    parser = argparse.ArgumentParser(prog="bench.bare_worker", description="Serve the bare loop.")
    parser.add_argument("--address", required=True)
    parser.add_argument("--task-queue", required=True)
    options = parser.parse_args()
    asyncio.run(serve(options.address, options.task_queue))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # without interpreter finalization, which can crash under the SDK's threads (sdk-python #300)
