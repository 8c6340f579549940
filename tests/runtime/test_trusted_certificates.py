"""The certificates that HTTPS clients trust: read once for each place that the environment names."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from holdfast.runtime.trusted_certificates import trusted_certificates


def test_every_client_of_a_process_has_the_same_certificates() -> None:
    assert trusted_certificates() is trusted_certificates()
    assert trusted_certificates().verify_mode is ssl.CERT_REQUIRED
    assert trusted_certificates().check_hostname


def test_another_file_named_by_the_environment_counts_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = trusted_certificates()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(FileNotFoundError):
        trusted_certificates()
    monkeypatch.undo()
    assert trusted_certificates() is before
