"""Notifications on their way to one actor whose mailbox may be full.

Owns: lifecycle notifications wait for room and keep their order; output waits too, or is dropped and counted;
when so much output waits that reading should stop, and when it may go on.
Not here: what is told (``_telling``), stopping to read (``session``).

Memory: a handful of lifecycle notifications, and the output that waits: ``backlog_bytes`` and what one read
of each stream brings while reading can be paused, `LAST_BYTES` more when it cannot any more.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from swactor import ActorRef, MailboxFullError
from swactor.abc import Loop

OUTPUT_COST_BYTES = 128
"""What a waiting line or chunk counts besides its own bytes."""
LOW_PART = 4
"""Reading goes on when what waits is down to this part of ``backlog_bytes``."""
LAST_BYTES = 4_194_304
"""Room for what a child says while it is stopped, and for what is still in its pipes when it has ended."""


class Outbox:
    """Delivers to ``target``. An actor that has ended takes everything, as dead letters, so this ends too.

    ``on_level(True)`` says that more than ``backlog_bytes`` of output wait, ``on_level(False)`` that few do.
    """

    def __init__(
        self,
        loop: Loop,
        target: ActorRef[Any],
        *,
        backlog_bytes: int = 0,
        on_level: Callable[[bool], None] | None = None,
    ) -> None:
        self._loop = loop
        self._target = target
        self._waiting: deque[tuple[object, int]] = deque()
        self._sending = False
        self._backlog_bytes = backlog_bytes
        self._on_level = on_level
        self._held_bytes = 0
        self._limit_bytes: int | None = None
        self._behind = False
        self.dropped = 0
        self.dropped_bytes = 0

    def tell(self, notification: object) -> None:
        """Deliver ``notification``, later if there is no room now."""
        if not self._taken(notification):
            self._wait(notification, 0)

    def offer(self, output: object, n_bytes: int) -> None:
        """Deliver ``output`` now or not at all."""
        if not self._taken(output):
            self._drop(n_bytes)

    def hold(self, output: object, n_bytes: int) -> None:
        """Deliver ``output``, later if there is no room now; not at all beyond the bound, if there is one."""
        if self._taken(output):
            return
        cost_bytes = n_bytes + OUTPUT_COST_BYTES
        if self._limit_bytes is not None and self._held_bytes + cost_bytes > self._limit_bytes:
            self._drop(n_bytes)
        else:
            self._held_bytes += cost_bytes
            self._wait(output, cost_bytes)
            self._look_at_level()

    def bound(self) -> None:
        """Nobody pauses any more, so drop what finds `LAST_BYTES` more waiting than may."""
        self._limit_bytes = self._backlog_bytes + LAST_BYTES

    def _taken(self, message: object) -> bool:
        if self._waiting:
            return False
        try:
            self._target.tell(message)
        except MailboxFullError:
            return False
        return True

    def _drop(self, n_bytes: int) -> None:
        self.dropped += 1
        self.dropped_bytes += n_bytes

    def _wait(self, message: object, cost_bytes: int) -> None:
        self._waiting.append((message, cost_bytes))
        if not self._sending:
            self._sending = True
            self._loop.start_task(self._send(), name="swactor process notifications")

    async def _send(self) -> None:
        while self._waiting:
            message, cost_bytes = self._waiting[0]
            await self._target.send(message)
            self._waiting.popleft()
            self._held_bytes -= cost_bytes
            self._look_at_level()
        self._sending = False

    def _look_at_level(self) -> None:
        behind = self._behind
        if behind and self._held_bytes <= self._backlog_bytes // LOW_PART:
            self._behind = False
        elif self._held_bytes > self._backlog_bytes:
            self._behind = True
        if behind is not self._behind and self._on_level is not None:
            self._on_level(self._behind)
