"""`ModelTranscript`: tracks what the model was sent, so that each model call's input holds only what is new."""

from __future__ import annotations

from holdfast.core.agent.context_view import ContextView
from holdfast.core.agent.state import AgentState, facts_of
from holdfast.core.base import bounds
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import DEFAULT_SECTION
from holdfast.core.wire.contracts import InferenceInput, TranscriptPage, TranscriptRequest
from holdfast.core.wire.paging import fitting
from holdfast.core.wire.transcript_digest import TranscriptMark, TranscriptPrefix, advanced, root


class ModelTranscript:
    """The transcript as the model sees it: `opening`, then the view of the conversation by its policy."""

    def __init__(
        self,
        opening: TranscriptPrefix,
        mark: TranscriptMark | None = None,
        state: AgentState | None = None,
        *,
        before: int = 0,
        continues: str | None = None,
    ) -> None:
        self.opening = opening
        # the view of `mark`, or of the call whose tools run: before another one older messages may be summarised
        known = mark is not None or _is_answered(state)
        self._view = self._view_of(state) if state is not None and known else None
        self._mark = mark
        """How much of this view the model was sent; none before its first call."""
        self._before = before
        """How many messages of the default section the earlier execution `continues` was sent."""
        self._continues = continues
        self._resending = state is not None and self._mark is None

    def begin_anew(self, opening: TranscriptPrefix) -> None:
        """Send everything again after another `opening`: nothing continues the earlier transcript."""
        self.opening = opening
        self._view, self._mark, self._resending = None, None, True
        self._before, self._continues = 0, None

    def inference_input(self, state: AgentState, max_output_tokens: int | None) -> InferenceInput:
        """Return what is new since the last model call; the activity fetches what does not fit.

        A view that does not continue the last one (older messages were summarised) is sent from its beginning again.
        """
        first = self._mark is None
        base = self._advance(state)
        messages = self._shown.messages
        if first:
            base = advanced(base, (messages[index] for index in range(self._shared_length(state))))
        new = [messages[index] for index in range(base.length, len(messages))]
        target = advanced(base, new)
        # older messages are in the history already: the worker fetches them
        delta = fitting(new, bounds.RESENT_BYTES_MAX if self._resending else bounds.DELTA_BYTES_MAX)
        self._mark, self._resending = target, False
        compiled = self.opening.prompts or self.opening.definition.context.compiler is not None
        return InferenceInput(
            opening=self.opening if first and base.length == 0 else None,
            base=base,
            delta=delta,
            target=target,
            max_output_tokens=max_output_tokens,
            metadata=state.metadata if compiled else None,
            run=facts_of(state, self.opening.definition.name) if compiled else None,
            continues=self._continues if first else None,
        )

    def _shared_length(self, state: AgentState) -> int:
        """Return how many of the messages shown now the earlier execution saw, too.

        They need not travel again. A wrong number costs one fetched page.
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
        shown = self._view.messages if self._view else ()
        stop = min(request.stop, len(shown))
        selected = (shown[index] for index in range(request.start, stop))
        messages = fitting(selected, bounds.PAGE_BYTES_MAX, at_least=1)
        return TranscriptPage(opening=self.opening, start=request.start, messages=messages)

    def mark_at(self, state: AgentState) -> TranscriptMark | None:
        """Return how much of the view of `state` the model was sent; none if the view starts over."""
        return self._mark if self._view is not None and self._view.advanced(state.store).continues else None

    @property
    def _shown(self) -> ContextView:
        if self._view is None:
            raise ValueError("the model has not been asked yet")
        return self._view

    def _advance(self, state: AgentState) -> TranscriptMark:
        """Update the view; return the mark at which new messages begin."""
        self._view = self._view.advanced(state.store) if self._view is not None else self._view_of(state)
        return (self._mark if self._view.continues else None) or root(self.opening)

    def _view_of(self, state: AgentState) -> ContextView:
        return ContextView.of(state.store, self.opening.definition.context, state.running.execution_id)


def _is_answered(state: AgentState | None) -> bool:
    """Return whether a step is under way whose tools may ask what the model was sent, before its next call here."""
    step = state.execution.current_step if state is not None and state.execution is not None else None
    return step is not None and step.inference_response is not None
