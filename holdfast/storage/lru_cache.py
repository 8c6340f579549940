"""`LruCache`: recently used content by digest, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from threading import Lock


class LruCache:
    """At most `bytes_max` bytes; the least recently used content goes first. Thread-safe."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, digest: str) -> bytes | None:
        """Return the content; None if it is not cached (any more)."""
        with self._lock:
            content = self._contents.get(digest)
            if content is not None:
                self._contents.move_to_end(digest)
            return content

    def put(self, digest: str, data: bytes) -> None:
        """Cache the content, unless it is larger than the whole cache."""
        with self._lock:
            if digest in self._contents or len(data) > self._bytes_max:
                return
            self._contents[digest] = data
            self._bytes += len(data)
            while self._bytes > self._bytes_max:
                _, gone = self._contents.popitem(last=False)
                self._bytes -= len(gone)


def digest_of(data: bytes) -> str:
    """Return the content's SHA-256 as hexadecimal digits; it names the content."""
    return sha256(data).hexdigest()
