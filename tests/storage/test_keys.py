"""Key files: made once and readable by their owner, read with a cause for whatever is wrong, shown by nothing."""

from __future__ import annotations

import logging
from base64 import b64encode
from pathlib import Path

import pytest

from holdfast.client import Settings
from holdfast.connection.temporal_client import codec_of
from holdfast.core.base.errors import InvalidInput
from holdfast.storage.keys import ENCRYPTION_KEYS_MAX, KEY_FILE_BYTES_MAX, KeyRing, create_key_file

ONE = f"one:{b64encode(b'1' * 32).decode()}"
TWO = f"two:{b64encode(b'2' * 32).decode()}"
MANY = "\n".join(f"k{n}:{b64encode(bytes([n]) * 32).decode()}" for n in range(ENCRYPTION_KEYS_MAX + 1))


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_new_file_has_a_key_is_its_owners_and_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    assert create_key_file(path, "first") == "first"
    ring = KeyRing.read(path)
    assert [(key.id, len(key.secret)) for key in ring.keys] == [("first", 32)]
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="is there already and stays as it is"):
        create_key_file(path)
    assert path.read_bytes() == before
    with pytest.raises(InvalidInput, match=r"the key id 'no: good' cannot be used"):
        create_key_file(tmp_path / "other", "no: good")
    with pytest.raises(InvalidInput, match="cannot be written"):
        create_key_file(tmp_path / "nowhere" / "keys")


def test_the_first_key_comes_first_and_comments_count_for_nothing(tmp_path: Path) -> None:
    ring = KeyRing.read(written(tmp_path / "keys", f"# new on top\n\n{TWO}\n  {ONE}  \n"))
    assert [key.id for key in ring.keys] == ["two", "one"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no key; "),
        ("# nothing\n", "holds no key; "),
        ("no colon", "line 1 of the key file .* is no ID:BASE64"),
        (f"{ONE}\n/etc/passwd:abc", "line 2 of the key file .* is no ID:BASE64"),
        ("one:sec*ret", "line 1 of the key file .* holds no base64"),
        ("one:c2VjcmV0", "holds a key of 6 bytes, not 32"),
        (f"{ONE}\n{ONE}", "holds an id or a key twice"),
        (f"{ONE}\nother:{ONE.partition(':')[2]}", "holds an id or a key twice"),
        (MANY, f"holds {ENCRYPTION_KEYS_MAX + 1} keys; {ENCRYPTION_KEYS_MAX} are the most"),
        ("#" * (KEY_FILE_BYTES_MAX + 1), "has more than 8,192 bytes; is it a key file?"),
        ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "is no ID:BASE64"),
    ],
)
def test_what_is_no_key_file_is_refused_by_its_line_and_not_repeated(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        KeyRing.read(written(tmp_path / "keys", text))
    assert "c2VjcmV0" not in str(refused.value)
    assert "sec*ret" not in str(refused.value)


def test_a_file_that_is_not_there_is_told_of_with_what_makes_one(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InvalidInput, match=r"cannot be read \(.*holdfast codec-key FILE"):
            KeyRing.read(path)


def test_a_file_that_others_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"):
        KeyRing.read(written(tmp_path / "good", ONE))
        assert caplog.text == ""
        KeyRing.read(written(tmp_path / "open", ONE, 0o640))
    assert "can be read by others than its owner; run: chmod 600 " in caplog.text


def test_the_settings_name_the_file_and_nothing_shows_a_key(tmp_path: Path) -> None:
    path = written(tmp_path / "keys", ONE)
    settings = Settings.from_environment({"HOLDFAST_ENCRYPTION_KEY_FILE": str(path)})
    assert settings.encryption_key_file == path
    assert Settings.from_environment({}).encryption_key_file is None
    assert codec_of(Settings()) is None
    shown = f"{settings!r} {KeyRing.read(path)!r} {codec_of(settings)!r} {vars(type(codec_of(settings))).keys()}"
    assert "1" * 32 not in shown
    assert ONE.partition(":")[2] not in shown
