"""Where every event of a node lands first: timed, numbered, and kept until the shipper fetches it.

Owns: sequence numbers, wall times, the bound on what waits, and the count of what it cost. The recorder is
the system's Observer. To take note is one reading of the wall clock and one list append; numbers,
milliseconds and the reachability log are made of that when somebody fetches.
Not here: bytes and batches (``delivery.batches``), what an event means for a peer (``reachability``).

When nobody fetches for long, events that tell of a life or of a status (`LIFECYCLE`) stay and the oldest of
the others go, counted by type. Their numbers are then missing from the sequence, which is one row a boot.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from swactor import ActorFailed, ActorRestarted, ActorStuck, Event
from swactor.abc import Clock, RawClock
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


class Noted(Struct, frozen=True, gc=False):
    """One event with its number and its wall time."""

    seq: int
    wall_ms: int
    event: Event


class _TakesNote(Protocol):
    """`swactor.abc.Observer.observe`."""

    def __call__(self, event: Event) -> None: ...


_Jotted = tuple[float, Event]
"""An event and when it happened, as the clock tells time."""


class Recorder:
    """The Observer of one boot. Without ``retain`` it only keeps the reachability log: nothing is shipped."""

    observe: _TakesNote
    """Take note of an event. Never raises, never waits."""

    def __init__(self, *, clock: Clock, waiting_max: int = EVENTS_WAITING_MAX, retain: bool = True) -> None:
        self._waiting_max = waiting_max
        self._retain = retain
        self._page: list[_Jotted] = []
        """What was noted last, up to `_page_max`; then it is turned over to the others."""
        self._page_max = min(BATCH_EVENTS, max(1, waiting_max // 4))
        self._turned: list[_Jotted] = []
        self._numbered: list[Noted] = []
        self._seq = 0
        """The last number that was given."""
        self._reachability = ReachabilityLog()
        self._dropped: Counter[str] = Counter()
        self._on_swim_transition: Callable[[int], None] | None = None
        self._on_due: Callable[[], None] | None = None
        self._is_due = False
        if isinstance(clock, RawClock):
            read, self._ms_per_unit = clock.wall_s, 1000
        else:
            read, self._ms_per_unit = clock.wall_ms, 1
        self.observe = _note_taker(self._page, self._page_max, read=read, notice=self._notice)

    def call_on_transition(self, callback: Callable[[int], None] | None) -> None:
        """Call ``callback`` with the number of each SwimTransition; it only takes note, as we do."""
        self._on_swim_transition = callback

    def call_when_due(self, callback: Callable[[], None] | None) -> None:
        """Call ``callback`` once before the next `take`, as soon as somebody should; it only takes note."""
        self._on_due = callback
        self._is_due = False

    @property
    def seq(self) -> int:
        """Number of events observed so far."""
        return self._seq + len(self._turned) + len(self._page)

    @property
    def waiting(self) -> int:
        """Number of events that nobody has fetched yet."""
        return len(self._numbered) + len(self._turned) + len(self._page)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Events dropped so far, by type."""
        return self._dropped

    def take(self, events_max: int) -> list[Noted]:
        """Remove and return the oldest events, at most ``events_max``."""
        self._is_due = False
        self._number()
        taken, self._numbered = self._numbered[:events_max], self._numbered[events_max:]
        return taken

    def reachability(self) -> tuple[Reachability, ...]:
        """Return what all events so far say about the way to each peer."""
        self._number()
        return self._reachability.rows()

    def _notice(self, event: Event) -> None:
        """Called behind an event that is a transition or fills the page."""
        if len(self._page) >= self._page_max:
            self._turn_page()
            self._due()
        if type(event) in TRANSITIONS:
            self._due()
            if type(event) is SwimTransition and self._on_swim_transition is not None:
                self._on_swim_transition(self.seq)

    def _due(self) -> None:
        if self._on_due is not None and not self._is_due:
            self._is_due = True
            self._on_due()

    def _turn_page(self) -> None:
        """Make room on the page, which stays the same list; what is noted meanwhile stays on it."""
        turned = self._page[:]
        del self._page[: len(turned)]
        self._turned += turned
        if self.waiting > self._waiting_max - self._page_max:
            self._shed()

    def _number(self) -> None:
        jotted = self._turned + self._page
        del self._page[: len(jotted) - len(self._turned)]
        self._turned = []
        for reading, event in jotted:
            self._seq += 1
            wall_ms = int(reading * self._ms_per_unit)
            self._reachability.note(wall_ms, event)
            if self._retain:
                self._numbered.append(Noted(self._seq, wall_ms, event))

    def _shed(self) -> None:
        self._number()
        droppable = [one for one in self._numbered if type(one.event) not in LIFECYCLE]
        gone = droppable[: (len(droppable) + 1) // 2]
        self._dropped.update(type(one.event).__name__ for one in gone)
        gone_numbers = {one.seq for one in gone}
        self._numbered = [one for one in self._numbered if one.seq not in gone_numbers]


def _note_taker(
    page: list[_Jotted], page_max: int, *, read: Callable[[], float], notice: Callable[[Event], None]
) -> _TakesNote:
    """Return `Recorder.observe`: a closure, since a method would look up each of these again per event."""

    def observe(event: Event) -> None:
        page.append((read(), event))
        if len(page) >= page_max or type(event) in TRANSITIONS:
            notice(event)

    return observe
