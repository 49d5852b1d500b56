"""What an administrator has imposed on node ids: kept out, read from not at all, or read from slowly.

Owns: who is under which drill, and how slowly a limited client is read. Pure. Dropped pairs are a matter of
routing (see ``sessions``). Not here: stopping the reading (see ``_carrier``).
"""

from swactor.relay.protocol import FRAME_BYTES_MAX
from swactor.relay.sessions import DRILLS_MAX, TooManyDrillsError


class Drills:
    """The drills of one relay, by key of the client."""

    def __init__(self) -> None:
        self.refused: set[bytes] = set()
        self.paused: set[bytes] = set()
        self.limited: dict[bytes, int] = {}

    def refuse(self, peer: bytes) -> None:
        """Keep ``peer`` out until it is admitted again.

        Raises:
            TooManyDrillsError: nothing was changed. The same for `pause` and `limit`.
        """
        _check_room(self.refused, peer, "refused ids")
        self.refused.add(peer)

    def pause(self, peer: bytes) -> None:
        """Have nothing read from ``peer``."""
        _check_room(self.paused, peer, "paused ids")
        self.paused.add(peer)

    def limit(self, peer: bytes, bytes_per_s: int) -> None:
        """Have at most so much read from each session of ``peer``."""
        _check_room(self.limited, peer, "limited ids")
        self.limited[peer] = bytes_per_s


def _check_room(held: set[bytes] | dict[bytes, int], peer: bytes, kind: str) -> None:
    if peer not in held and len(held) >= DRILLS_MAX:
        raise TooManyDrillsError(kind)


class Throttle:
    """A bucket of bytes that fills at a steady rate; who takes more than is in it waits until it is filled.

    It holds a tenth of a second's worth, at least the largest frame.
    """

    def __init__(self, bytes_per_s: int, *, now_ns: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._capacity = max(bytes_per_s / 10, FRAME_BYTES_MAX)
        self._held = self._capacity
        self._filled_ns = now_ns

    def take(self, n_bytes: int, *, now_ns: int) -> None:
        """Take so much out; may leave a debt."""
        self._fill(now_ns)
        self._held -= n_bytes

    def wait_s(self, now_ns: int) -> float:
        """Return how long it takes until the debt is paid; 0 when there is none."""
        self._fill(now_ns)
        return max(0.0, -self._held / self._bytes_per_s)

    def _fill(self, now_ns: int) -> None:
        gained = (now_ns - self._filled_ns) / 1e9 * self._bytes_per_s
        self._held = min(self._capacity, self._held + gained)
        self._filled_ns = now_ns
