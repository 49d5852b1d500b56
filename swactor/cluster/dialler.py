"""The dials to one peer: at most one under way, each reported as it ends, further apart the more have failed.

Owns: numbering and reporting dials, the address they go to, the backoff between them.
Not here: whether to dial, and what becomes of a connection (``link``); the network (``transport``).
"""

from msgspec import UNSET

from swactor import Context, NodeId
from swactor.abc import Cancellable
from swactor.cluster.events import DialErrorText, DialOutcome, DialStarted
from swactor.cluster.link_messages import Dialled, LinkMessage, Redial
from swactor.cluster.session import GREETING_MAX_NS
from swactor.cluster.transport import DIAL_TIMEOUT_MS, DialFailed, DialResult, PeerAddress, Transport

BACKOFF_MS_MIN = 50
BACKOFF_MS_MAX = 3_000


class Dialler:
    """See the module. A dial has succeeded when the peer has greeted, not as soon as it connects."""

    __slots__ = (
        "_attempt",
        "_backoff_ms",
        "_number",
        "_peer",
        "_started_ns",
        "_transport",
        "_under_way",
        "address",
        "redial_waits",
    )

    def __init__(self, peer: NodeId, transport: Transport, address: PeerAddress) -> None:
        self.address = address
        self.redial_waits = False
        self._peer = peer
        self._transport = transport
        self._under_way: Cancellable | None = None
        self._number = 0  # of all dials, that a late `Dialled` is known as such
        self._attempt = 0  # of those since there was a link
        self._started_ns = 0
        self._backoff_ms = BACKOFF_MS_MIN

    def start(self, ctx: Context[LinkMessage]) -> None:
        """Dial; the link is told `Dialled`."""
        self._number += 1
        self._attempt += 1
        self._started_ns, number, link = ctx.clock.monotonic_ns(), self._number, ctx.ref
        ctx.emit(DialStarted(peer=self._peer, attempt=self._attempt, timeout_ms=DIAL_TIMEOUT_MS))
        self._under_way = self._transport.dial(
            self.address, lambda result: link.tell(Dialled(number, result))
        )

    def ended(self, number: int) -> bool:
        """Note that a dial has ended. False: that one was cancelled, its `Dialled` was on the way."""
        if self._under_way is None or number != self._number:
            return False
        self._under_way = None
        return True

    def cancel(self) -> None:
        """Give up the dial, if one is under way."""
        if self._under_way is not None:
            self._under_way.cancel()
            self._under_way = None

    def greeting_is_overdue(self, now_ns: int) -> bool:
        """Whether the peer should have greeted by now; connecting alone is timed by the transport."""
        return now_ns - self._started_ns > GREETING_MAX_NS

    def report(self, ctx: Context[LinkMessage], failed: DialFailed | None) -> None:
        """Say what has become of the last dial; None: it has brought a link."""
        outcome: str | DialErrorText = "Success"
        if failed is not None:
            is_error = failed.outcome is DialResult.ERROR
            outcome = DialErrorText(failed.text) if is_error else failed.outcome.value
        tunnel_is_down = failed is not None and self._transport.facts().tunnel_is_down
        ctx.emit(
            DialOutcome(
                peer=self._peer,
                attempt=self._attempt,
                outcome=outcome,
                duration_ms=(ctx.clock.monotonic_ns() - self._started_ns) // 1_000_000,
                tunnel_down=True if tunnel_is_down else UNSET,
            )
        )

    def redial_later(self, ctx: Context[LinkMessage]) -> None:
        """Have the link told `Redial` after the backoff, give or take a half of it."""
        delay_ms = self._backoff_ms // 2 + ctx.random.below(self._backoff_ms + 1)
        self._backoff_ms = min(self._backoff_ms * 2, BACKOFF_MS_MAX)
        self.redial_waits = True
        ctx.send_after(delay_ms / 1000, Redial())

    def forget_backoff(self) -> None:
        """Wait as after a first failure when the next dial fails."""
        self._backoff_ms = BACKOFF_MS_MIN

    def linked(self) -> None:
        """Note that there is a link, whoever dialled: the next dial is a first one."""
        self._attempt = 0
        self.forget_backoff()
