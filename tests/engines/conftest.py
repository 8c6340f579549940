"""The third-party endpoints, each started once per session; installed with the dependency group `engines`."""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest

from tests.engines.engine import Llama, LLMock, llama, running

CONTEXT_TOKENS = 2_048


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Generator[Llama]:
    """llama.cpp with a model of 135 million parameters."""
    with llama(tmp_path_factory.mktemp("llama") / "log", CONTEXT_TOKENS) as started:
        yield started


@pytest.fixture(scope="session")
def endless_engine(tmp_path_factory: pytest.TempPathFactory) -> Generator[Llama]:
    """The same; its answers end only where the client or the context ends them."""
    with llama(tmp_path_factory.mktemp("endless") / "log", CONTEXT_TOKENS, "endless") as started:
        yield started


@pytest.fixture(scope="session")
def llmock_process(tmp_path_factory: pytest.TempPathFactory) -> Generator[LLMock]:
    """Llmock on a free port; offered tools are not called unless a test says so."""
    program = "import sys; from llmock.cli import app; sys.argv[0] = 'llmock'; app()"
    command = [sys.executable, "-c", program, "serve", "--port=0", "--tool-mode=off", "--response-style=hello"]
    command += ["--stream-chunk-delay-ms=100"]  # or it has sent all before it can see that nobody listens any more
    with running(command, tmp_path_factory.mktemp("llmock") / "log", r"running on (http://[^\s(]+)") as address:
        yield LLMock(address)


@pytest.fixture
def llmock(llmock_process: LLMock) -> LLMock:
    """A clean llmock: nothing planned, nothing seen."""
    llmock_process.reset()
    return llmock_process
