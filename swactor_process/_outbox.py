"""Notifications on their way to one actor whose mailbox may be full.

Owns: lifecycle notifications wait for room and keep their order; output waits too, or is dropped and counted;
how many bytes of it lie in the mailbox at most; when so much output waits here that reading should stop, and
when it may go on.
Not here: what is told (``_telling``), stopping to read (``session``).

Memory: a handful of lifecycle notifications, ``mailbox_bytes`` of output in the mailbox, and the output
that waits: ``backlog_bytes`` and what one read of each stream brings while reading can be paused, and
`LAST_BYTES` more when it cannot any more.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from swactor import ActorRef, MailboxFullError, WithReceipt
from swactor.abc import Loop, Waiter
from swactor_process.messages import ProcessLines

OUTPUT_COST_BYTES = 128
"""What a line, batch of lines or chunk counts besides its own bytes: about what it takes in memory."""
RECEIPT_BYTES = 65_536
"""After so much output the mailbox is to say when it has come so far."""
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
        mailbox_bytes: int = 0,
        backlog_bytes: int = 0,
        on_level: Callable[[bool], None] | None = None,
    ) -> None:
        self._loop = loop
        self._target = target
        self._waiting: deque[tuple[object, int]] = deque()
        self._sending = False
        self._mailbox_bytes = mailbox_bytes
        self._receipt_bytes = min(mailbox_bytes, RECEIPT_BYTES)
        self._there_bytes = 0  # in the mailbox, as far as receipts tell
        self._unreceipted_bytes = 0
        self._receipts = 0  # that are still to come
        self._room: Waiter[None] | None = None
        self._backlog_bytes = backlog_bytes
        self._on_level = on_level
        self._held_bytes = 0
        self._limit_bytes: int | None = None
        self._behind = False
        self.dropped = 0
        self.dropped_bytes = 0

    def tell(self, notification: object) -> None:
        """Deliver ``notification``, later if there is no room now."""
        if not self._taken(notification, 0):
            self._wait(notification, 0)

    def offer(self, output: object, n_bytes: int) -> None:
        """Deliver ``output`` now or not at all."""
        if not self._taken(output, n_bytes + OUTPUT_COST_BYTES):
            self._drop(output, n_bytes)

    def pour(self, outputs: list[Any], sizes: list[int]) -> int:
        """Deliver ``outputs`` of ``sizes`` bytes if there is room for them all; return how many were.

        Not all, or none, when the mailbox is full. To offer each by itself takes twice as long.
        """
        cost_bytes = sum(sizes) + len(sizes) * OUTPUT_COST_BYTES
        if self._waiting or self._there_bytes + cost_bytes > self._mailbox_bytes:
            return 0
        tell, done = self._target.tell, 0
        try:
            for output in outputs[:-1]:
                tell(output)
                done += 1
        except MailboxFullError:
            pass
        done_bytes = sum(sizes[:done]) + done * OUTPUT_COST_BYTES
        self._there_bytes += done_bytes
        self._unreceipted_bytes += done_bytes
        if done < len(outputs) - 1 or not self._taken(outputs[-1], sizes[-1] + OUTPUT_COST_BYTES):
            return done
        return len(outputs)

    def hold(self, output: object, n_bytes: int) -> None:
        """Deliver ``output``, later if there is no room now; not at all beyond the bound, if there is one."""
        cost_bytes = n_bytes + OUTPUT_COST_BYTES
        if self._taken(output, cost_bytes):
            return
        if self._limit_bytes is not None and self._held_bytes + cost_bytes > self._limit_bytes:
            self._drop(output, n_bytes)
        else:
            self._held_bytes += cost_bytes
            self._wait(output, cost_bytes)
            self._look_at_level()

    def bound(self) -> None:
        """Nobody pauses any more, so drop what finds `LAST_BYTES` more waiting than may."""
        self._limit_bytes = self._backlog_bytes + LAST_BYTES

    def _taken(self, message: object, cost_bytes: int) -> bool:
        if self._waiting or (cost_bytes and not self._has_room(cost_bytes)):
            return False
        due = self._unreceipted_bytes + cost_bytes
        try:
            self._target.tell(self._sealed(message, due))
        except MailboxFullError:
            return False
        self._count(cost_bytes, due)
        return True

    def _has_room(self, cost_bytes: int) -> bool:
        """Whether one more output may lie there; any may while no receipt is awaited."""
        return not self._receipts or self._there_bytes + cost_bytes <= self._mailbox_bytes

    def _sealed(self, message: object, due: int) -> object:
        """Return what to tell so that ``message`` arrives: with a receipt if one is due for so many bytes."""
        return message if due <= self._receipt_bytes else WithReceipt(message, partial(self._left, due))

    def _count(self, cost_bytes: int, due: int) -> None:
        self._there_bytes += cost_bytes
        if due <= self._receipt_bytes:
            self._unreceipted_bytes = due
        else:
            self._unreceipted_bytes = 0
            self._receipts += 1

    def _left(self, n_bytes: int) -> None:
        """So much output is in the mailbox no more."""
        self._there_bytes -= n_bytes
        self._receipts -= 1
        if self._room is not None:
            self._room.set(None)

    def _drop(self, output: object, n_bytes: int) -> None:
        self.dropped += len(output) if isinstance(output, ProcessLines) else 1
        self.dropped_bytes += n_bytes

    def _wait(self, message: object, cost_bytes: int) -> None:
        self._waiting.append((message, cost_bytes))
        if not self._sending:
            self._sending = True
            self._loop.start_task(self._send(), name="swactor process notifications")

    async def _send(self) -> None:
        while self._waiting:
            message, cost_bytes = self._waiting[0]
            while cost_bytes and not self._has_room(cost_bytes):
                self._room = self._loop.waiter()
                await self._room.wait()
            self._room = None
            due = self._unreceipted_bytes + cost_bytes
            await self._target.send(self._sealed(message, due))
            self._count(cost_bytes, due)
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
