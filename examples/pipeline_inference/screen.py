"""What a person sees of a run while it goes on: who is ready, the answers as they come, what failed.

Owns: the screen and the figures of the run. Not here: the summary at its end (`demo`).
"""

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


class Screen:
    """Shows tokens as they come if one prompt is answered at a time, else each answer when it is complete."""

    def __init__(self, console: Console, clock: Clock, *, streams: bool) -> None:
        self._console = console
        self._clock = clock
        self._streams = streams
        self._prompts: dict[str, str] = {}
        self._shown_ns: dict[str, int] = {}
        self._in_line = False
        self._tokens = 0
        self._asked_ns: int | None = None
        self._answered_ns = 0

    def tell(self, line: str) -> None:
        """Show one line of progress."""
        self._end_line()
        self._console.print(f"[dim]·[/dim] {escape(line)}", highlight=False)

    def speak(self, spoken: Spoken) -> None:
        """Show what a node says."""
        match spoken:
            case StageLoading(stage, loaded, layers):
                self._loading(stage, loaded, layers)
            case StageFound(stage):
                self.tell(f"{stage} is ready")
            case StageLost(stage, why, gone):
                self.tell(f"{stage}: {why}; it is {'gone' if gone else 'being restarted'}")
            case Prompt(request_id, text):
                self._asked_ns = self._asked_ns or self._clock.monotonic_ns()
                self._prompts[request_id] = text
                if self._streams:
                    self._console.print(f"\n[bold]{escape(text)}[/bold]", end="", highlight=False)
                    self._in_line = True
            case Text(text=text):
                self._tokens += 1
                if self._streams:
                    self._console.out(text, end="", highlight=False)
                    self._in_line = True
            case Answer(request_id, text):
                self._answered_ns = self._clock.monotonic_ns()
                if not self._streams:
                    prompt = self._prompts.get(request_id, "")
                    self._console.print(f"\n[bold]{escape(prompt)}[/bold]{escape(text)}", highlight=False)
                self._end_line()
            case RequestFailed(request_id, why):
                self.tell(f"{request_id} failed: {why}")

    def end(self) -> None:
        """Leave an empty line before what comes next."""
        self._end_line()
        self._console.print()

    def figures(self) -> str:
        """Return how much was answered, and how fast."""
        took_s = max(0, self._answered_ns - (self._asked_ns or 0)) / 1e9
        return f"{self._tokens} tokens in {took_s:.1f} s"

    def _end_line(self) -> None:
        if self._in_line:
            self._console.print()
            self._in_line = False

    def _loading(self, stage: str, loaded: int, layers: int) -> None:
        now_ns = self._clock.monotonic_ns()
        shown_ns = self._shown_ns.setdefault(stage, now_ns)
        if now_ns - shown_ns >= LOADING_PERIOD_NS:
            self._shown_ns[stage] = now_ns
            self.tell(f"{stage} has loaded {loaded} of {layers} layers")
