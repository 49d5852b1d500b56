"""Whether a child is ready, by the rule of its spec. Pure.

Owns: which rule is met by what, the deadline, when to ask again; that it is told once.
Not here: asking (``_probing``), in which states anything counts (``transitions``).
"""

import re

from swactor_process._effects import (
    AnnounceLines,
    AnnouncePiece,
    AnnounceReady,
    CancelTimer,
    Effect,
    ProbeReadiness,
    SetTimer,
    StopProbing,
    Timer,
)
from swactor_process._streams import StreamEffect
from swactor_process.output import CHARACTER_MAX_BYTES
from swactor_process.spawner import WIDE_PIPE_BYTES
from swactor_process.spec import Readiness, ReadyOnFile, ReadyOnLine, ReadyOnPort, Stream

MATCHED_CHARACTERS = 1_024
"""What of a line is matched: `` +ready$`` takes the square of a line's length, and the child chooses that."""


class ReadinessWatch:
    """Waits for one rule to be met; without a rule nothing is ever told."""

    def __init__(self, rule: Readiness | None) -> None:
        self._rule = rule
        self._probed = rule if isinstance(rule, ReadyOnPort | ReadyOnFile) else None
        self._started_s = 0.0
        # After the exit, lines count within what a pipe holds; what comes behind that was written by others,
        # who may write for ever.
        self._left_bytes = WIDE_PIPE_BYTES

    def begin(self, now_s: float) -> list[Effect]:
        """The child runs."""
        self._started_s = now_s
        if self._rule is None:
            return []
        deadline = SetTimer(Timer.READY, self._rule.deadline_s)
        return [deadline] if self._probed is None else [deadline, ProbeReadiness()]

    def on_output(self, output: StreamEffect, now_s: float) -> list[Effect]:
        """The child wrote something."""
        rule = self._rule
        if not isinstance(rule, ReadyOnLine) or output.stream is not rule.stream:
            return []
        match output:
            case AnnounceLines():
                met = any(_says(rule.pattern, line) for line in output.data[:-1].split(b"\n"))
            case AnnouncePiece():
                met = _says(rule.pattern, output.piece.data)
            case _:
                met = False
        return self._tell(now_s, overdue=False) if met else []

    def on_drained(self, stream: Stream, n_bytes: int) -> None:
        """So many bytes of ``stream`` came after the exit."""
        if isinstance(self._rule, ReadyOnLine) and stream is self._rule.stream:
            self._left_bytes -= n_bytes
            if self._left_bytes <= 0:
                self._rule = None

    def on_probed(self, now_s: float, *, met: bool) -> list[Effect]:
        """Somebody looked whether the rule is met."""
        if self._probed is None:
            return []
        return self._tell(now_s, overdue=False) if met else [SetTimer(Timer.PROBE, self._probed.every_s)]

    def probe(self) -> list[Effect]:
        """It is time to look again."""
        return [] if self._probed is None else [ProbeReadiness()]

    def on_marked(self, now_s: float) -> list[Effect]:
        """The owner says so."""
        return [] if self._rule is None else self._tell(now_s, overdue=False)

    def on_overdue(self, now_s: float) -> list[Effect]:
        """The deadline is over."""
        return [] if self._rule is None else self._tell(now_s, overdue=True)

    def _tell(self, now_s: float, *, overdue: bool) -> list[Effect]:
        effects = self.end_waiting()
        self._rule = None
        return [*effects, AnnounceReady(overdue=overdue, after_s=now_s - self._started_s)]

    def end_waiting(self) -> list[Effect]:
        """Have no deadline any more, and ask nobody. A line that was written by then still counts."""
        if self._rule is None:
            return []
        probed, self._probed = self._probed, None
        probing: list[Effect] = [] if probed is None else [CancelTimer(Timer.PROBE), StopProbing()]
        return [CancelTimer(Timer.READY), *probing]


def _says(pattern: str, line: bytes) -> bool:
    text = line[: MATCHED_CHARACTERS * CHARACTER_MAX_BYTES].decode("utf-8", "replace")[:MATCHED_CHARACTERS]
    return re.search(pattern, text) is not None
