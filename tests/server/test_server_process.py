"""What is read in the words of a server that has ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from holdfast.server.ports import IN_USE
from holdfast.server.server_process import Launch, ServerProcess

SERVICE = """panic: runtime error: invalid memory address or nil pointer dereference
goroutine 2422 [running]:
google.golang.org/grpc.(*Server).Serve(0x125410a52d88, {0x0, 0x0})
\t/home/runner/go/pkg/mod/google.golang.org/grpc@v1.83.2/server.go:913 +0x14c
created by go.temporal.io/server/service/history.(*Service).Start in goroutine 122
"""
HTTP_API = """panic: unable to initialize HTTP API server
go.temporal.io/server/service/frontend.NewHTTPAPIServer(0x1)
"""


@pytest.mark.parametrize(
    ("words", "told"), [(SERVICE, IN_USE), (HTTP_API, IN_USE), ("panic: another\nthe end\n", "the end")]
)
def test_a_port_lost_at_the_start_is_told_from_other_panics(tmp_path: Path, words: str, told: str) -> None:
    kept = os.open(os.devnull, os.O_RDONLY)
    try:
        program = [sys.executable, "-c", f"import sys; sys.exit({words!r})"]
        process = ServerProcess(Launch(program, tmp_path, tmp_path / "log", kept))
        assert process.ended.wait(30)
        assert process.last_words().endswith(told)
    finally:
        os.close(kept)
