"""Whether the sink or a record is at fault when a post fails, and which records are passed over for it.

Owns: what is known of records that failed. Pure. Not here: posts and waits (``shipper``), the records
themselves (``spool``).

A record that fails is a suspect. After some tries others are asked, one after the other: as long as they fail
too, the sink is at fault as far as anybody knows. A suspect that fails again right after the sink has stored
something is stuck: it is passed over, so that it holds up no others, and released for another try now and
then. An outage changes the order little: once the sink is back, its suspects are the next to be tried.
"""

from swactor_diag.delivery.spool import Spool
from swactor_diag.schema.submission import Outgoing, RecordKind

TRIES_IN_A_ROW = 3
"""Of the oldest record, before others are asked; one try if the sink worked a moment ago."""

BOOT_TRIES = 40
"""Of a boot record, some ten minutes, before it is one like any other: who a node is goes first."""

REMEMBERED_MAX = 10_000
"""Suspects, and stuck records, that are remembered; of more the one first suspected is one like any other."""


class Suspicion:
    """What one shipper knows of its records, by their batch ids."""

    def __init__(self) -> None:
        self._suspects: dict[str, None] = {}
        self._stuck: dict[str, None] = {}
        self._released = ""
        self._sink_worked = False
        self._tries = 0
        self._boot_tries = 0

    @property
    def any_stuck(self) -> bool:
        """Whether a record waits for its release."""
        return bool(self._stuck)

    def choose(self, spool: Spool) -> Outgoing | None:
        """Return the record of ``spool`` to try next, None when there is none but stuck ones."""
        if self._tries >= TRIES_IN_A_ROW:
            another = spool.peek(passing={**self._stuck, **self._suspects})
            if another is not None:
                return another
            self._suspects.clear()  # nobody is left to ask: all begin again
            self._tries = 0
        return spool.peek(passing=self._stuck)

    def works(self, record: Outgoing) -> None:
        """The sink has stored ``record``, or refused it."""
        batch_id = record.batch_id
        self._suspects.pop(batch_id, None)
        self._sink_worked = True
        self._tries = 0
        if record.kind is RecordKind.BOOT:
            self._boot_tries = 0
        if batch_id == self._released:
            self.release()  # whatever the record was stuck at may be gone

    def failed(self, record: Outgoing) -> bool:
        """Take note of a failure; return whether ``record`` is at fault, and not the sink."""
        batch_id = record.batch_id
        worked, self._sink_worked = self._sink_worked, False
        if worked and batch_id in self._suspects:
            del self._suspects[batch_id]
            _remember(self._stuck, batch_id)
            self._tries = TRIES_IN_A_ROW
            return True
        if record.kind is RecordKind.BOOT and self._boot_tries < BOOT_TRIES:
            self._boot_tries += 1
            self._tries = 0
            return False
        _remember(self._suspects, batch_id)
        self._tries = TRIES_IN_A_ROW if worked else self._tries + 1
        return False

    def release(self) -> None:
        """Let the record that has been stuck longest have its turn again; it stays a suspect."""
        self._released = next(iter(self._stuck), "")
        if self._released:
            del self._stuck[self._released]
            _remember(self._suspects, self._released)


def _remember(known: dict[str, None], batch_id: str) -> None:
    known[batch_id] = None
    if len(known) > REMEMBERED_MAX:
        del known[next(iter(known))]
