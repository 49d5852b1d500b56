"""Where every event of a node lands first: numbered, timed, and kept until the shipper fetches it.

Owns: sequence numbers, wall times, the bound on what waits, and the count of what it cost. The recorder is
the system's Observer: taking note is one list append, everything else happens when somebody fetches.
Not here: bytes and batches (``delivery.batches``), what an event means for a peer (``reachability``).

When nobody fetches for long, events that tell of a life or of a status (`LIFECYCLE`) stay and the oldest of
the others go, counted by type. Their numbers are then missing from the sequence, which is one row a boot.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from swactor import ActorFailed, ActorRestarted, ActorStuck, Event
from swactor.abc import Clock
from swactor.cluster.events import (
    LinkLost,
    LinkUp,
    RelayChanged,
    RelaySessionStateChanged,
    SwimTransition,
)
from swactor.relay.events import RelaySessionClosed, RelaySessionOpened
from swactor_diag.reachability import ReachabilityLog
from swactor_diag.schema.events import Error, SubprocessExited, SubprocessSpawned
from swactor_diag.schema.snapshot import Reachability
from swactor_process.events import SubprocessGivenUp, SubprocessLeftBehind, SubprocessSpawnFailed

EVENTS_WAITING_MAX = 20_000
"""Events that may wait to be fetched; beyond it, half of the droppable ones go."""

LIFECYCLE: frozenset[type[Event]] = frozenset(
    {
        ActorFailed,
        ActorRestarted,
        ActorStuck,
        Error,
        LinkLost,
        LinkUp,
        RelayChanged,
        RelaySessionClosed,
        RelaySessionOpened,
        RelaySessionStateChanged,
        SubprocessExited,
        SubprocessGivenUp,
        SubprocessLeftBehind,
        SubprocessSpawnFailed,
        SubprocessSpawned,
        SwimTransition,
    }
)
"""Never dropped here: each happens a bounded number of times in a life of something."""

TRANSITIONS: frozenset[type[Event]] = frozenset({RelaySessionStateChanged, SwimTransition})
"""Due at once: what follows one is often the end of the node that saw it."""

BATCH_EVENTS = 512
"""So many waiting events are due at once, too."""


@dataclass(frozen=True, slots=True)
class Noted:
    """One event with its number and its wall time."""

    seq: int
    wall_ms: int
    event: Event


class Recorder:
    """The Observer of one boot. Without ``retain`` it only keeps the reachability log: nothing is shipped."""

    def __init__(self, *, clock: Clock, waiting_max: int = EVENTS_WAITING_MAX, retain: bool = True) -> None:
        self._wall_ms = clock.wall_ms
        self._waiting_max = waiting_max
        self._retain = retain
        self._seq = 0
        self._rows: list[tuple[int, int, Event]] = []
        self._folded = 0
        self._reachability = ReachabilityLog()
        self._dropped: Counter[str] = Counter()
        self._on_swim_transition: Callable[[int], None] | None = None
        self._on_due: Callable[[], None] | None = None
        self._is_due = False
        self._alarm_at = min(BATCH_EVENTS, waiting_max + 1)

    def call_on_transition(self, callback: Callable[[int], None] | None) -> None:
        """Call ``callback`` with the number of each SwimTransition; it only takes note, as we do."""
        self._on_swim_transition = callback

    def call_when_due(self, callback: Callable[[], None] | None) -> None:
        """Call ``callback`` once before the next `take`, as soon as somebody should; it only takes note."""
        self._on_due = callback
        self._is_due = False

    def observe(self, event: Event) -> None:
        """Take note of ``event``. Never raises, never waits."""
        seq = self._seq = self._seq + 1
        rows = self._rows
        rows.append((seq, self._wall_ms(), event))
        if len(rows) >= self._alarm_at:
            self._grown()
        if type(event) in TRANSITIONS:
            self._due()
            if type(event) is SwimTransition and self._on_swim_transition is not None:
                self._on_swim_transition(seq)

    def _grown(self) -> None:
        self._alarm_at = self._waiting_max + 1
        if len(self._rows) > self._waiting_max:
            self._shed()
        self._due()

    def _due(self) -> None:
        if self._on_due is not None and not self._is_due:
            self._is_due = True
            self._on_due()

    @property
    def seq(self) -> int:
        """Number of events observed so far."""
        return self._seq

    @property
    def waiting(self) -> int:
        """Number of events that nobody has fetched yet."""
        return len(self._rows)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Events dropped so far, by type."""
        return self._dropped

    def take(self, events_max: int) -> list[Noted]:
        """Remove and return the oldest events, at most ``events_max``."""
        self._fold()
        self._is_due = False
        self._alarm_at = min(BATCH_EVENTS, self._waiting_max + 1)
        taken, self._rows = self._rows[:events_max], self._rows[events_max:]
        self._folded = len(self._rows)
        return [Noted(*row) for row in taken]

    def reachability(self) -> tuple[Reachability, ...]:
        """Return what all events so far say about the way to each peer."""
        self._fold()
        if not self._retain:
            self._rows.clear()
            self._folded = 0
        return self._reachability.rows()

    def _fold(self) -> None:
        for _, wall_ms, event in self._rows[self._folded :]:
            self._reachability.note(wall_ms, event)
        self._folded = len(self._rows)

    def _shed(self) -> None:
        self._fold()
        if not self._retain:
            self._rows.clear()
            self._folded = 0
            return
        droppable = [row for row in self._rows if type(row[2]) not in LIFECYCLE]
        gone = droppable[: max(1, len(droppable) // 2)]
        self._dropped.update(type(event).__name__ for _, _, event in gone)
        gone_numbers = {seq for seq, _, _ in gone}
        self._rows = [row for row in self._rows if row[0] not in gone_numbers]
        self._folded = len(self._rows)
