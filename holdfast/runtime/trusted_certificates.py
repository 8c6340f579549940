"""The authorities that every HTTPS client of a process trusts, read once: reading them takes 0.1 s of a processor."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl

PLACES_MAX: Final = 8
"""How many places that the environment has named are remembered."""


def trusted_certificates() -> ssl.SSLContext:
    """Return httpx2's context: the system's authorities, or those of SSL_CERT_FILE or SSL_CERT_DIR.

    A file that has changed since is not read again. Raises OSError where the environment names none that can be read.
    """
    return _read(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(PLACES_MAX)
def _read(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    import httpx2  # noqa: PLC0415  # 0.1 s that only its users pay

    return httpx2.create_ssl_context()
