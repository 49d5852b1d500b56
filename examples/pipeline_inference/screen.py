"""What a person sees of a run while it goes on: who is ready, the answers as they come, what failed.

Owns: the screen and the figures of the run. Not here: the summary at its end (`demo`).
"""

from collections import deque

from rich.console import Console
from rich.markup import escape

from examples.pipeline_inference.lines import (
    Answer,
    Prompt,
    RequestFailed,
    Spoken,
    StageFound,
    StageLoading,
    StageLost,
    Text,
)
from swactor.abc import Clock

LOADING_PERIOD_NS = 1_000_000_000
"""Progress of one stage is shown this often at most: a small model is there before anybody reads it."""
RECALLED_MAX = 3
"""Answers that are shown once more at the end: the summary has moved them out of sight by then."""

_CONTROL = {code: "�" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""What would move the cursor or worse: a prompt, a model or a worker may say anything."""


class Flow:
    """Text that comes in pieces: a terminal gets lines of whole words, a pipe the pieces as they are."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._style: str | None = None
        self._word = ""
        self._column = 0

    def write(self, text: str, *, style: str | None = None) -> None:
        """Show ``text``; on a terminal the beginning of a word waits for its end."""
        text = text.translate(_CONTROL)
        if style != self._style:
            self._flush()
            self._style = style
        if not self._console.is_terminal:
            self._put(text)
            return
        for char in text:
            if char.isspace():
                self._flush()
                self._put(char)
            else:
                self._word += char

    def end_line(self) -> None:
        """Go to a new line, unless one has just begun."""
        self._flush()
        if self._column:
            self._put("\n")

    def _flush(self) -> None:
        word, self._word = self._word, ""
        if self._column and self._column + len(word) > self._console.width:
            self._put("\n")
        self._put(word)

    def _put(self, text: str) -> None:
        self._console.out(text, style=self._style, end="", highlight=False)
        _, newline, rest = text.rpartition("\n")
        self._column = len(rest) if newline else self._column + len(text)


class Screen:
    """Shows tokens as they come if one prompt is answered at a time, else each answer when it is complete."""

    def __init__(self, console: Console, clock: Clock, *, streams: bool) -> None:
        self._console = console
        self._clock = clock
        self._streams = streams
        self._flow = Flow(console)
        self._prompts: dict[str, str] = {}
        self._shown_ns: dict[str, int] = {}
        self._recalled: deque[tuple[str, str]] = deque(maxlen=RECALLED_MAX)
        self._answers = 0
        self._tokens = 0
        self._asked_ns: int | None = None
        self._answered_ns = 0

    def tell(self, line: str) -> None:
        """Show one line of progress."""
        self._flow.end_line()
        self._console.print(f"[dim]·[/dim] {escape(line.translate(_CONTROL))}", highlight=False)

    def speak(self, spoken: Spoken) -> None:
        """Show what a node says."""
        match spoken:
            case StageLoading(stage, loaded, layers):
                self._loading(stage, loaded, layers)
            case StageFound(stage):
                self.tell(f"{stage} is ready")
            case StageLost(stage, why, gone):
                self.tell(f"{stage}: {why}; {'it is gone' if gone else 'waiting for it to be back'}")
            case Prompt(request_id, text):
                self._asked_ns = self._asked_ns or self._clock.monotonic_ns()
                self._prompts[request_id] = text
                if self._streams:
                    self._console.print()
                    self._flow.write(text, style="bold")
            case Text(text=text):
                self._tokens += 1
                if self._streams:
                    self._flow.write(text)
            case Answer(request_id, text):
                self._answered(self._prompts.pop(request_id, ""), text)
            case RequestFailed(request_id, why):
                self._prompts.pop(request_id, None)
                self.tell(f"{request_id} failed: {why}")

    def end(self) -> None:
        """Leave an empty line before what comes next."""
        self._flow.end_line()
        self._console.print()

    def recall(self) -> None:
        """Show the last answers once more."""
        for prompt, text in self._recalled:
            self._show(prompt, text)

    def figures(self, *, asked: int) -> str:
        """Return how many of the ``asked`` prompts were answered, and how fast."""
        took_s = max(0, self._answered_ns - (self._asked_ns or 0)) / 1e9
        return f"{self._answers} of {asked}, {self._tokens} tokens in {took_s:.1f} s"

    def _answered(self, prompt: str, text: str) -> None:
        self._answered_ns = self._clock.monotonic_ns()
        self._answers += 1
        self._recalled.append((prompt, text))
        if self._streams:
            self._flow.end_line()
        else:
            self._show(prompt, text)

    def _show(self, prompt: str, text: str) -> None:
        prompt, text = (escape(said.translate(_CONTROL)) for said in (prompt, text))
        self._console.print(f"\n[bold]{prompt}[/bold]{text}", highlight=False)

    def _loading(self, stage: str, loaded: int, layers: int) -> None:
        now_ns = self._clock.monotonic_ns()
        if loaded == 1:
            self._shown_ns[stage] = now_ns  # a worker has begun, maybe not the first one of this stage
        elif now_ns - self._shown_ns.get(stage, 0) >= LOADING_PERIOD_NS:
            self._shown_ns[stage] = now_ns
            self.tell(f"{stage} has loaded {loaded} of {layers} layers")
