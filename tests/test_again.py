"""A test that failed in stolen time runs once more; any other failure stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import again

pytest_plugins = ["pytester"]

PLAIN = [option for name in ("llmock", "asyncio", "faulthandler", "cacheprovider") for option in ("-p", f"no:{name}")]

FAILS_ONCE = """
from pathlib import Path
STAT, RUNS = Path({stat!r}), Path({runs!r})

def test_a_thing(tmp_path):
    runs = int(RUNS.read_text()) if RUNS.exists() else 0
    RUNS.write_text(str(runs + 1))
    STAT.write_text("cpu 100 0 0 100 0 0 0 {stolen} 0 0\\n")
    assert tmp_path.exists() and runs
"""


@pytest.mark.parametrize(("stolen", "runs"), [(0, 1), (60, 1), (100, 2)])
def test_only_a_failure_in_stolen_time_runs_once_more(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stolen: int, runs: int
) -> None:
    """Of 200 ticks at work, 0 and 60 stolen ones are below a quarter of the time, 100 are above."""
    stat, counted = tmp_path / "stat", tmp_path / "runs"
    stat.write_text("cpu 0 0 0 0 0 0 0 0 0 0\n")
    monkeypatch.setattr(again, "STAT", stat)
    pytester.makepyfile(FAILS_ONCE.format(stat=str(stat), runs=str(counted), stolen=stolen))
    result = pytester.runpytest_inprocess(*PLAIN, plugins=[again])
    result.assert_outcomes(passed=int(runs == 2), failed=int(runs == 1))
    assert counted.read_text() == str(runs)


def test_a_test_that_fails_again_has_failed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It does not run a third time."""
    stat = tmp_path / "stat"
    stat.write_text("cpu 0 0 0 0 0 0 0 0 0 0\n")
    monkeypatch.setattr(again, "STAT", stat)
    pytester.makepyfile(
        f"""
        from pathlib import Path

        def test_a_thing():
            Path({str(stat)!r}).write_text("cpu 0 0 0 0 0 0 0 100 0 0\\n")
            assert False
        """
    )
    pytester.runpytest_inprocess(*PLAIN, plugins=[again]).assert_outcomes(failed=1)


def test_the_time_of_this_machine_can_be_read() -> None:
    """A share of all time, also between two readings of one moment."""
    before = again.ProcessorTime.now()
    assert 0 <= again.ProcessorTime.now().stolen_since(before) <= 1
