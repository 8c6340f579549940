"""`KeyRing`: the keys that encrypt Temporal's payloads and the record store, from a file that only its owner reads.

    # one key a line: ID:BASE64, the first encrypts, all decrypt
    2026-11:q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=
    2026-02:...

Nothing here reveals a key: neither a repr nor an error.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from holdfast.core.base.errors import InvalidInput

ENCRYPTION_KEYS_MAX: Final = 16
"""The most keys in one key file; a key that encrypts nothing any more can be removed."""

KEY_FILE_BYTES_MAX: Final = 8 * 1024
"""The largest key file: room for that many keys and comments."""

KEY_BYTES: Final = 32
"""AES-256."""

KEY_FILE: Final = "HOLDFAST_ENCRYPTION_KEY_FILE"

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_OPEN_TO_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

_log: Final = logging.getLogger("holdfast")


@dataclass(frozen=True, slots=True)
class Key:
    """One key and its id, which stands beside everything that it has encrypted."""

    id: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of a file, at least one. The first encrypts and all decrypt, which allows rotation."""

    keys: tuple[Key, ...]

    @classmethod
    def read(cls, path: Path) -> KeyRing:
        """Return the keys of a file. A file that others can read is used, with a warning.

        Raises InvalidInput, which names the file and the line and quotes nothing of the content.
        """
        try:
            with path.open("rb") as opened:
                if os.fstat(opened.fileno()).st_mode & _OPEN_TO_OTHERS:
                    _log.warning("the key file %s can be read by others than its owner; run: chmod 600 %s", path, path)
                data = opened.read(KEY_FILE_BYTES_MAX + 1)
        except OSError as error:
            problem = f"the key file {path} cannot be read ({error.strerror})"
            raise InvalidInput(f"{problem}; is {KEY_FILE} right? `holdfast codec-key FILE` makes one") from None
        if len(data) > KEY_FILE_BYTES_MAX:
            raise InvalidInput(f"the key file {path} has more than {KEY_FILE_BYTES_MAX:,} bytes; is it a key file?")
        keys = tuple(_keys(path, data.decode("utf-8", errors="replace")))
        if not keys:
            raise InvalidInput(f"the key file {path} holds no key; `holdfast codec-key FILE` makes one that does")
        if len(keys) > ENCRYPTION_KEYS_MAX:
            raise InvalidInput(f"the key file {path} holds {len(keys)} keys; {ENCRYPTION_KEYS_MAX} are the most")
        if len({key.id for key in keys}) < len(keys) or len({key.secret for key in keys}) < len(keys):
            raise InvalidInput(f"the key file {path} holds an id or a key twice; remove one of the lines")
        return cls(keys)


def create_key_file(path: Path, key_id: str | None = None) -> str:
    """Create a file with one new key, readable by its owner alone, and return the key's id.

    The default id is today's date and six random digits: with one id for two keys, a worker would mistake one for the
    other.

    Raises InvalidInput for an invalid id, and for a file that exists: overwriting a key loses everything that it has
    encrypted.
    """
    key_id = key_id or f"{datetime.now(UTC):%Y-%m-%d}-{secrets.token_hex(3)}"
    if _ID.fullmatch(key_id) is None:
        problem = f"the key id {key_id[:80]!r} cannot be used"
        raise InvalidInput(f"{problem}; take up to 64 letters, digits, dots, dashes and underscores")
    line = f"{key_id}:{b64encode(secrets.token_bytes(KEY_BYTES)).decode()}\n"
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w", encoding="ascii") as file:
            file.write("# Holdfast's encryption keys, ID:BASE64. The first encrypts, all decrypt. Lose none.\n" + line)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        problem = f"the file {path} is there already and stays as it is: a lost key loses all it has encrypted"
        raise InvalidInput(
            f"{problem}; to rotate, add the new key's line below the others first: docs/encryption.md"
        ) from None
    except OSError as error:
        raise InvalidInput(f"the key file {path} cannot be written ({error.strerror})") from None
    return key_id


def _keys(path: Path, text: str) -> Iterator[Key]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key_id, colon, encoded = line.strip().partition(":")
        if not colon or _ID.fullmatch(key_id) is None:
            _refuse(path, number, "is no ID:BASE64")
        try:
            secret = b64decode(encoded, validate=True)
        except ValueError:
            _refuse(path, number, "holds no base64 after the colon")
        if len(secret) != KEY_BYTES:
            _refuse(path, number, f"holds a key of {len(secret)} bytes, not {KEY_BYTES}")
        yield Key(key_id, secret)


def _refuse(path: Path, number: int, why: str) -> NoReturn:
    raise InvalidInput(f"line {number} of the key file {path} {why}; `holdfast codec-key FILE` makes a good one")
