"""Long tool results, stored whole: the model sees the beginning and a reference, and reads on with `fetch_result`.

A reference is valid only within its execution, so a manipulated model cannot read another run's results.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from holdfast.core.base.bounds import TOOL_RESULT_BYTES_MAX, TOOL_RESULT_CHARS_MAX
from holdfast.core.base.errors import HoldfastError, InvalidArguments, InvalidInput, ObjectMissing
from holdfast.core.base.safe_text import clamped, clamped_json, json_size
from holdfast.core.base.truncation import FETCH_TOOL, Reference
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tools import AnyTool, tool

if TYPE_CHECKING:
    from holdfast.storage.parts import EncodedParts

RESULT_KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most that is stored of one tool result, in UTF-8 bytes; the model sees TOOL_RESULT_CHARS_MAX of it at once."""

RESULT_KEEPING_SECONDS_MAX: Final = 15.0
"""How long storing a result may take; after that the model is told that it was not kept."""

FETCHED_BYTES_MAX: Final = 40_000
"""The most that one `fetch_result` reads, in UTF-8 bytes; it fits a result together with its last line."""

_REF: Final = re.compile(r"[0-9a-f]{24}")
"""A reference of `EncodedParts`: short enough to copy, and it verifies that the content is what the tool returned."""

_SAFE: Final = re.compile(r"[0-9A-Za-z-]{1,64}")

FETCHED_BYTES_MIN: Final = 16
"""The least that is read at once, so that it holds a whole character."""

MARGIN_SECONDS: Final = 2.0
"""How much of a call's time must remain after its result is stored; less for a call with little time left."""

CONTINUES: Final = 0b10 << 6
"""The upper two bits of a UTF-8 byte that is not the first of its character."""

CAUSE_CHARS_MAX: Final = 300


class ResultStore:
    """The long results of all executions, in one store."""

    def __init__(self, parts: EncodedParts) -> None:
        self._parts = parts

    async def bounded(self, text: str, context: ToolContext, seconds_max: float) -> str:
        """Return what the model sees of a result; a longer result is stored, up to RESULT_KEPT_BYTES_MAX.

        Never raises, and ends within `seconds_max`, because the call has had its effect. If the result could not be
        stored, the model is told so.
        """
        if _is_whole(text):
            return text
        try:
            async with asyncio.timeout(_write_seconds_max(seconds_max)):
                reference = await self._reference(text, context.execution_id)
        except TimeoutError:
            return _cut_off(text, "the storage took too long")
        except Exception as error:  # noqa: BLE001  # the call must not be repeated for any storage error
            return _cut_off(text, str(error) if isinstance(error, HoldfastError) else type(error).__name__)
        return reference.shown(text, TOOL_RESULT_BYTES_MAX, TOOL_RESULT_CHARS_MAX)

    async def read(self, execution_id: str, ref: str, offset: int, limit: int) -> str:
        """Return the part of a stored result from byte `offset`, and the offset at which to read on.

        Raises InvalidArguments for an unknown reference or another execution's, and for an offset beyond the end;
        StorageFailed.
        """
        if _REF.fullmatch(ref) is None:
            raise InvalidArguments(f"{ref[:80]!r} is no reference; copy it from the last line of a result that was cut")
        if offset < 0 or limit < 1:
            raise InvalidArguments(f"offset is {offset} and limit {limit}; at least 0 and 1 are needed")
        try:
            data, total = await self._parts.read_range(
                results_folder(execution_id),
                ref,
                offset,
                offset + max(FETCHED_BYTES_MIN, min(limit, FETCHED_BYTES_MAX)),
            )
        except ObjectMissing:
            raise InvalidArguments(f"this run has kept no result {ref}; results of other runs cannot be read") from None
        if offset >= total:
            raise InvalidArguments(f"the result {ref} has {total:,} bytes; read from an offset below that")
        start, text = _whole_characters(data, offset)
        if start + len(text.encode()) >= total and _is_whole(text):
            return text
        return Reference(ref, f"{total:,}", start).shown(text, TOOL_RESULT_BYTES_MAX, TOOL_RESULT_CHARS_MAX)

    async def whole(self, execution_id: str, ref: str) -> str:
        """Return all that is stored of a result, up to RESULT_KEPT_BYTES_MAX; `json.loads` reads one that is JSON.

        `ref` is the call's `ToolExecution.reference`. Raises ObjectMissing for a reference that the execution has not
        made, and StorageFailed.
        """
        if _REF.fullmatch(ref) is None:
            raise InvalidInput(f"{ref[:80]!r} is no reference; take a call's `reference`")
        data, _ = await self._parts.read_range(results_folder(execution_id), ref, 0, RESULT_KEPT_BYTES_MAX)
        return data.decode()

    def tool(self) -> AnyTool:
        """Return the tool `fetch_result`, which reads on in a result of the calling run."""

        @tool(name="fetch", idempotent=True)
        async def made(  # noqa: D417  # the context is hidden from the model
            ref: str, context: ToolContext, offset: int = 0, limit: int = FETCHED_BYTES_MAX
        ) -> str:
            """Read on in a result of an earlier call that was too long to be shown whole.

            Args:
                ref: the reference in the last line of the result that was cut.
                offset: the byte to begin at, as that line says it; 0 is the beginning.
                limit: how many bytes to read at the most.
            """
            return await self.read(context.execution_id, ref, offset, limit)

        # the name is reserved: no other tool can have it
        schema = made.schema.model_copy(update={"name": FETCH_TOOL})
        return replace(made, schema=schema, traits=made.traits.model_copy(update={"name": FETCH_TOOL}))

    async def _reference(self, text: str, execution_id: str) -> Reference:
        data = await asyncio.to_thread(text.encode)
        content = data
        if len(data) > RESULT_KEPT_BYTES_MAX:
            content = data[:RESULT_KEPT_BYTES_MAX].decode(errors="ignore").encode()
        ref = await self._parts.write(results_folder(execution_id), content)
        beyond = "" if content is data else f" that are kept (the result had {len(data):,})"
        return Reference(ref, f"{len(content):,}{beyond}")


def _write_seconds_max(left: float) -> float:
    """Return how long storing a result may take if its call has `left` seconds left."""
    return min(left - min(MARGIN_SECONDS, left / 4), RESULT_KEEPING_SECONDS_MAX)


def results_folder(execution_id: str) -> str:
    """Return the folder of the store that has an execution's long results."""
    safe = execution_id if _SAFE.fullmatch(execution_id) else sha256(execution_id.encode()).hexdigest()
    return f"results/{safe}"


def _is_whole(text: str) -> bool:
    """Return whether a model sees all of `text` as a result."""
    return len(text) <= TOOL_RESULT_CHARS_MAX and json_size(text) <= TOOL_RESULT_BYTES_MAX


def _cut_off(text: str, why: str) -> str:
    """Return what the model sees of a result whose rest was not stored."""
    note = f"\n[the rest was not kept: {' '.join(clamped(why, CAUSE_CHARS_MAX).split())}]"
    return clamped_json(text, TOOL_RESULT_BYTES_MAX - json_size(note), TOOL_RESULT_CHARS_MAX - len(note)) + note


def _whole_characters(data: bytes, offset: int) -> tuple[int, str]:
    """Return the offset of the first whole character in `data`, and the text of all whole characters."""
    skipped = 0
    while skipped < min(3, len(data)) and data[skipped] & (0b11 << 6) == CONTINUES:
        skipped += 1
    return offset + skipped, data[skipped:].decode(errors="ignore")
