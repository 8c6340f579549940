"""What commands do to their container: each ends as an answer, and the workspace goes on."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.workspace.backend import WorkspaceLost, WorkspaceUnavailable
from holdfast.workspace.docker.docker_backend import DockerBackend
from tests.docker.daemon import Daemon, Ran, run, workspace

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

REPLACED_AFTER_MAX = 4
"""How many commands may meet a container that is ending: on a busy machine that takes a while."""


async def goes_on(backend: DockerBackend, image: str) -> None:
    """The workspace takes a next command, in a new container if the old one ended."""
    place = workspace(image)
    await backend.ensure(place)
    assert (await run(backend, place, "echo on")).output == b"on\n"


async def ended(backend: DockerBackend, image: str, shell: str, seconds: float = 60.0) -> Ran | str:
    place = workspace(image)
    await backend.ensure(place)
    try:
        return await run(backend, place, shell, timeout=seconds)
    except WorkspaceLost as lost:
        return lost.message


async def test_a_command_out_of_memory_is_killed_and_the_workspace_goes_on(backend: DockerBackend, image: str) -> None:
    answer = await ended(backend, image, "exec python3 -c 'bytearray(600 * 2**20); print(1)'")
    if isinstance(answer, Ran):
        assert (answer.result.get("signal"), answer.output) == (9, b"")
    else:
        assert "256 MB" in answer
    await goes_on(backend, image)


async def test_files_that_fill_the_memory_end_the_command_and_the_next_one_runs(
    backend: DockerBackend, image: str
) -> None:
    place = workspace(image, memory_mb=64, disk_mb=512, file_mb_max=512)
    fill = "dd if=/dev/zero of=big bs=1M count=400 status=none; echo code $?"
    answers: list[bytes] = []
    for shell in (fill, *["echo on"] * REPLACED_AFTER_MAX):
        await backend.ensure(place)
        try:
            answers.append((await run(backend, place, shell)).output)
        except WorkspaceLost as lost:
            answers.append(lost.message.encode())
        if answers[-1] == b"on\n":
            break
    assert b"code 0" not in answers[0]
    assert all(b"64 MB, files included" in each for each in answers if b"without an answer" in each)
    assert answers[-1] == b"on\n", "a container whose memory is full is replaced"


async def test_a_fork_bomb_meets_the_bound_and_ends_with_its_time(
    backend: DockerBackend, daemon: Daemon, image: str
) -> None:
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError as e: print(e.strerror, flush=True)"
    answer = await ended(backend, image, f"exec python3 -c '{bomb}'", seconds=3)
    if isinstance(answer, Ran):
        assert answer.result["timed_out"]
        assert b"Resource temporarily unavailable" in answer.output
    await goes_on(backend, image)
    assert [each for each in daemon.commands() if "fork" in each] == []


async def test_a_full_disk_is_told_to_the_command(backend: DockerBackend, image: str) -> None:
    answer = await ended(backend, image, "for i in 1 2 3 4; do dd if=/dev/zero of=file$i bs=1M count=10; done; df .")
    assert isinstance(answer, Ran)
    assert b"No space left on device" in answer.output
    await goes_on(backend, image)


async def test_a_file_over_its_bound_is_refused(backend: DockerBackend, image: str) -> None:
    write = "with open('big', 'wb') as f: f.write(bytes(17 * 2**20))"
    answer = await ended(backend, image, f'exec python3 -c "{write}"')
    assert isinstance(answer, Ran)
    assert b"File too large" in answer.output


async def test_more_files_than_the_bound_are_refused(backend: DockerBackend, image: str) -> None:
    make = "import os\nfor i in range(200_000): os.mknod(str(i))"
    answer = await ended(backend, image, f"exec python3 -c '{make}'")
    assert isinstance(answer, Ran)
    assert b"No space left on device" in answer.output


async def test_zombies_and_orphans_are_gone_after_the_command(
    backend: DockerBackend, daemon: Daemon, image: str
) -> None:
    child = "os.setsid(); os.fork(); time.sleep(0.1 if i % 2 else 1000); os._exit(0)"
    leave = f"import os, time\nfor i in range(20):\n  if os.fork() == 0:\n    {child}\ntime.sleep(1000)"
    answer = await ended(backend, image, f"python3 -c '{leave}' & sleep 1; kill -9 $!; echo over")
    assert isinstance(answer, Ran)
    assert answer.output == b"over\n"
    assert daemon.commands() == []


async def test_output_without_end_is_bounded_and_its_end_is_kept(backend: DockerBackend, image: str) -> None:
    answer = await ended(backend, image, "yes | head -c 200000000; echo; echo the end", seconds=100)
    assert isinstance(answer, Ran)
    assert answer.result["output_bytes"] == 200_000_009
    assert len(answer.output) < 8 * 2**20
    assert answer.output.endswith(b"the end\n")
    forever = await ended(backend, image, "yes", seconds=2)
    assert isinstance(forever, Ran)
    assert forever.result["timed_out"]


async def test_binary_output_arrives_as_it_is(backend: DockerBackend, image: str) -> None:
    answer = await ended(backend, image, "python3 -c 'import os; os.write(1, bytes(range(256)) * 1000)'")
    assert isinstance(answer, Ran)
    assert answer.output == bytes(range(256)) * 1000


async def test_a_command_that_kills_the_program_too_gets_a_new_container(
    backend: DockerBackend, daemon: Daemon, image: str
) -> None:
    place = workspace(image)
    await backend.ensure(place)
    answer = await ended(backend, image, "kill -9 -1")
    assert isinstance(answer, str)
    assert "ended without an answer" in answer
    assert daemon.names(all_states=True) == [], "no program may start in it any more"
    await goes_on(backend, image)


OPENED = """
import os
for name in ("fd/1", "mem"):
    try:
        print(os.open(f"/proc/{os.getppid()}/{name}", os.O_WRONLY))
    except OSError as error:
        print(name, error.strerror)
print(open("/proc/self/oom_score_adj").read())
"""


async def test_a_command_can_not_answer_in_the_programs_name(backend: DockerBackend, image: str) -> None:
    answer = await ended(backend, image, f"exec python3 -c '{OPENED}'")
    assert isinstance(answer, Ran)
    assert answer.output == b"fd/1 Permission denied\nmem Permission denied\n1000\n\n"


async def test_a_container_that_is_removed_meanwhile_is_reported(
    backend: DockerBackend, daemon: Daemon, image: str
) -> None:
    place = workspace(image)
    await backend.ensure(place)
    running = asyncio.create_task(run(backend, place, "sleep 1111"))
    async with asyncio.timeout(60):
        while not any("sleep 1111" in each for each in daemon.commands()):
            await asyncio.sleep(0.05)
    daemon.clear()
    with pytest.raises(WorkspaceLost, match="container ended meanwhile; it may have had its effect"):
        await running
    await goes_on(backend, image)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"image": "holdfast-absent:1"}, "the image 'holdfast-absent:1' is not on the worker's host; .*docker pull"),
        ({"network": "holdfast-absent"}, "has no network 'holdfast-absent'"),
        ({"runtime": "holdfast-absent"}, "does not start the runtime 'holdfast-absent'"),
    ],
)
async def test_what_is_not_there_is_named(
    backend: DockerBackend, daemon: Daemon, image: str, more: dict[str, str], message: str
) -> None:
    with pytest.raises(WorkspaceUnavailable, match=message):
        await backend.ensure(workspace(**{"image": image, **more}))
    assert daemon.names(all_states=True) == []
