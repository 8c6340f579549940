"""What the model has been told in one run, kept so that each model call's input holds only what is new."""

from __future__ import annotations

from holdfast.core.agent.context_view import ContextView
from holdfast.core.agent.state import AgentState
from holdfast.core.base import bounds
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import DEFAULT_SECTION
from holdfast.core.wire.contracts import InferenceInput, TranscriptPage, TranscriptRequest
from holdfast.core.wire.paging import fitting
from holdfast.core.wire.transcript_digest import TranscriptMark, TranscriptPrefix, advanced, root


class ModelTranscript:
    """The transcript as the model sees it: `opening`, then the view of the conversation that its policy gives."""

    def __init__(
        self,
        opening: TranscriptPrefix,
        told: TranscriptMark | None = None,
        state: AgentState | None = None,
        *,
        before: int = 0,
        continues: str | None = None,
    ) -> None:
        self.opening = opening
        # the view that `told` is about: older messages may be summarised before the first call of this run
        self._view = self._view_of(state) if told is not None and state is not None else None
        self._told = told
        """How far the model has been told this view; none before its first call."""
        self._before = before
        """So many messages of the default section stood there before the execution `continues`: it was told those."""
        self._continues = continues
        self._retelling = state is not None and self._told is None

    def begin_anew(self, opening: TranscriptPrefix) -> None:
        """Tell the model everything once more after another `opening`: nothing of it continues what it was told."""
        self.opening = opening
        self._view, self._told, self._retelling = None, None, True
        self._before, self._continues = 0, None

    def inference_input(self, state: AgentState, max_output_tokens: int | None) -> InferenceInput:
        """Return what is new since the last model call; what does not fit is left for the activity to fetch.

        A view that does not continue the last one (older messages were summarised) is told from its beginning again.
        """
        first = self._told is None
        base = self._advance(state)
        said = self._shown.messages
        if first:
            base = advanced(base, (said[index] for index in range(self._told_before(state))))
        new = [said[index] for index in range(base.length, len(said))]
        target = advanced(base, new)
        # what was said long ago is in the history already: the worker asks for it
        delta = fitting(new, bounds.RETOLD_BYTES_MAX if self._retelling else bounds.DELTA_BYTES_MAX)
        self._told, self._retelling = target, False
        return InferenceInput(
            opening=self.opening if first and base.length == 0 else None,
            base=base,
            delta=delta,
            target=target,
            max_output_tokens=max_output_tokens,
            metadata=state.metadata if self.opening.definition.context.compiler else None,
            continues=self._continues if first else None,
        )

    def _told_before(self, state: AgentState) -> int:
        """Return how many of the messages shown now an earlier execution was shown, too.

        They need not travel again. What a wrong number costs is a page that is fetched.
        """
        if self._before == 0:
            return 0
        store = state.store
        section = replace(store.section(DEFAULT_SECTION), messages=store.messages.before(self._before))
        earlier = self._view_of(state.with_store(store.with_section(section))).messages
        shown = self._shown.messages
        same = len(earlier) <= len(shown) and all(shown[at] == message for at, message in enumerate(earlier))
        return len(earlier) if same else 0

    def page(self, request: TranscriptRequest) -> TranscriptPage:
        """Return a run of messages as the model sees them."""
        said = self._view.messages if self._view else ()
        stop = min(request.stop, len(said))
        asked = (said[index] for index in range(request.start, stop))
        messages = fitting(asked, bounds.PAGE_BYTES_MAX, at_least=1)
        return TranscriptPage(opening=self.opening, start=request.start, messages=messages)

    def told(self, state: AgentState) -> TranscriptMark | None:
        """Return how far the model has been told the view as it stands in `state`; none if it has begun anew."""
        return self._told if self._view is not None and self._view.advanced(state.store).continues else None

    @property
    def _shown(self) -> ContextView:
        if self._view is None:
            raise ValueError("the model has not been asked yet")
        return self._view

    def _advance(self, state: AgentState) -> TranscriptMark:
        """Bring the view up to date; return where what is new begins."""
        self._view = self._view.advanced(state.store) if self._view is not None else self._view_of(state)
        return (self._told if self._view.continues else None) or root(self.opening)

    def _view_of(self, state: AgentState) -> ContextView:
        return ContextView.of(state.store, self.opening.definition.context, state.running.execution_id)
