"""What one link tells of its connection: that it came and went, and what there is to know of it now.

Owns: generations, times, the last failure; the events `LinkUp`, `LinkLost`, `ConnectionCacheInvalidated`.
Not here: the connection itself (``link``, ``carrier``), what dials tell (``dialler``).
"""

from swactor import Context, NodeId
from swactor.cluster.events import (
    ConnectionCacheInvalidated,
    InvalidationReason,
    LinkLoss,
    LinkLost,
    LinkUp,
)
from swactor.cluster.link_messages import LinkMessage
from swactor.cluster.transport import DialFailed, LossReason
from swactor.cluster.views import ConnectionView


class LinkRecord:
    """See the module. A generation is one time the link was up; the first is 1."""

    __slots__ = ("_created_at_ms", "_generation", "_last_failure", "_last_send_at_ms", "_peer", "_up_ns")

    def __init__(self, peer: NodeId) -> None:
        self._peer = peer
        self._generation = 0
        self._up_ns = 0
        self._created_at_ms: int | None = None
        self._last_send_at_ms: int | None = None
        self._last_failure: tuple[int, str] | None = None

    def up(self, ctx: Context[LinkMessage], *, dialled: bool) -> None:
        """Note and report that the link is up; ``dialled``: this side has dialled."""
        self._generation += 1
        self._up_ns = ctx.clock.monotonic_ns()
        self._created_at_ms = ctx.clock.wall_ms()
        self._last_failure = None
        ctx.emit(LinkUp(peer=self._peer, generation=self._generation, dialled=dialled))

    def up_for_ns(self, now_ns: int) -> int:
        """Return how long ago the link came up."""
        return now_ns - self._up_ns

    def sent(self, at_ms: int) -> None:
        """Note that a write was handed over."""
        self._last_send_at_ms = at_ms

    def dial_failed(self, failed: DialFailed, at_ms: int) -> None:
        """Note why there is no link."""
        self._last_failure = (
            at_ms,
            f"{InvalidationReason.SEND_FAILED}: {failed.outcome} {failed.text}".rstrip(),
        )

    def lost(
        self, ctx: Context[LinkMessage], cause: LinkLoss, reason: LossReason, *, bytes_unacknowledged: int
    ) -> None:
        """Note and report that the link is up no more."""
        self._last_failure = (ctx.clock.wall_ms(), InvalidationReason.CONNECTION_CLOSED.value)
        ctx.emit(
            ConnectionCacheInvalidated(
                peer=self._peer, generation=self._generation, reason=InvalidationReason.CONNECTION_CLOSED
            )
        )
        ctx.emit(
            LinkLost(
                peer=self._peer,
                generation=self._generation,
                cause=cause,
                loss_kind=reason.kind,
                text=reason.text,
                duration_ms=self.up_for_ns(ctx.clock.monotonic_ns()) // 1_000_000,
                bytes_unacknowledged=bytes_unacknowledged,
            )
        )

    def view(self, *, is_up: bool, frames_waiting: int, bytes_unacknowledged: int) -> ConnectionView:
        """Return what there is to know of the connection right now."""
        at_ms, reason = self._last_failure or (None, None)
        return ConnectionView(
            peer=self._peer,
            is_up=is_up,
            generation=self._generation,
            created_at_ms=self._created_at_ms,
            last_successful_send_at_ms=self._last_send_at_ms,
            last_failure_at_ms=at_ms,
            last_failure_reason=reason,
            frames_waiting=frames_waiting,
            bytes_unacknowledged=bytes_unacknowledged,
        )
