"""The names of tools of several sources on one worker: prefixes, other names, and two tools of one name."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from holdfast.core.base.errors import InvalidInput
from holdfast.core.tools.tools import AnyTool


def with_prefix(prefix: str, name: str) -> str:
    """Return the name with the prefix before it, and a `_` between them where the prefix has no `_` or `-` itself."""
    return f"{prefix}{name}" if prefix.endswith(("_", "-")) else f"{prefix}_{name}"


def check_names(tools: Iterable[AnyTool]) -> None:
    """Raise InvalidInput when two of `tools` have one name; the message says where both come from."""
    for one, other in pairwise(sorted(tools, key=lambda each: each.name)):
        if one.name == other.name and one is not other:
            mend = f"rename one with @tool(name=...), `tool.renamed({one.name + '_2'!r})`, or a whole source with "
            mend += "`toolset.prefixed(...)`"
            raise InvalidInput(f"two tools are called {one.name!r}: {one.source} and {other.source}; {mend}")
