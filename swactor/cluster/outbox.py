"""What waits to be sent to a peer: one bounded queue a peer, filled by everybody, emptied by its link.

Owns: the bound, the order, waking the link once for many messages.
Not here: connections, windows (``session``), encoding (``wire``). Pure.

A message is queued whether or not there is a connection, and survives a reconnect; it is sent at most once.
Membership and name gossip go in as datagrams: without a connection only the newest few are kept, since an old
ping says nothing.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from swactor import ActorRef, NodeId
from swactor.abc import Waiter

FRAMES_MAX = 10_000
BYTES_MAX = 64 << 20
"""When either is reached the sender is refused; a single larger frame still fits an empty queue."""

DATAGRAMS_MAX = 8


class Outbox:
    """Frames for one peer, oldest first. ``wake`` is called when something came into an idle outbox."""

    __slots__ = ("_bytes", "_datagrams", "_frames", "_room", "_wake", "_woken", "dropped", "link", "peer")

    def __init__(self, peer: NodeId, wake: Callable[["Outbox"], None]) -> None:
        self.peer = peer
        self.dropped = 0
        self.link: ActorRef[Any] | None = None  # whoever is woken, once there is one
        self._wake = wake
        self._woken = False
        self._frames: list[bytes] = []
        self._bytes = 0
        self._datagrams: deque[bytes] = deque()
        self._room: list[Waiter[None]] = []

    def __len__(self) -> int:
        return len(self._frames) + len(self._datagrams)

    def put(self, frame: bytes) -> bool:
        """Queue ``frame``; return False, and keep nothing, when there is no room."""
        if len(self._frames) >= FRAMES_MAX or (self._frames and self._bytes + len(frame) > BYTES_MAX):
            return False
        self._frames.append(frame)
        self._bytes += len(frame)
        self._call()
        return True

    def put_datagram(self, frame: bytes) -> None:
        """Queue ``frame`` ahead of messages; the oldest datagram is dropped, counted, when there are many."""
        if len(self._datagrams) >= DATAGRAMS_MAX:
            self._datagrams.popleft()
            self.dropped += 1
        self._datagrams.append(frame)
        self._call()

    def wait_for_room(self, waiter: Waiter[None]) -> None:
        """Set ``waiter`` when the queue was emptied."""
        self._room.append(waiter)

    def take(self) -> list[bytes]:
        """Return everything queued, to be sent now."""
        self._woken = False
        taken = [*self._datagrams, *self._frames]
        self._datagrams.clear()
        self._empty()
        return taken

    def clear(self) -> int:
        """Drop everything, counted, and return how many messages that were."""
        count = len(self._frames)
        self.dropped += count
        self.take()
        return count

    def _empty(self) -> None:
        self._frames = []
        self._bytes = 0
        room, self._room = self._room, []
        for waiter in room:
            waiter.set(None)

    def _call(self) -> None:
        if not self._woken:
            self._woken = True
            self._wake(self)


class Outboxes:
    """The outbox of every peer, made on first use."""

    def __init__(self, wake: Callable[[Outbox], None]) -> None:
        self._wake = wake
        self._by_peer: dict[NodeId, Outbox] = {}

    def of(self, peer: NodeId) -> Outbox:
        """Return the outbox of ``peer``."""
        outbox = self._by_peer.get(peer)
        if outbox is None:
            outbox = self._by_peer[peer] = Outbox(peer, self._wake)
        return outbox

    def __iter__(self) -> Iterator[Outbox]:
        return iter(self._by_peer.values())
