"""`AppendList`: versions of one history share a list and never disturb each other."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from holdfast.core.base.append_list import AppendList

ADAPTER = TypeAdapter(AppendList[int])


class Growth(BaseModel):
    """One operation on one of the versions there are."""

    version: int
    items: list[int]
    before: int | None


growths = st.lists(
    st.builds(
        Growth,
        version=st.integers(0, 100),
        items=st.lists(st.integers(), max_size=3),
        before=st.none() | st.integers(-2, 12),
    ),
    max_size=12,
)


@given(growths)
def test_every_version_stays_as_it_was_however_others_grow(operations: list[Growth]) -> None:
    versions: list[tuple[AppendList[int], tuple[int, ...]]] = [(AppendList(), ())]
    for each in operations:
        log, model = versions[each.version % len(versions)]
        if each.before is not None:
            versions.append((log.before(each.before), model[: max(0, each.before)]))
        else:
            versions.append((log.extend(each.items), (*model, *each.items)))
    for log, model in versions:
        assert tuple(log) == model
        assert len(log) == len(model)
        assert log == AppendList(model)


@given(st.lists(st.integers(), max_size=8), st.slices(8))
def test_a_slice_is_the_slice_of_the_items(items: list[int], cut: slice) -> None:
    longer = AppendList(items).append(99)
    assert longer.before(len(items))[cut] == tuple(items[cut])


@given(st.lists(st.integers(), max_size=5), st.integers(-8, 8))
def test_an_index_means_the_same_as_in_a_list(items: list[int], index: int) -> None:
    shared = AppendList(items)
    shared.append(99)
    if -len(items) <= index < len(items):
        assert shared[index] == items[index]
    else:
        with pytest.raises(IndexError, match=f"outside a log of {len(items)}"):
            shared[index]


def test_appending_to_the_newest_version_shares_its_list() -> None:
    first = AppendList([1])
    second = first.append(2)
    assert second._items is first._items  # pyright: ignore[reportPrivateUsage]  # the very point of a log


def test_appending_to_an_older_version_forks() -> None:
    first = AppendList([1])
    left, right = first.append(2), first.append(3)
    assert (list(first), list(left), list(right)) == ([1], [1, 2], [1, 3])


def test_a_log_knows_which_logs_it_continues() -> None:
    first = AppendList([1])
    left = first.append(2)
    assert left.continues(first)
    assert left.continues(left)
    assert not first.continues(left)
    assert not first.append(3).continues(left), "a fork"
    assert not AppendList([1, 2]).continues(first), "equal items, but nobody knows without looking"


def test_the_list_it_was_made_of_can_change_without_it() -> None:
    source = [1]
    log = AppendList(source)
    source.append(2)
    assert list(log) == [1]


def test_a_log_can_be_continued_by_itself() -> None:
    log = AppendList([1, 2])
    assert list(log.extend(log)) == [1, 2, 1, 2]


def test_an_extension_that_fails_midway_leaves_the_log_usable() -> None:
    def broken() -> Iterator[int]:
        yield 2
        raise RuntimeError

    log = AppendList([1])
    with pytest.raises(RuntimeError):
        log.extend(broken())
    assert list(log) == [1]
    assert list(log.append(3)) == [1, 3]


def test_an_iteration_ends_where_the_log_ended() -> None:
    log = AppendList([1, 2])
    items = iter(log)
    log.append(3)
    assert list(items) == [1, 2]


def test_an_iteration_backwards_begins_where_the_log_ended() -> None:
    log = AppendList([1, 2])
    log.append(3)
    assert list(reversed(log)) == [2, 1]


def test_versions_that_share_a_list_are_compared_without_looking_at_its_items() -> None:
    class Incomparable:
        def __eq__(self, other: object) -> bool:
            raise AssertionError

        def __hash__(self) -> int:
            return 0

    log = AppendList([Incomparable()])
    longer = log.append(Incomparable())
    assert longer.before(1) == log
    assert longer != log


def test_equality_looks_at_the_items_and_at_logs_alone() -> None:
    assert AppendList([1, 2]) == AppendList([1, 2, 3]).before(2)
    assert AppendList([1]) != AppendList([2])
    assert AppendList([1]) != AppendList([1, 1])
    assert AppendList([1]) != [1]


def test_a_log_cannot_be_hashed() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(AppendList([1]))


def test_a_log_shows_its_items() -> None:
    assert repr(AppendList([1, 2, 3]).before(2)) == "AppendList([1, 2])"


def test_a_log_survives_copying_and_pickling() -> None:
    log = AppendList([1, 2, 3]).before(2)
    assert copy.deepcopy(log) == log
    assert pickle.loads(pickle.dumps(log)) == log  # noqa: S301  # our own bytes


@given(st.lists(st.integers()))
def test_a_log_is_read_from_a_list_and_written_as_one(items: list[int]) -> None:
    log = AppendList(items)
    assert ADAPTER.validate_python(items) == log
    assert ADAPTER.dump_python(log) == items
    assert ADAPTER.validate_json(ADAPTER.dump_json(log)) == log


def test_only_the_visible_items_are_written() -> None:
    log = AppendList([1, 2, 3])
    assert ADAPTER.dump_json(log.before(1)) == b"[1]"


def test_a_log_passes_through_validation_untouched() -> None:
    log = AppendList([1])
    assert ADAPTER.validate_python(log) is log


def test_an_item_of_a_wrong_type_is_named_by_its_place() -> None:
    with pytest.raises(ValidationError) as caught:
        ADAPTER.validate_python([1, "two"])
    assert caught.value.errors()[0]["loc"] == (1,)


def test_json_is_read_as_json_also_where_only_json_may_be_a_text() -> None:
    moments = TypeAdapter(AppendList[datetime])
    assert moments.validate_json('["2026-01-01T00:00:00Z"]', strict=True) == AppendList(
        [datetime(2026, 1, 1, tzinfo=UTC)]
    )


def test_only_the_first_bad_item_is_told() -> None:
    with pytest.raises(ValidationError) as caught:
        ADAPTER.validate_json('["a", 1, "b"]')
    assert [error["loc"] for error in caught.value.errors()] == [(0,)]


def test_what_was_read_from_json_grows_like_any_log() -> None:
    log = ADAPTER.validate_json("[1]")
    assert (list(log.append(2)), list(log.append(3)), list(log)) == ([1, 2], [1, 3], [1])
