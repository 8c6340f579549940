"""Public names that are imported when they are first used: a package loads without the extras of only some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from holdfast.core.base.errors import MissingPart
from holdfast.core.base.extras import install_command


def lazy_names(
    package: str, places: Mapping[str, str], extras: Mapping[str, str], purpose: str
) -> Callable[[str], object]:
    """Return the `__getattr__` of `package`, whose names are in the modules `places`.

    `extras` names, for each distribution's package that may be missing, the extra that brings it; `purpose` says who
    needs it in the MissingPart that is raised then.
    """

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"{package}.{places[name]}"), name)
        except ModuleNotFoundError as error:
            part = (error.name or "").partition(".")[0]
            if part not in extras:
                raise
            text = f"{purpose} needs {part}, which is not installed: {install_command(extras[part])}"
            raise MissingPart(text) from None

    return find
