"""What is typed without a prompt, byte by byte, on a real terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
import tty
from collections.abc import Generator

import pytest

from holdfast.cli.screens.terminal_input import Keyboard

KEYS_SECONDS_MAX = 30


@pytest.fixture
def fingers(monkeypatch: pytest.MonkeyPatch) -> Generator[int]:
    """What is written there is typed at standard input."""
    ours, terminal = pty.openpty()
    tty.setraw(terminal)
    with open(terminal, closefd=False) as stdin, open(terminal, "w", closefd=False) as stdout:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        yield ours
    os.close(ours)
    os.close(terminal)


async def typed(keyboard: Keyboard, fingers: int, keys: bytes) -> tuple[list[str], str]:
    with keyboard.listening() as pressed:
        os.write(fingers, keys)
        async with asyncio.timeout(KEYS_SECONDS_MAX):
            await pressed.wait()
    return keyboard.typed()


@pytest.mark.parametrize(
    ("keys", "lines", "draft"),
    [
        (b"yes", [], "yes"),
        (b"yes\n", ["yes"], ""),
        (b"one\ntwo\nth", ["one", "two"], "th"),
        (b"\n", [""], ""),
        ("a\u2028b\n".encode(), ["a\u2028b"], ""),
        (b"\x1b[A", [], ""),
    ],
)
async def test_keys_are_whole_lines_and_the_beginning_of_the_next(
    fingers: int, keys: bytes, lines: list[str], draft: str
) -> None:
    assert await typed(Keyboard(), fingers, keys) == (lines, draft)


async def test_a_character_that_comes_in_pieces_is_one(fingers: int) -> None:
    keyboard = Keyboard()
    first, second = "\u00e9".encode()[:1], "\u00e9".encode()[1:]
    assert await typed(keyboard, fingers, first) == ([], "")
    assert await typed(keyboard, fingers, second) == ([], "\u00e9")
