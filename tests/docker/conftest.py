"""A Docker daemon, an image with python3, and a backend whose containers are removed after the test."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from typing import Any
from uuid import uuid4

import pytest
from docker.errors import DockerException, ImageNotFound

from holdfast.workspace.docker.docker_backend import DockerBackend
from tests.docker.daemon import HOST, IMAGES, Daemon, client

REQUIRED = "HOLDFAST_DOCKER_TESTS"
"""`make docker-tests` sets it: there a missing daemon is a failure."""


BRIDGE = "bridge"


def absent(reason: str) -> None:
    if os.environ.get(REQUIRED):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def api() -> Generator[Any]:
    try:
        opened = client()
    except DockerException as error:
        absent(f"no Docker daemon answers at {HOST} ({error}); start one, or set DOCKER_HOST")
        raise
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def image(api: Any) -> str:
    """An image that is there; the official one comes first."""
    for name in IMAGES:
        try:
            api.inspect_image(name)
        except ImageNotFound:
            continue
        return name
    absent(f"none of the images {', '.join(IMAGES)} is here; pull one, or run deploy/stand-in/build-base.sh")
    raise AssertionError


@pytest.fixture(scope="session")
def bridge(api: Any) -> str:
    """Docker's own network, on which containers reach each other."""
    if not any(each["Name"] == BRIDGE for each in api.networks()):
        absent(f"the Docker daemon at {HOST} has no network {BRIDGE!r}; start it without --bridge=none")
    return BRIDGE


@pytest.fixture
def daemon(api: Any) -> Generator[Daemon]:
    daemon = Daemon(api, f"test-{uuid4().hex[:12]}")
    yield daemon
    daemon.clear()


@pytest.fixture
async def backend(daemon: Daemon) -> AsyncGenerator[DockerBackend]:
    backend = DockerBackend(daemon.namespace, HOST)
    yield backend
    await backend.close()
