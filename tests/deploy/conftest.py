"""Builds the images and starts the deployment of compose.yaml once for each module of this folder."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.running import ROOT, Stack, answers, run
from tests.telemetry.scraping import free_port

PROJECT = Path(__file__).parent / "project"
DEPLOY = ROOT / "deploy"
WITHOUT_STAND_IN = "grafana/"

BASE_OFFICIAL = "python:3.13-slim-trixie"
BASE_STAND_IN = f"holdfast-stand-in/{BASE_OFFICIAL}"
KEY = "stand-in-key"  # what the fake model accepts, see compose.model.yaml
AWS_KEYS = "AWS_ACCESS_KEY_ID='an-id'\nAWS_SECRET_ACCESS_KEY='a/se cret+'\n"

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


@pytest.fixture(scope="session")
def versions() -> dict[str, str]:
    """The tags of the images that compose.yaml names: the official ones where they are, else the stand-ins."""
    text = (DEPLOY / "compose.yaml").read_text()
    named = dict(re.findall(r"\$\{(\w+_VERSION):-([\w.-]+)\}", text))
    written = dict(re.findall(r"^(\w+)=(\S+)$", (DEPLOY / "stand-in" / "versions.env").read_text(), re.MULTILINE))
    for chosen in (named, {**named, **written}):
        images = [f"{name}:{chosen[version]}" for name, version in re.findall(r"image: (\S+):\$\{(\w+):-", text)]
        wanted = [each for each in images if not each.startswith(WITHOUT_STAND_IN)]
        if all(answers("docker", "image", "inspect", each) for each in wanted):
            return chosen
    pytest.skip(
        f"{', '.join(wanted)} are not all here; pull the official images, or run deploy/stand-in/build-images.sh"
    )


@pytest.fixture(scope="module")
def stack(
    image: str,
    base_image: str,
    compose: tuple[str, ...],
    versions: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stack]:
    """The deployment, started; its logs are printed when it does not start, and it is removed at the end."""
    folder = tmp_path_factory.mktemp("secrets")
    for name, content in (("openai_api_key", KEY), ("postgres_password", secrets.token_hex(32))):
        (folder / name).write_text(f"{content}\n")
        (folder / name).chmod(0o444)
    credentials = tmp_path_factory.mktemp("credentials")
    credentials.chmod(0o755)
    (credentials / "aws.env").write_text(AWS_KEYS)
    (credentials / "aws.env").chmod(0o444)
    env = {
        **versions,
        **{f"{name}_PORT": str(free_port()) for name in ("TEMPORAL", "TEMPORAL_UI", "PROMETHEUS", "GRAFANA")},
        "HOLDFAST_IMAGE": image,
        "HOLDFAST_PROJECT": str(PROJECT),
        "PYTHON_IMAGE": base_image,
        "SECRETS": str(folder),
        "CREDENTIALS": str(credentials),
    }
    stack = Stack(command=compose, env=env, ledger_copy=tmp_path_factory.mktemp("ledger") / "ledger.jsonl")
    try:
        stack.compose("build", "model", seconds=BUILD_SECONDS)
        stack.compose("up", "--detach", "--no-build", seconds=START_SECONDS)
        yield stack
    finally:
        try:
            print(stack.compose("logs", "--no-color"))  # noqa: T201 - pytest shows it with a failure
        finally:
            stack.compose("--profile", "watch", "down", "--volumes", "--timeout", "5")
