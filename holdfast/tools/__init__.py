"""Tools that others describe: `from_openapi` makes one of each operation of an HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_names import lazy_names

if TYPE_CHECKING:
    from holdfast.tools.openapi_tools import from_openapi

__all__ = ["from_openapi"]


__getattr__ = lazy_names(
    __name__,
    {"from_openapi": "openapi_tools"},
    {"httpx2": "openapi", "openapi_pydantic": "openapi"},
    "from_openapi",
)
