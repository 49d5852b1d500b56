"""Notifications on their way to one actor whose mailbox may be full.

Owns: lifecycle notifications wait for room and keep their order; output is dropped and counted instead.
Not here: what is told (``driver``). The queue holds a handful at most: lifecycle notifications of one child.
"""

from collections import deque
from typing import Any

from swactor import ActorRef, MailboxFullError
from swactor.abc import Loop

RETRY_S = 0.05


class Outbox:
    """Delivers to ``target``. An actor that has ended takes everything, as dead letters, so this ends too."""

    def __init__(self, loop: Loop, target: ActorRef[Any]) -> None:
        self._loop = loop
        self._target = target
        self._waiting: deque[object] = deque()
        self.dropped = 0

    def tell(self, notification: object) -> None:
        """Deliver ``notification``, later if there is no room now."""
        self._waiting.append(notification)
        if len(self._waiting) == 1:
            self._flush()

    def offer(self, output: object) -> None:
        """Deliver ``output`` now or not at all."""
        if self._waiting:
            self.dropped += 1
            return
        try:
            self._target.tell(output)
        except MailboxFullError:
            self.dropped += 1

    def _flush(self) -> None:
        try:
            while self._waiting:
                self._target.tell(self._waiting[0])
                self._waiting.popleft()
        except MailboxFullError:
            self._loop.call_later(RETRY_S, self._flush)
