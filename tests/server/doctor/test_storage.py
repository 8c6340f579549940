"""The doctor's look at a store in a folder that is not there yet."""

from __future__ import annotations

from pathlib import Path

from holdfast.connection.settings import Settings
from holdfast.server.doctor.check_runner import STORAGE
from holdfast.server.doctor.checks import examine
from holdfast.server.doctor.findings import Finding, Level


async def storage(folder: Path) -> Finding:
    """Return what is found of a store there; no server answers."""
    settings = Settings(address="127.0.0.1:1", storage=(folder / "below" / "objects").as_uri())
    return next(each for each in await examine(settings) if each.check == STORAGE)


async def test_a_store_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    finding = await storage(tmp_path)
    assert (finding.level, finding.remedy) == (Level.OK, "")
    assert finding.result.endswith("not there yet: the first write creates it")
    assert not (tmp_path / "below").exists()
    (tmp_path / "below").write_text("a file")
    finding = await storage(tmp_path)
    assert (finding.level, finding.remedy) == (Level.ERROR, "set HOLDFAST_STORAGE")
    assert finding.result.endswith(f"is not there and cannot be created: {tmp_path}/below: it is a file")
