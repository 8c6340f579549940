"""`AppendList`: an immutable sequence that grows at its end, whose versions share one list. Knows nothing of agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import eq
from typing import Any, Generic, TypeVar, cast, get_args, overload

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

T = TypeVar("T")


class AppendList(Sequence[T], Generic[T]):
    """A sequence that is never changed, only continued: `append` returns a new one in O(1).

    All versions of one history share a list and differ in their length alone, so that keeping the list as it
    was before each step costs nothing. Appending to a version that is not the newest copies (a fork).
    Not safe for appending from two threads at once.
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: list[T] = list(items)
        self._length = len(self._items)

    @classmethod
    def _view(cls, items: list[T], length: int) -> AppendList[T]:
        log = cls.__new__(cls)
        log._items = items  # noqa: SLF001  # our own class
        log._length = length  # noqa: SLF001  # the same
        return log

    def append(self, item: T) -> AppendList[T]:
        """Return this log with `item` after its last one."""
        backing = self._continuable()
        backing.append(item)
        return self._view(backing, len(backing))

    def extend(self, items: Iterable[T]) -> AppendList[T]:
        """Return this log continued by `items`, in order."""
        backing = self._continuable()
        backing.extend(items)
        return self._view(backing, len(backing))

    def _continuable(self) -> list[T]:
        """Return the list that a longer version may append to: the shared one for the newest version, else a copy."""
        return self._items if len(self._items) == self._length else self._items[: self._length]

    def before(self, length: int) -> AppendList[T]:
        """Return the log as it stood when it had `length` items (at most its own length)."""
        return self._view(self._items, max(0, min(length, self._length)))

    def continues(self, earlier: AppendList[T]) -> bool:
        """Return whether this log is `earlier` with none or more items added, as far as O(1) can tell.

        True is certain; logs that merely hold equal items give False.
        """
        return self._items is earlier._items and len(self) >= len(earlier)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)  # never looks at what later versions added

    def __reversed__(self) -> Iterator[T]:
        return (self._items[index] for index in range(self._length - 1, -1, -1))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return tuple(self._items[at] for at in range(*index.indices(self._length)))
        length = self._length
        if 0 <= index < length:
            return self._items[index]
        if -length <= index < 0:
            return self._items[index + length]  # from this version's end, not the list's
        raise IndexError(f"index {index} is outside a log of {length}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AppendList):
            return NotImplemented
        rest = cast("AppendList[object]", other)
        if self._length != rest._length:
            return False
        return self._items is rest._items or all(map(eq, self, rest))

    __hash__ = None  # type: ignore[assignment]  # like a list: equality looks at the items, which may not hash

    def __repr__(self) -> str:
        return f"AppendList({list(self)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401  # pydantic's signature
        """Read from any list; written as a list; an existing log passes through untouched (O(1)).

        JSON has a way of its own: a Python function around the items would have them all made twice, first as dicts.
        """
        (item,) = get_args(source) or (Any,)
        items = core_schema.list_schema(handler.generate_schema(item), fail_fast=True)  # it can be very long

        def read(value: object, validate: core_schema.ValidatorFunctionWrapHandler) -> AppendList[T]:
            if isinstance(value, AppendList):
                return cast("AppendList[T]", value)
            return wrap(cast("list[T]", validate(value)))

        def wrap(fresh: list[T]) -> AppendList[T]:
            return cls._view(fresh, len(fresh))

        def write(log: AppendList[T]) -> list[T]:
            return log._items[: log._length]

        return core_schema.json_or_python_schema(
            json_schema=core_schema.no_info_after_validator_function(wrap, items),
            python_schema=core_schema.no_info_wrap_validator_function(read, items),
            serialization=core_schema.plain_serializer_function_ser_schema(write, return_schema=items),
        )
