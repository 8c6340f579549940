"""Several byte strings as one and back: whole, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.base.errors import StateInvalid
from holdfast.core.base.framing import LENGTH_BYTES, framed, frames_of

frames = st.lists(st.binary(max_size=40), max_size=5).map(tuple)


@given(frames)
def test_whatever_was_put_together_comes_apart_as_it_was(parts: tuple[bytes, ...]) -> None:
    assert frames_of(framed(parts)) == parts


@given(frames.filter(bool), st.data())
def test_what_was_cut_off_is_refused_or_ends_with_an_earlier_frame(
    parts: tuple[bytes, ...], data: st.DataObject
) -> None:
    whole = framed(parts)
    cut = data.draw(st.integers(0, len(whole) - 1))
    borders = {len(framed(parts[:count])): parts[:count] for count in range(len(parts))}
    if cut in borders:
        assert frames_of(whole[:cut]) == borders[cut]
    else:
        with pytest.raises(StateInvalid, match=f"of {cut}"):
            frames_of(whole[:cut])


def test_a_length_beyond_everything_is_refused_without_making_room_for_it() -> None:
    with pytest.raises(StateInvalid, match="store was changed"):
        frames_of(b"\xff" * LENGTH_BYTES + b"little")
