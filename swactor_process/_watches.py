"""Many descriptors behind one: the event loop watches an epoll instance, and that watches the children.

Owns: `Watches`, `is_readable`. Not here: what is read. A watch of the loop costs ten times as much, on trio a
hundred times.
"""

import select
from collections.abc import Callable
from functools import partial

from swactor.abc import Cancellable, Loop

EVENTS_A_TURN = 16
"""So many callbacks, then whatever else the loop has to do; the kernel goes on with those left over."""


class Watches:
    """Watches descriptors for one loop. Nothing is open before the first watch."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._epoll: select.epoll | None = None
        self._watch: Cancellable | None = None
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._closing = False

    def watch_readable(
        self, descriptor: int, callback: Callable[[], None], *, once: bool = False
    ) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is readable or at its end, until cancelled, or once only.

        A callback may come once too often: when the descriptor was closed and its number given to another
        one within one turn.
        """
        if self._epoll is None:
            self._epoll = select.epoll()
            self._watch = self._loop.watch_readable(self._epoll.fileno(), self._call)
        self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT if once else select.EPOLLIN)
        self._callbacks[descriptor] = callback
        return _Watch(self, descriptor)

    def unwatch(self, descriptor: int) -> None:
        """Forget ``descriptor``, which has to be open still."""
        del self._callbacks[descriptor]
        if self._epoll is not None:
            self._epoll.unregister(descriptor)
        if self._closing:
            self.close()

    def close(self) -> None:
        """Close what is open, now or with the last watch that there still is."""
        self._closing = bool(self._callbacks)
        if self._epoll is None or self._watch is None or self._closing:
            return
        self._watch.cancel()
        self._epoll.close()
        self._epoll = self._watch = None

    def _call(self) -> None:
        if self._epoll is None:
            return
        for descriptor, _ in self._epoll.poll(0, EVENTS_A_TURN):
            callback = self._callbacks.get(descriptor)
            if callback is None:
                continue  # one of the callbacks before has called this one off
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - the loop reports it, the others have their turn
                self._loop.call_soon(partial(_raise, error))


class _Watch:
    __slots__ = ("_descriptor", "_watches")

    def __init__(self, watches: Watches, descriptor: int) -> None:
        self._watches: Watches | None = watches
        self._descriptor = descriptor

    def cancel(self) -> None:
        """See `Cancellable.cancel`."""
        watches, self._watches = self._watches, None
        if watches is not None:
            watches.unwatch(self._descriptor)


def is_readable(descriptor: int) -> bool:
    """Whether there is something to read from ``descriptor`` now, or it is at its end."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _raise(error: Exception) -> None:
    raise error
