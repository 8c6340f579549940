"""One frame of a `LiveView`: the most important lines, as many as the terminal has. Asks and prints nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from typing import Final

from rich.console import Console
from rich.text import Text

from holdfast.cli.screens.output import COLOURS, approve_command, arguments_line, short, tokens
from holdfast.cli.screens.progress_bars import LABEL_CHARS, Glyphs, share_line, spinner
from holdfast.client.watch_events import retry_line
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.safe_text import printable
from holdfast.core.conversation.amounts import counted, duration, moment, token_count
from holdfast.core.conversation.decision_text import decision_text
from holdfast.core.conversation.steps import CallStage, Outcome
from holdfast.core.conversation.todos import progress
from holdfast.view.budget_use import tightest
from holdfast.view.live_tree import LiveView
from holdfast.view.run_view import CallView, RunView, StepView

ID_CHARS: Final = 8
"""How much of an id tells a run from its subagents'."""

WAITING_SHOWN: Final = 3
"""How many calls that wait are shown with the command that decides about them."""

NOTICE_CHARS_MAX: Final = 300
"""How much is told of what is not as it should be."""

BAR_CHARS: Final = 20
BAR_CHARS_MIN: Final = 6
LINE_CHARS_MIN: Final = 8
"""So wide a line of the answer is at least, however deep it stands and however narrow the terminal is."""

LOW_LINES: Final = 14
"""In a terminal lower than this the one limit is shown of which most is used."""

MANY_RUNS: Final = 40
"""With more runs than this, the picture begins with less of each."""

OUTCOMES: Final[Mapping[str, tuple[str, str]]] = {
    Outcome.SUCCEEDED: ("succeeded", "green"),
    Outcome.FAILED: ("failed", "red"),
    Outcome.BLOCKED: ("refused", "yellow"),
    Outcome.DENIED: ("refused", "yellow"),
    Outcome.CANCELLED: ("refused", "yellow"),
}

WAITS: Final = {CallStage.APPROVAL: " waits for approval", CallStage.INPUT: " waits for an answer"}
"""What is said of a call that waits for a person."""


TODO_STYLES: Final = {"pending": "", "in_progress": "cyan", "done": "dim"}


@dataclass(frozen=True, slots=True)
class Detail:
    """How much of a tree is shown: at most so many steps of a run, calls of a step and lines of an answer."""

    steps: int
    calls: int
    lines: int


DETAILS: Final = (
    Detail(50, 64, 12),
    Detail(20, 32, 8),
    Detail(8, 12, 6),
    Detail(4, 8, 5),
    Detail(3, 6, 4),
    Detail(2, 4, 3),
    Detail(1, 3, 2),
    Detail(1, 2, 1),
    Detail(1, 1, 0),
)
"""From much to little: the first that fits the terminal is shown."""


@dataclass(frozen=True, slots=True)
class Node:
    """A line of the tree, those that go on from it, and what stands below it."""

    label: Text
    below: tuple[Node, ...] = ()
    more: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True)
class Viewport:
    """How a view is drawn: the moment, the size of the terminal in signs, and what the terminal can show."""

    now: datetime
    width: int
    height: int
    glyphs: Glyphs

    def frame(self, view: LiveView, notice: str = "") -> list[Text]:
        """Return the lines of one picture, at most `height`; `notice` is what is not as it should be."""
        top = [*self._notice(notice), *self._earlier(view), *self._budget(view), *self._waiting(view)]
        available = self.height - len(top)
        if available < 1:
            return [self._cut(line) for line in top[: self.height]]
        return [self._cut(line) for line in (*top, *self._tree(view, available))]

    def last(self, view: LiveView) -> list[Text]:
        """Return the picture that stays when the run has ended: the tree, without what only counts while it runs."""
        return [self._cut(line) for line in self._tree(view, self.height)]

    # --- above the tree

    def _notice(self, notice: str) -> Iterator[Text]:
        if notice:
            yield from _folded(f"! {printable(notice[:NOTICE_CHARS_MAX])}", self.width, "bold red")

    def _earlier(self, view: LiveView) -> Iterator[Text]:
        """Give a line for each of the latest runs of a session before the one that is shown whole."""
        for id_ in view.roots[-4:-1]:
            if (run := view.run(id_)) is not None:
                yield self._run(run)
        if view.root is None:
            yield Text(f"{self._spin()} nothing has happened yet", "dim")

    def _budget(self, view: LiveView) -> Iterator[Text]:
        root = view.root
        if root is None:
            return
        width = max(BAR_CHARS_MIN, min(BAR_CHARS, self.width - LABEL_CHARS - 18))
        shares = root.shares(self.now)
        for share in shares if self.height >= LOW_LINES else filter(None, [tightest(shares)]):
            yield share_line(share, width, self.glyphs, with_subagents=root.steps_used != root.step_count)

    def _waiting(self, view: LiveView) -> Iterator[Text]:
        """Give what is to be decided, folded instead of cut: the command is there to be copied."""
        waiting = view.waiting
        for run, call in waiting[:WAITING_SHOWN]:
            until = "" if call.expires_at is None else f" until {moment(call.expires_at)}"
            asks = call.outcome == CallStage.INPUT
            ask = f"holdfast answer {run.execution_id} {call.id}"
            wait = f"waits for an answer{until}: {_line(call.progress)}" if asks else f"waits for approval{until}"
            line = f"{self.glyphs.waiting} {call.tool}({_arguments(call)}) {wait}"
            yield from _folded(printable(line), self.width, "yellow")
            command = ask if asks else approve_command(run.execution_id, call.id, call.digest)
            yield from _folded(f"  {command}", self.width, "bold yellow")
        if len(waiting) > WAITING_SHOWN:
            line = f"  {self.glyphs.more} and {len(waiting) - WAITING_SHOWN} more: holdfast waiting"
            yield Text(line, "yellow")

    # --- the tree

    def _tree(self, view: LiveView, available: int) -> list[Text]:
        root = view.root
        if root is None:
            return []
        lines: list[Text] = []
        for detail in DETAILS[3:] if len(view.runs) > MANY_RUNS else DETAILS:
            if min(detail.steps, len(root.steps)) >= available and detail is not DETAILS[-1]:
                continue  # each of them takes a line at least
            lines = list(self._flat(self._node(view, root, detail, 0)))
            if len(lines) <= available:
                return lines
        cut = Text(f"{self.glyphs.more} {len(lines) - available + 1} more lines", "dim")
        return [*lines[: available - 1], cut]

    def _flat(self, node: Node, before: str = "", lead: str = "") -> Iterator[Text]:
        yield Text.assemble((lead, "dim"), node.label)
        for line in node.more:
            yield Text.assemble((before, "dim"), line)
        for place, each in enumerate(node.below, 1):
            ends = place == len(node.below)
            branch, trunk = (self.glyphs.last, "  ") if ends else (self.glyphs.branch, self.glyphs.trunk)
            yield from self._flat(each, before + trunk, before + branch)

    def _node(self, view: LiveView, run: RunView, detail: Detail, depth: int) -> Node:
        if run.is_over and depth:  # what a subagent that has ended has done stands in its parent's step
            return Node(self._run(run))
        steps = run.steps[-(detail.steps if not depth else min(2, detail.steps)) :]
        earlier = steps[0].number - 1 if steps else run.step_count or 0
        below: list[Node] = []
        if earlier:
            below.append(Node(Text(f"{self.glyphs.more} {counted(earlier, 'earlier step')}", "dim")))
        below += [self._step(view, run, each, detail, depth) for each in steps]
        below += self._todos(run, detail)
        if run.why_stopped and not run.is_over:
            below.append(Node(Text(f"stops: {_line(run.why_stopped)}", "yellow")))
        return Node(self._run(run), tuple(below))

    def _todos(self, run: RunView, detail: Detail) -> Iterator[Node]:
        """Give the agent's list: whole where there is room, else how far it is and what is under way."""
        if not run.todos:
            return
        shown = run.todos if len(run.todos) <= detail.calls else [each for each in run.todos if each.status != "done"]
        lines = tuple(Node(Text(_line(each.line), TODO_STYLES[each.status])) for each in shown[: detail.lines])
        yield Node(Text(f"todo: {progress(run.todos)}", "bold"), lines)

    def _run(self, run: RunView) -> Text:
        colour = COLOURS[run.status]
        label = Text.assemble(
            self._mark(run), " ", (_line(run.agent) or "agent", "bold"), (f" {run.execution_id[:ID_CHARS]}", "dim")
        )
        label.append(f" {run.status.replace('_', ' ')}", colour)
        label.append(f"  {counted(run.step_count or 0, 'step')}, {tokens(run.usage, run.cost, run.unpriced)}")
        if run.started_at is not None:
            label.append(f", {duration(((run.completed_at or self.now) - run.started_at).total_seconds())}")
        if run.retries:
            label.append(f", {counted(run.retries, 'attempt')} failed", "yellow")
        if run.why_stopped and run.is_over:
            label.append(f"  {_line(run.why_stopped)}", colour)
        return label

    def _mark(self, run: RunView) -> tuple[str, str]:
        match run.status:
            case ExecutionStatus.COMPLETED:
                return self.glyphs.succeeded, "green"
            case ExecutionStatus.STOPPED:
                return self.glyphs.refused, "yellow"
            case ExecutionStatus.FAILED:
                return self.glyphs.failed, "red"
            case _:
                return self._spin(), "cyan"

    def _step(self, view: LiveView, run: RunView, step: StepView, detail: Detail, depth: int) -> Node:
        under_way = step.completed_at is None and not run.is_over
        label = Text(f"step {step.number}", "bold" if under_way else "")
        until = step.completed_at or run.completed_at or self.now
        label.append(f"  {duration((until - (step.started_at or until)).total_seconds())}", "dim")
        if step.usage.total_tokens:
            label.append(f", {token_count(step.usage)} tokens", "dim")
        if step.asking and under_way:
            label.append(f"  {self._spin()} {'answering' if step.text else 'calling the model'}", "cyan")
        answer = self._answer(step, detail, depth, under_way=under_way)
        below = [Node(answer[0], more=tuple(answer[1:]))] if answer else []
        if step.retry and under_way:
            retry = retry_line(_line(step.retry), step.attempt - 1, step.retry_at, self.now)
            below.insert(0, Node(Text(retry, "yellow")))
        ran = f"the provider ran {step.provider_ran}" if step.provider_ran else ""
        lines = (*step.beside, *filter(None, (step.call_changed, ran)))
        beside = (Node(Text(_line(line), "yellow")) for line in lines)
        return Node(label, (*below, *self._calls(view, step, detail, depth), *beside))

    def _answer(self, step: StepView, detail: Detail, depth: int, *, under_way: bool) -> list[Text]:
        """Return the end of what the model says; of a step that is over and had calls, a line."""
        lines = detail.lines if under_way or not step.calls else min(1, detail.lines)
        if not step.text.strip() or not lines:
            return []
        width = max(LINE_CHARS_MIN, self.width - 2 * (2 * depth + 2) - 1)
        text = step.text.strip()
        if step.calls and not under_way:
            [line, *more] = _folded(printable(text[: 2 * width]), width, "") or [Text()]
            return [Text.assemble(line, self.glyphs.more if more else "")]
        folded = _folded(printable(text[-2 * lines * width :]), width, "")
        return [each for each in folded if each.plain.strip()][-lines:]

    def _calls(self, view: LiveView, step: StepView, detail: Detail, depth: int) -> Iterator[Node]:
        """Give the calls in their order, those of a script below it; of too many, those without an end come first."""
        calls: Sequence[CallView] = step.calls
        if len(calls) > detail.calls:
            chosen = sorted(calls, key=lambda call: not call.is_open)[: detail.calls]
            calls = [call for call in step.calls if call in chosen][: detail.calls]
        shown = {call.id for call in calls}
        for call in calls:
            if call.parent_call_id in shown:
                continue
            child = view.run(call.execution_id)
            below = () if child is None else (self._node(view, child, detail, depth + 1),)
            nested = (Node(self._call(each)) for each in calls if each.parent_call_id == call.id)
            yield Node(self._call(call), (*below, *nested))
        if hidden := len(step.calls) - len(calls):
            yield Node(Text(f"{self.glyphs.more} {counted(hidden, 'more call')}", "dim"))

    def _call(self, call: CallView) -> Text:
        sign, colour = OUTCOMES.get(call.outcome, ("", ""))
        waits, answer = call.outcome in WAITS, f"  {_line(call.answer)}"
        if sign:
            label = Text(f"{getattr(self.glyphs, sign)} ", colour)
        elif call.outcome == CallStage.RUNNING:
            label = Text(f"{self._spin()} ", "cyan")
        else:
            label = Text(f"{self.glyphs.waiting if waits else self.glyphs.requested} ", "yellow")
        label = Text.assemble(label, (_line(call.tool), "cyan"), f"({_arguments(call)})")
        if call.started_at is not None and call.outcome != CallStage.WAITING:
            label.append(f" {duration(((call.completed_at or self.now) - call.started_at).total_seconds())}", "dim")
        if waits:
            label.append(WAITS[CallStage(call.outcome)], "yellow")
        elif call.outcome == CallStage.RUNNING and call.progress:
            label.append(f"  {_line(call.progress)}", "dim")
        elif sign:
            label.append("" if call.outcome == Outcome.SUCCEEDED else f" {call.outcome}", colour)
            label.append(answer, "dim")
        if call.approval is not None:
            label.append(f"  {_line(decision_text(call.approval, call.arguments))}", "dim")
        return label

    # --- lines

    def _spin(self) -> str:
        return spinner(self.glyphs, self.now.timestamp())

    def _cut(self, line: Text) -> Text:
        line.truncate(self.width, overflow="ellipsis" if self.glyphs.more == "…" else "crop")
        return line


@lru_cache(maxsize=4096)
def _line(text: str) -> str:
    """Return the beginning of foreign text on one line, safe for a terminal."""
    return short(text)


def _arguments(call: CallView) -> str:
    return short(arguments_line(call.arguments))


def _folded(text: str, width: int, style: str) -> list[Text]:
    """Return the text in lines of at most `width` signs."""
    return [*Text(text, style).wrap(_folding(), max(1, width), overflow="fold", tab_size=4)]


@cache
def _folding() -> Console:
    return Console(width=80, color_system=None)
