"""Modules that a person names: the current folder's come first, and leave no trace where they fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.base.errors import InvalidInput
from holdfast.runtime.imports import imported_module


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; modules that a test imports are forgotten with it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before, finders = {*sys.modules}, [*sys.meta_path]
    yield tmp_path
    for name in {*sys.modules} - before:
        del sys.modules[name]
    assert sys.meta_path == finders


def test_the_current_folders_module_comes_before_an_installed_one(folder: Path) -> None:
    (folder / "xdist").mkdir()
    (folder / "xdist" / "__init__.py").write_text("HERE = True")
    (folder / "xdist" / "part.py").write_text("PART = 1")
    installed = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "xdist"}
    try:
        assert imported_module("xdist").HERE
        assert imported_module("xdist.part").PART == 1
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == "xdist"]:
            del sys.modules[name]
        sys.modules.update(installed)


def test_a_folder_without_init_is_a_package_too(folder: Path) -> None:
    (folder / "my_folder_of_tools").mkdir()
    (folder / "my_folder_of_tools" / "orders.py").write_text("ORDERS = 1")
    assert imported_module("my_folder_of_tools.orders").ORDERS == 1


def test_a_module_named_as_pythons_or_a_library_replaces_neither(folder: Path) -> None:
    for name in ("colorsys", "textual"):
        (folder / f"{name}.py").write_text("raise AssertionError")
        assert Path(str(imported_module(name).__file__)).parent != folder


def test_a_module_that_fails_leaves_no_trace_and_can_be_imported_once_mended(folder: Path) -> None:
    source = folder / "mended_later.py"
    source.write_text("raise RuntimeError('boom')")
    with pytest.raises(InvalidInput, match="RuntimeError: boom"):
        imported_module("mended_later")
    source.write_text("MENDED = 'at last'")
    assert imported_module("mended_later").MENDED


def test_a_module_that_takes_itself_out_tells_its_own_error(folder: Path) -> None:
    (folder / "gone_again.py").write_text("import sys\ndel sys.modules[__name__]\nraise RuntimeError('boom')")
    with pytest.raises(InvalidInput, match="RuntimeError: boom"):
        imported_module("gone_again")


def test_a_circular_import_is_named(folder: Path) -> None:
    (folder / "circle_a.py").write_text("from circle_b import B\nA = 1")
    (folder / "circle_b.py").write_text("from circle_a import A\nB = 1")
    with pytest.raises(InvalidInput, match="circular import"):
        imported_module("circle_a")
