"""An Observer that keeps what it hears, and lets a test wait for it.

Not here: messages between actors (`Probe`).
"""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from swactor import ActorSystem, Event
from swactor.testing._conditions import Conditions
from swactor.testing._errors import MissingEventError, place_of

E = TypeVar("E", bound=Event)

EVENTS_MAX = 10_000
"""Events that are kept; of more, the latest."""


class Recorder:
    """Keeps the events of ``system``, from now on; ``events_max`` of them, then the oldest are forgotten.

    May be attached to further systems. Implements `swactor.abc.Observer`.
    """

    def __init__(self, system: ActorSystem, *, events_max: int = EVENTS_MAX) -> None:
        self._system = system
        self._events: deque[Event] = deque(maxlen=events_max)
        self._unclaimed: deque[Event] = deque(maxlen=events_max)
        self._conditions: Conditions | None = None
        system.attach(self)

    def observe(self, event: Event) -> None:
        """Keep ``event``."""
        self._events.append(event)
        self._unclaimed.append(event)
        if self._conditions is not None:
            self._conditions.changed()

    @property
    def events(self) -> tuple[Event, ...]:
        """All events that are kept, in the order in which they happened."""
        return tuple(self._events)

    def of(self, event_type: type[E]) -> tuple[E, ...]:
        """Return the events of one type, in the order in which they happened."""
        return tuple(event for event in self._events if isinstance(event, event_type))

    async def expect(
        self, event_type: type[E], where: Callable[[E], bool] | None = None, *, timeout_s: float = 5.0
    ) -> E:
        """Return the first event of a type for which ``where`` holds, heard already or still to come.

        Each event is returned once, so that expecting the same twice waits for it to happen twice. Others
        that came before stay to be expected: there is no order between events of different actors.

        Raises:
            MissingEventError: there was none within ``timeout_s`` seconds of the system; with a manual clock
                they pass now. 0 waits for what is ready to happen.
        """
        found: list[E] = []

        def look() -> bool:
            if not found:
                found.extend(self._claim(event_type, where))
            return bool(found)

        if self._conditions is None:
            self._conditions = Conditions(self._system.loop)
        if not await self._conditions.wait(look, timeout_s=timeout_s):
            wanted = event_type.__name__ + (f" for which {place_of(where)} holds" if where else "")
            raise MissingEventError(wanted, timeout_s, self.events)
        return found[0]

    def _claim(self, event_type: type[E], where: Callable[[E], bool] | None) -> list[E]:
        for event in self._unclaimed:
            if isinstance(event, event_type) and (where is None or where(event)):
                self._unclaimed.remove(event)
                return [event]
        return []
