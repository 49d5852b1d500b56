"""The conformance suite of the transport seam: what every transport has to pass.

Answers: does this transport keep the rules that links rely on (see ``swactor.cluster.transport._base``)?
Owns: `TRANSPORT_CHECKS`. Not here: links, membership, anything above the seam.

Use: write an async context manager that yields a `TransportPair`, two transports of one kind, neither
started, each able to dial the other, and run::

    @pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
    async def test_my_transport(check): await check(make_pair)

The pair's addresses are callables, since a transport may know its address only once it has started. Checks
start both transports; the pair's exit closes them.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from swactor import NodeId, SwactorError
from swactor.abc import Loop, Waiter
from swactor.cluster.transport import (
    Connection,
    DialFailed,
    LossKind,
    LossReason,
    PeerAddress,
    Transport,
)
from swactor.testing import Conditions

STEP_TIMEOUT_S = 10.0
"""How long a check waits for one thing to happen, in the loop's time."""


class TransportCheckError(SwactorError):
    """The transport breaks a rule of the seam; the text says which."""


@dataclass(frozen=True)
class TransportPair:
    """Two transports that can dial each other, and the loop they run on."""

    loop: Loop
    one: Transport
    other: Transport
    other_address: Callable[[], PeerAddress]
    stranger: PeerAddress
    """An address where nobody answers."""


MakePair = Callable[[], AbstractAsyncContextManager[TransportPair]]
Check = Callable[[MakePair], Awaitable[None]]


class Recording:
    """A connection with a listener that keeps everything."""

    def __init__(self, loop: Loop, connection: Connection) -> None:
        self.connection = connection
        self.received_bytes = bytearray()
        self.writes_done = 0
        self.losses: list[LossReason] = []
        self.calls_after_loss = 0
        self.called_inside = False
        self._in_call = True
        self._conditions = Conditions(loop)
        connection.start(self)
        self._in_call = False

    def received(self, data: bytes) -> None:
        """Keep the bytes."""
        self._note()
        self.received_bytes += data
        self._conditions.changed()

    def written(self) -> None:
        """Count."""
        self._note()
        self.writes_done += 1
        self._conditions.changed()

    def lost(self, reason: LossReason) -> None:
        """Keep the reason."""
        self._note()
        self.losses.append(reason)
        self._conditions.changed()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until ``condition`` holds.

        Raises:
            TransportCheckError: it does not within `STEP_TIMEOUT_S`.
        """
        await _until(self._conditions, condition, what)

    async def until_lost(self, what: str) -> None:
        """Wait until the connection is lost; raises as `until` does."""
        await self.until(lambda: bool(self.losses), what)

    async def write(self, data: bytes) -> None:
        """Write and wait for ``written``."""
        done = self.writes_done
        self._in_call = True
        self.connection.write(data)
        self._in_call = False
        await self.until(lambda: self.writes_done > done or bool(self.losses), "written()")

    def close(self, code: int, reason: str) -> None:
        """Close."""
        self._in_call = True
        self.connection.close(code, reason)
        self._in_call = False

    def _note(self) -> None:
        self.called_inside = self.called_inside or self._in_call
        self.calls_after_loss += bool(self.losses)


class Started:
    """A pair that was started, and the connections that came in."""

    def __init__(self, pair: TransportPair) -> None:
        self.pair = pair
        self.inbound: list[tuple[NodeId, Recording]] = []
        self.conditions = Conditions(pair.loop)

    async def start(self) -> "Started":
        """Start both transports."""
        await self.pair.one.start(self._on_inbound)
        await self.pair.other.start(self._on_inbound)
        return self

    async def dial(self, dialler: Transport, address: PeerAddress) -> Connection | DialFailed:
        """Dial and return what came of it."""
        results: list[Connection | DialFailed] = []

        def on_done(result: Connection | DialFailed) -> None:
            results.append(result)
            self.conditions.changed()

        dialler.dial(address, on_done)
        _require(not results, "on_done comes later, not from inside dial()")
        await _until(self.conditions, lambda: bool(results), "the dial to end")
        _require(len(results) == 1, "on_done comes once")
        return results[0]

    async def connect(self) -> tuple[Recording, Recording]:
        """Return both ends of a connection from ``one`` to ``other``."""
        known = len(self.inbound)
        result = await self.dial(self.pair.one, self.pair.other_address())
        if isinstance(result, DialFailed):
            raise TransportCheckError(f"the dial failed: {result.outcome} {result.text}")
        here = Recording(self.pair.loop, result)
        await here.write(b"!")  # some transports show a connection only with its first byte
        await _until(self.conditions, lambda: len(self.inbound) > known, "the inbound connection")
        there = self.inbound[-1][1]
        await there.until(lambda: bytes(there.received_bytes) == b"!", "the first byte")
        there.received_bytes.clear()
        return here, there

    def _on_inbound(self, connection: Connection) -> None:
        self.inbound.append((connection.peer, Recording(self.pair.loop, connection)))
        self.conditions.changed()


async def bytes_arrive_in_order_both_ways(make_pair: MakePair) -> None:
    """Writes of all sizes arrive complete and in order, in both directions at once."""
    async with make_pair() as pair:
        here, there = await (await Started(pair).start()).connect()
        sizes = (1, 100, 1_000, 70_000, 300_000, 3)
        forth = [bytes([n + 1]) * size for n, size in enumerate(sizes)]
        for data in forth:
            await here.write(data)
            await there.write(data[::-1] + b".")
        sent, answered = b"".join(forth), b"".join(data[::-1] + b"." for data in forth)
        await there.until(lambda: len(there.received_bytes) >= len(sent), "all bytes there")
        await here.until(lambda: len(here.received_bytes) >= len(answered), "all bytes here")
        _require(bytes(there.received_bytes) == sent, "bytes arrive unchanged and in order")
        _require(bytes(here.received_bytes) == answered, "and so do those of the answering side")
        _require(here.writes_done == len(sizes) + 1, "written() comes once a write")
        _require(not here.called_inside, "no callback comes from inside write()")


async def ends_know_each_other(make_pair: MakePair) -> None:
    """Each end names the node id of the other, as proven by the transport."""
    async with make_pair() as pair:
        started = await Started(pair).start()
        here, there = await started.connect()
        _require(here.connection.peer == pair.other.node_id, "the dialler knows whom it reached")
        _require(there.connection.peer == pair.one.node_id, "the dialled side knows who came")


async def close_is_reported_once_on_both_sides(make_pair: MakePair) -> None:
    """Code and reason of a close reach the peer; ``lost`` is the last callback, once, on either side."""
    async with make_pair() as pair:
        here, there = await (await Started(pair).start()).connect()
        here.close(7, "enough")
        here.close(8, "again")
        await here.until_lost("lost() here")
        await there.until_lost("lost() there")
        here.connection.write(b"too late")
        _require(not here.called_inside, "lost() comes later, not from inside close()")
        mine, theirs = here.losses[0], there.losses[0]
        _require(mine.kind is LossKind.CLOSED_HERE, f"the closing side sees closed_here, not {mine.kind}")
        _require(theirs.kind is LossKind.CLOSED_BY_PEER, f"the peer sees closed_by_peer, not {theirs.kind}")
        _require((theirs.code, theirs.text) == (7, "enough"), f"code and reason arrive, not {theirs}")
        await _quiet(pair.loop)
        _require(len(here.losses) == len(there.losses) == 1, "lost() comes once")
        _require(here.calls_after_loss == there.calls_after_loss == 0, "nothing comes after lost()")


async def close_with_a_write_in_progress_is_safe(make_pair: MakePair) -> None:
    """Closing does not wait for a write; exactly one ``lost`` follows."""
    async with make_pair() as pair:
        here, there = await (await Started(pair).start()).connect()
        here.connection.write(b"x" * 500_000)
        here.close(7, "in the middle")
        await here.until_lost("lost() here")
        await there.until_lost("lost() there")
        await _quiet(pair.loop)
        _require(len(here.losses) == len(there.losses) == 1, "lost() comes once")


async def closing_the_transport_ends_its_connections(make_pair: MakePair) -> None:
    """``Transport.close`` ends every connection on both sides, and may be repeated."""
    async with make_pair() as pair:
        started = await Started(pair).start()
        here, there = await started.connect()
        await pair.one.close()
        await pair.one.close()
        await here.until_lost("lost() here")
        await there.until_lost("lost() there")
        _require(here.losses[0].kind is LossKind.TRANSPORT_CLOSED, f"not {here.losses[0].kind}")


async def a_dial_to_nobody_fails_in_time(make_pair: MakePair) -> None:
    """A dial that reaches nobody ends with `DialFailed`, a few seconds later at most."""
    async with make_pair() as pair:
        started = await Started(pair).start()
        result = await started.dial(pair.one, pair.stranger)
        _require(isinstance(result, DialFailed), "nobody is there, so the dial fails")


async def a_cancelled_dial_reports_nothing(make_pair: MakePair) -> None:
    """After ``cancel`` the callback does not come, and no connection is left open."""
    async with make_pair() as pair:
        started = await Started(pair).start()
        results: list[Connection | DialFailed] = []
        dial = pair.one.dial(pair.other_address(), results.append)
        dial.cancel()
        dial.cancel()
        await started.connect()  # a later dial is not disturbed
        await _quiet(pair.loop)
        _require(not results, "on_done does not come after cancel()")
        for _, other_end in started.inbound[:-1]:
            await other_end.until_lost("the late connection to be closed")


async def bytes_before_start_are_kept(make_pair: MakePair) -> None:
    """What arrives before ``Connection.start`` is handed over by it."""
    async with make_pair() as pair:
        accepted: list[Connection] = []
        conditions = Conditions(pair.loop)

        def keep(connection: Connection) -> None:
            accepted.append(connection)
            conditions.changed()

        await pair.one.start(lambda connection: connection.close(0, "not expected"))
        await pair.other.start(keep)
        started = Started(pair)
        result = await started.dial(pair.one, pair.other_address())
        if isinstance(result, DialFailed):
            raise TransportCheckError(f"the dial failed: {result.text}")
        here = Recording(pair.loop, result)
        await here.write(b"early")
        await _until(conditions, lambda: bool(accepted), "the inbound connection")
        await _quiet(pair.loop)
        there = Recording(pair.loop, accepted[0])
        await there.until(lambda: bytes(there.received_bytes) == b"early", "the early bytes")


TRANSPORT_CHECKS: tuple[Check, ...] = (
    bytes_arrive_in_order_both_ways,
    ends_know_each_other,
    close_is_reported_once_on_both_sides,
    close_with_a_write_in_progress_is_safe,
    closing_the_transport_ends_its_connections,
    a_dial_to_nobody_fails_in_time,
    a_cancelled_dial_reports_nothing,
    bytes_before_start_are_kept,
)


async def _until(conditions: Conditions, condition: Callable[[], bool], what: str) -> None:
    if not await conditions.wait(condition, timeout_s=STEP_TIMEOUT_S):
        raise TransportCheckError(f"waited {STEP_TIMEOUT_S:g} s in vain for {what}")


async def _quiet(loop: Loop) -> None:
    """Let callbacks that are still to come come."""
    waiter: Waiter[None] = loop.waiter()
    loop.call_later(0.2, lambda: waiter.set(None))
    await waiter.wait()


def _require(holds: bool, rule: str) -> None:  # noqa: FBT001 - reads like an assertion
    if not holds:
        raise TransportCheckError(rule)
