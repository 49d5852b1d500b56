"""Whom a node may not judge as it is itself cut off: its tunnel is down, and they are reached through it.

Owns: since when, and for how long that is an excuse. Pure; times are monotonic nanoseconds.
Not here: what a judgement is (``swim``), the state of the tunnel (``paths``).
"""

from swactor import NodeId

PATIENCE_NS = 60_000_000_000
"""Who cannot be asked for longer than this is judged after all: somebody may wait to hear that it is gone."""
RETURN_NS_MAX = 20_000_000_000
"""The tunnels of others come back later than this node's, by up to 16 s after a long outage."""


class CutOff:
    """The tunnel of one node, as far as it excuses the silence of others."""

    def __init__(self) -> None:
        self._is_down = False
        self._since_ns = 0
        self._until_ns = 0
        self._direct: frozenset[NodeId] = frozenset()

    def look(self, *, is_down: bool, direct: frozenset[NodeId], now_ns: int) -> None:
        """Take note of the tunnel's state, and of who is reached ``direct``, without it.

        An outage goes on over any return that was shorter than the others had to come back: a tunnel that
        flaps is one outage, with one patience.
        """
        self._direct = direct
        if is_down and not self._is_down:
            if now_ns >= self._until_ns:
                self._since_ns = now_ns
            self._until_ns = self._since_ns + PATIENCE_NS
        elif self._is_down and not is_down:
            self._until_ns = now_ns + min(now_ns - self._since_ns, RETURN_NS_MAX)
        self._is_down = is_down

    def excuses(self, peer: NodeId, now_ns: int) -> bool:
        """Whether the silence of ``peer`` says nothing about it."""
        return now_ns < self._until_ns and peer not in self._direct
