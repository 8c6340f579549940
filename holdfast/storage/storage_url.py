"""The URL where large data is stored: which URLs are valid, and the default. Opens nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from holdfast.core.base.errors import InvalidInput

FOLDER: Final = "file"
MEMORY: Final = "memory"
BUCKETS: Final = ("s3", "gs", "az")
REMEDY: Final = "use file:///FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
CREDENTIALS: Final = "credentials come from the cloud's own environment variables"
SHOWN_CHARS: Final = 200


def default_place(data_dir: Path) -> str:
    """Return the URL of the folder `objects` in the data directory."""
    return (data_dir.absolute() / "objects").as_uri()


def checked_place(url: str) -> str:
    """Return `url` if large data can be stored there: file:///, s3://, gs://, az://, or memory:// for tests.

    Raises InvalidInput, which does not quote a URL that may hold a secret (user, password, query).
    """
    try:
        parts = urlsplit(url)
        secret = "@" in parts.netloc or bool(parts.query or parts.fragment)
    except ValueError:
        raise InvalidInput(f"the storage URL cannot be read; {REMEDY}") from None
    if secret:
        raise InvalidInput(
            f"the storage URL holds more than a place (a user, password, query or fragment); {CREDENTIALS}"
        )
    problem = _problem(url, parts)
    if problem is not None:
        raise InvalidInput(f"the storage {url[:SHOWN_CHARS]!r} {problem}; {REMEDY}")
    return url


def folder_of(url: str) -> Path | None:
    """Return the folder of a checked URL; None for a bucket, which other machines can reach as well."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == FOLDER else None


def _problem(url: str, parts: SplitResult) -> str | None:
    if not url.isprintable() or any(char.isspace() for char in url):
        return "holds characters that no URL has"
    if parts.scheme not in (FOLDER, MEMORY, *BUCKETS):
        return "is of no kind we know"
    if parts.scheme == FOLDER and (parts.netloc or not parts.path.strip("/")):
        return "names no folder by its absolute path"
    if parts.scheme in BUCKETS and not parts.netloc:
        return "names no bucket"
    return None
