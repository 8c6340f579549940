"""What is typed without a prompt, byte by byte, on a real terminal."""

from __future__ import annotations

import asyncio
import os

import pytest

from holdfast.cli.screens.terminal_input import Keyboard, LeaveRequest

KEYS_SECONDS_MAX = 30


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


async def test_ctrl_c_that_was_pressed_just_before_the_prompt_went_is_heard(fingers: int) -> None:
    keyboard = Keyboard()
    with pytest.raises(LeaveRequest) as told:
        await typed(keyboard, fingers, b"tw\x03")
    assert told.value.interrupted
    assert await typed(keyboard, fingers, b"two\n") == (["two"], ""), "what was typed before it is dropped"
