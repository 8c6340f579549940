"""Builds the images and starts the stand-in deployment once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.running import Stack, answers, run

PROJECT = Path(__file__).parent / "project"

BASE_OFFICIAL = "python:3.13-slim-trixie"
BASE_STAND_IN = f"holdfast-stand-in/{BASE_OFFICIAL}"
KEY = "stand-in-key"  # what the fake model accepts, see compose.dev-server.yaml

BUILD_SECONDS = 900
START_SECONDS = 300


@pytest.fixture(scope="session")
def base_image() -> str:
    """The Python base to build on: the official one where it is, else the stand-in."""
    if not answers("docker", "version", "--format", "{{.Server.Version}}"):
        pytest.skip("no docker daemon answers")
    for image in (BASE_OFFICIAL, BASE_STAND_IN):
        if answers("docker", "image", "inspect", image):
            return image
    pytest.skip(f"the image {BASE_OFFICIAL} is not here; pull it, or run deploy/stand-in/build-base.sh")


@pytest.fixture(scope="session")
def image(base_image: str) -> str:
    """The worker's image, built from the checkout."""
    tag = "holdfast:under-test"
    build = ("docker", "build", "--file", "deploy/Dockerfile", "--build-arg", f"PYTHON_IMAGE={base_image}")
    run(*build, "--tag", tag, ".", seconds=BUILD_SECONDS)
    return tag


@pytest.fixture(scope="session")
def compose() -> tuple[str, ...]:
    """The compose program of this machine: version 2, else 1."""
    for command in (("docker", "compose"), ("docker-compose",)):
        if answers(*command, "version"):
            return command
    pytest.skip("docker compose is not installed")


@pytest.fixture(scope="module")
def stack(
    image: str, base_image: str, compose: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """The stand-in deployment, started; its logs are printed when it does not start, and it is removed at the end."""
    secrets = tmp_path_factory.mktemp("secrets")
    (secrets / "openai_api_key").write_text(f"{KEY}\n")
    (secrets / "openai_api_key").chmod(0o444)
    env = {
        "HOLDFAST_IMAGE": image,
        "HOLDFAST_PROJECT": str(PROJECT),
        "PYTHON_IMAGE": base_image,
        "SECRETS": str(secrets),
    }
    stack = Stack(command=compose, env=env, ledger_copy=tmp_path_factory.mktemp("ledger") / "ledger.jsonl")
    try:
        stack.compose("build", "temporal", "model", seconds=BUILD_SECONDS)
        stack.compose("up", "--detach", "--no-build", seconds=START_SECONDS)
        yield stack
    finally:
        try:
            print(stack.compose("logs", "--no-color"))  # noqa: T201 - pytest shows it with a failure
        finally:
            stack.compose("down", "--volumes", "--timeout", "5")
