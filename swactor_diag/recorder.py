"""Where every event of a node lands first: timed, numbered, and kept until the shipper fetches it.

Owns: sequence numbers, wall times, the bound on what waits, and the count of what it cost. The recorder is
the system's Observer. To take note is one reading of the wall clock and a line filled in on a page; numbers,
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


class _Line:
    """A line of a page: an event, and when it happened as the clock tells time; blank without an event."""

    __slots__ = ("event", "reading")

    def __init__(self) -> None:
        self.reading: float = 0
        self.event: Event | None = None


class Recorder:
    """The Observer of one boot. Without ``retain`` it only keeps the reachability log: nothing is shipped.

    An event is noted in three steps: read the clock, take a blank line, fill it in. When the page is full, or
    somebody wants to know, it is turned: the spare one is in use, and what it said is in `_turned`. Whatever
    costs more (numbers, milliseconds, reachability) happens to that later, and moves it on to `_numbered`.
    """

    observe: _TakesNote
    """Take note of an event. Never raises, never waits."""

    def __init__(self, *, clock: Clock, waiting_max: int = EVENTS_WAITING_MAX, retain: bool = True) -> None:
        self._waiting_max = waiting_max
        self._retain = retain
        # One line less than a batch: the event that finds the page full completes it.
        self._page_max = max(1, min(BATCH_EVENTS, waiting_max // 4) - 1)
        self._page = [_Line() for _ in range(self._page_max)]
        """What was noted last."""
        self._spare_page = [_Line() for _ in range(self._page_max)]
        self._blank = self._page[::-1]
        """The lines of the page that are left, the next one last. Always this list: the note taker has it."""
        self._half_noted: list[_Line] = []
        """Lines that were taken, but not filled in yet: who noted was interrupted by who turned the page."""
        self._turned: list[tuple[float, Event]] = []
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
        self.observe = _note_taker(
            self._blank, read=read, page_full=self._note_on_next_page, transition=self._notice_transition
        )

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
        return self._seq + self._unnumbered

    @property
    def waiting(self) -> int:
        """Number of events that nobody has fetched yet."""
        return len(self._numbered) + self._unnumbered

    @property
    def _unnumbered(self) -> int:
        return len(self._turned) + len(self._half_noted) + len(self._page) - len(self._blank)

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

    def _notice_transition(self, event: Event) -> None:
        self._due()
        if type(event) is SwimTransition and self._on_swim_transition is not None:
            self._on_swim_transition(self.seq)

    def _due(self) -> None:
        if self._on_due is not None and not self._is_due:
            self._is_due = True
            self._on_due()

    def _note_on_next_page(self, event: Event) -> None:
        """Take note of an event that found the page full."""
        self._turn_page()
        if self.waiting > self._waiting_max - self._page_max:
            self._shed()
        self.observe(event)
        self._due()

    def _turn_page(self) -> None:
        """Begin the spare page, then read the one in use so far.

        This may happen in the midst of taking note, and a note may be taken in the midst of this: a signal
        handler or a finalizer may use the recorder.
        """
        page, self._page, self._spare_page = self._page, self._spare_page, self._page
        blank = self._page[::-1]
        taken = len(page) - len(self._blank)
        self._blank[:] = blank
        while taken < len(page) and page[taken].event is not None:
            taken += 1  # noted by who interrupted us since we counted
        half_noted, self._half_noted = self._half_noted, []
        for line in half_noted + page[:taken]:
            if line.event is None:
                self._half_noted.append(line)
            else:
                self._turned.append((line.reading, line.event))
        # A line that is still to be filled in belongs to who took it: the page gets another one.
        page[:taken] = [_Line() if line.event is None else line for line in page[:taken]]
        for line in page:
            line.event = None

    def _number(self) -> None:
        self._turn_page()
        turned, self._turned = self._turned, []
        for reading, event in turned:
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
    blank: list[_Line],
    *,
    read: Callable[[], float],
    page_full: _TakesNote,
    transition: _TakesNote,
) -> _TakesNote:
    """Return `Recorder.observe`: a closure, since a method would look up each of these again per event."""
    next_line = blank.pop

    def observe(event: Event) -> None:
        reading = read()
        try:
            line = next_line()
        except IndexError:
            page_full(event)
            return
        line.reading = reading
        line.event = event
        if type(event) in TRANSITIONS:
            transition(event)

    return observe
