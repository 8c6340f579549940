"""The conversations that this worker used recently, so that a model call's input holds only the new messages.

What is no longer cached is read from its workflow. The digest decides what is right, never the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.core.base.append_list import AppendList
from holdfast.core.base.errors import HoldfastError
from holdfast.core.base.frozen import canonical
from holdfast.core.conversation.messages import Message
from holdfast.core.wire.contracts import InferenceInput, TranscriptPage, TranscriptRequest
from holdfast.core.wire.transcript_digest import TranscriptMark, TranscriptPrefix, advanced, root, size

CACHE_BYTES_MAX: Final = 256 * 1024 * 1024
"""The size of one worker's cache, in payload bytes; the least recently used conversation goes first."""

MESSAGE_OVERHEAD_BYTES: Final = 1_000
RUN_OVERHEAD_BYTES: Final = 4_000
"""Roughly what Python objects take for a message and a run besides their text, in bytes."""

FetchPage = Callable[[TranscriptRequest], Awaitable[TranscriptPage]]


class TranscriptMismatch(HoldfastError):
    """The workflow's transcript does not match the digest that the workflow itself announced."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation with a mark at every place: `marks[n]` stands before message n."""

    opening: TranscriptPrefix
    messages: AppendList[Message]
    marks: AppendList[TranscriptMark]
    sizes: AppendList[int]
    """`sizes[n]` is roughly how many bytes the opening and the first n messages take in memory."""

    @classmethod
    def of(cls, opening: TranscriptPrefix) -> Transcript:
        """Return the conversation without messages."""
        return cls(
            opening,
            AppendList(),
            AppendList((root(opening),)),
            AppendList((len(canonical(opening)) + RUN_OVERHEAD_BYTES,)),
        )

    @property
    def bytes(self) -> int:
        """Roughly how many bytes all of it takes in memory."""
        return self.sizes[-1]

    def until(self, mark: TranscriptMark) -> Transcript | None:
        """Return this conversation as it was at `mark`; None if it never had that mark."""
        if mark.length >= len(self.marks) or self.marks[mark.length] != mark:
            return None
        places = mark.length + 1
        return Transcript(
            self.opening, self.messages.before(mark.length), self.marks.before(places), self.sizes.before(places)
        )

    def extended(self, messages: Sequence[Message]) -> Transcript:
        """Return this conversation with `messages` appended."""
        marks, sizes = self.marks, self.sizes
        for message in messages:
            marks = marks.append(advanced(marks[-1], (message,)))
            sizes = sizes.append(sizes[-1] + size(message) + MESSAGE_OVERHEAD_BYTES)
        return Transcript(self.opening, self.messages.extend(messages), marks, sizes)


class TranscriptCache:
    """The latest transcript of each execution, within a bound on bytes. For one event loop."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._transcripts: OrderedDict[str, Transcript] = OrderedDict()

    async def transcript(self, execution_id: str, call: InferenceInput, fetch: FetchPage) -> Transcript:
        """Return the conversation at `call.target`, from the cache and the delta if they suffice.

        Raises TranscriptMismatch if even the workflow's transcript does not match the target.
        """
        base = Transcript.of(call.opening) if call.opening else self._cached(execution_id, call)
        # a rewind or another worker's attempt may have left a conversation that continues differently
        prefix = base and base.until(call.base)
        transcript = prefix and prefix.extended(call.delta)
        # the digest decides, not the length: a stale conversation can have as many messages
        if transcript is None or transcript.marks[-1] != call.target:
            transcript = await _completed(transcript, call.target, fetch)
        self._keep(execution_id, transcript)
        if call.continues is not None:
            self._drop(call.continues)  # its conversation is a prefix of the one just cached
        return transcript

    def _cached(self, execution_id: str, call: InferenceInput) -> Transcript | None:
        """Return the cached conversation of this execution, or of the one before it in its session."""
        transcript = self._transcripts.get(execution_id)
        return transcript if transcript or call.continues is None else self._transcripts.get(call.continues)

    def _keep(self, execution_id: str, transcript: Transcript) -> None:
        replaced = self._transcripts.pop(execution_id, None)
        self._bytes += transcript.bytes - (replaced.bytes if replaced else 0)
        self._transcripts[execution_id] = transcript
        # the least recently used first; even the one just added may be too large
        while self._bytes > self._bytes_max and self._transcripts:
            _, dropped = self._transcripts.popitem(last=False)
            self._bytes -= dropped.bytes

    def _drop(self, execution_id: str) -> None:
        dropped = self._transcripts.pop(execution_id, None)
        self._bytes -= dropped.bytes if dropped else 0


async def _completed(start: Transcript | None, target: TranscriptMark, fetch: FetchPage) -> Transcript:
    """Read what `start` lacks; if the digest does not match, read everything again from the beginning."""
    if start is not None and len(start.messages) < target.length:
        continued = await _read_on(start, target.length, fetch)
        if continued.marks[-1] == target:
            return continued
    first = await fetch(TranscriptRequest(start=0, stop=target.length))
    whole = await _read_on(Transcript.of(first.opening).extended(first.messages), target.length, fetch)
    if whole.marks[-1] != target:
        raise TranscriptMismatch(f"the transcript read from the workflow does not have the digest {target.digest}")
    return whole


async def _read_on(transcript: Transcript, length: int, fetch: FetchPage) -> Transcript:
    while len(transcript.messages) < length:
        # a query's answer may have 2 MB at most, so a long conversation comes in pages
        page = await fetch(TranscriptRequest(start=len(transcript.messages), stop=length))
        if not page.messages:
            raise TranscriptMismatch(f"the workflow's transcript ends at {len(transcript.messages)} of {length}")
        transcript = transcript.extended(page.messages)
    return transcript
