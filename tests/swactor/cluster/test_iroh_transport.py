"""The iroh transport with real endpoints on loopback, without a relay."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from swactor import ActorSystem, Event, SystemClock
from swactor.cluster.events import IrohConnTypeChanged
from swactor.cluster.identity import NodeKey
from swactor.cluster.testing import TRANSPORT_CHECKS, Check, TransportPair
from swactor.cluster.transport import (
    Connection,
    ConnType,
    DialFailed,
    DialResult,
    LossKind,
    LossReason,
    PeerAddress,
)
from swactor.cluster.transport.iroh import IrohStartError, IrohTransport

DEADLINE_S = 20
ALPN = b"swactor/test"
NOBODY = PeerAddress(NodeKey(b"\x63" * 32).node_id, None, ("127.0.0.1:9",))


@asynccontextmanager
async def make_pair() -> AsyncIterator[TransportPair]:
    one, other = End(1), End(2)
    async with ActorSystem() as system:
        yield TransportPair(
            loop=system.loop,
            one=one.transport,
            other=other.transport,
            other_address=lambda: other.address,
            stranger=NOBODY,
        )
        await one.transport.close()
        await other.transport.close()


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
async def test_it_keeps_the_rules_of_the_seam(check: Check) -> None:
    await check(make_pair)


class Ear:
    """Hears one connection and lets a test wait for what it is waiting for."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.data = bytearray()
        self.writes = 0
        self.losses: list[LossReason] = []
        self._heard = anyio.Event()
        connection.start(self)

    def received(self, data: bytes) -> None:
        assert data
        assert not self.losses
        self.data += data
        self._notice()

    def written(self) -> None:
        assert not self.losses
        self.writes += 1
        self._notice()

    def lost(self, reason: LossReason) -> None:
        self.losses.append(reason)
        self._notice()

    async def until(self, condition: Callable[["Ear"], bool]) -> None:
        with anyio.fail_after(DEADLINE_S):
            while not condition(self):
                await self._heard.wait()

    async def write(self, data: bytes) -> None:
        before = self.writes
        self.connection.write(data)
        await self.until(lambda ear: ear.writes > before)

    async def loss(self) -> LossReason:
        await self.until(lambda ear: bool(ear.losses))
        return self.losses[0]

    def _notice(self) -> None:
        heard, self._heard = self._heard, anyio.Event()
        heard.set()


class End:
    """One transport with what it reported and accepted."""

    def __init__(self, seed: int, *, alpn: bytes = ALPN) -> None:
        self.events: list[Event] = []
        self.transport = IrohTransport(
            bytes([seed]) * 32,
            relay_url=None,
            alpn=alpn,
            clock=SystemClock(),
            emit=self.events.append,
            bind_addr="127.0.0.1:0",
        )
        self.inbound: list[Connection] = []
        self._came = anyio.Event()

    async def start(self) -> None:
        await self.transport.start(self._on_inbound)

    def _on_inbound(self, connection: Connection) -> None:
        self.inbound.append(connection)
        self._came.set()

    @property
    def address(self) -> PeerAddress:
        return self.transport.facts().local_address

    async def accepted(self) -> Connection:
        with anyio.fail_after(DEADLINE_S):
            while not self.inbound:
                self._came = anyio.Event()
                await self._came.wait()
        return self.inbound.pop(0)

    async def dial(self, address: PeerAddress) -> Connection | DialFailed:
        answers: list[Connection | DialFailed] = []
        answered = anyio.Event()

        def on_done(answer: Connection | DialFailed) -> None:
            answers.append(answer)
            answered.set()

        self.transport.dial(address, on_done)
        assert not answers
        with anyio.fail_after(DEADLINE_S):
            await answered.wait()
        return answers[0]

    async def connected_to(self, other: "End") -> tuple[Ear, Ear]:
        dialled = await self.dial(other.address)
        assert not isinstance(dialled, DialFailed), dialled
        return Ear(dialled), Ear(await other.accepted())


@pytest.fixture
async def ends() -> AsyncIterator[tuple[End, End]]:
    one, two = End(1), End(2)
    await one.start()
    await two.start()
    yield one, two
    await one.transport.close()
    await two.transport.close()


async def test_both_ends_know_who_the_other_is(ends: tuple[End, End]) -> None:
    here, there = await ends[0].connected_to(ends[1])

    assert here.connection.peer == ends[1].transport.node_id == NodeKey(b"\x02" * 32).node_id
    assert there.connection.peer == ends[0].transport.node_id


async def test_the_accepting_side_may_speak_first(ends: tuple[End, End]) -> None:
    here, there = await ends[0].connected_to(ends[1])

    await there.write(b"welcome")

    await here.until(lambda ear: ear.data == b"welcome")


def counter(end: End, group: str, name: str) -> int:
    counters = {(one.group, one.name): one.value for one in end.transport.facts().counters}
    return counters.get((group, name), 0)


async def test_bytes_arrive_in_order_both_ways_at_once(ends: tuple[End, End]) -> None:
    here, there = await ends[0].connected_to(ends[1])
    forth = b"".join(number.to_bytes(4, "big") for number in range(2_000))
    back = forth[::-1]

    async def send(ear: Ear, data: bytes) -> None:
        for start in range(0, len(data), 100):
            await ear.write(data[start : start + 100])

    async with anyio.create_task_group() as group:
        group.start_soon(send, here, forth)
        group.start_soon(send, there, back)

    await there.until(lambda ear: len(ear.data) == len(forth))
    await here.until(lambda ear: len(ear.data) == len(back))
    assert there.data == forth
    assert here.data == back


async def test_a_write_far_beyond_the_window_arrives_whole(ends: tuple[End, End]) -> None:
    here, there = await ends[0].connected_to(ends[1])
    blob = bytes(range(256)) * (4 << 12)

    here.connection.write(blob)

    await there.until(lambda ear: len(ear.data) == len(blob))
    assert there.data == blob
    await here.until(lambda ear: ear.writes == 1)


async def test_bytes_sent_before_the_receiver_starts_are_kept(ends: tuple[End, End]) -> None:
    dialled = await ends[0].dial(ends[1].address)
    assert not isinstance(dialled, DialFailed)
    await Ear(dialled).write(b"early")

    there = Ear(await ends[1].accepted())

    await there.until(lambda ear: ear.data == b"early")


async def test_a_second_write_before_written_is_a_mistake(ends: tuple[End, End]) -> None:
    here, _ = await ends[0].connected_to(ends[1])

    here.connection.write(b"1")

    with pytest.raises(RuntimeError, match="one write at a time"):
        here.connection.write(b"2")
    await here.until(lambda ear: ear.writes == 1)


async def test_code_and_reason_of_a_close_reach_the_peer(ends: tuple[End, End]) -> None:
    here, there = await ends[0].connected_to(ends[1])

    here.connection.close(7, "enough")
    assert not here.losses

    assert await here.loss() == LossReason(LossKind.CLOSED_HERE, "enough", 7)
    assert await there.loss() == LossReason(LossKind.CLOSED_BY_PEER, "enough", 7)


async def test_a_loss_is_reported_once_and_last(ends: tuple[End, End]) -> None:
    here, there = await ends[0].connected_to(ends[1])

    here.connection.write(b"x" * 3_000_000)  # still in progress when it is cut off
    here.connection.close(1, "first")
    here.connection.close(2, "second")
    there.connection.close(3, "third")
    await here.loss()
    await there.loss()
    here.connection.write(b"after the end")
    await ends[0].connected_to(ends[1])

    assert len(here.losses) == len(there.losses) == 1
    assert here.losses[0].code == 1
    assert here.writes == 0


async def test_a_connection_lost_before_it_is_started_says_so_when_it_is(ends: tuple[End, End]) -> None:
    dialled = await ends[0].dial(ends[1].address)
    accepted = await ends[1].accepted()
    assert not isinstance(dialled, DialFailed)
    Ear(dialled).connection.close(9, "gone")
    await ends[0].connected_to(ends[1])

    assert await Ear(accepted).loss() == LossReason(LossKind.CLOSED_BY_PEER, "gone", 9)


async def test_a_receiver_that_raises_costs_its_connection_only(ends: tuple[End, End]) -> None:
    here, there = await ends[0].connected_to(ends[1])
    complaints: list[str] = []
    collect_complaints(complaints)
    dialled = await ends[0].dial(ends[1].address)
    assert not isinstance(dialled, DialFailed)

    class Broken(Ear):
        def received(self, data: bytes) -> None:
            raise ValueError("broken receiver")

    broken = Broken(await ends[1].accepted())
    await Ear(dialled).write(b"x")

    loss = await broken.loss()
    assert loss.kind is LossKind.ERROR
    assert "broken receiver" in loss.text
    assert complaints == ["a connection listener failed"]
    await here.write(b"still fine")
    await there.until(lambda ear: ear.data == b"still fine")


def collect_complaints(complaints: list[str]) -> None:
    """Collect what the event loop would print."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(str(context["message"])))


async def test_dialling_without_any_address_has_no_route(ends: tuple[End, End]) -> None:
    answer = await ends[0].dial(PeerAddress(NOBODY.node_id))

    assert isinstance(answer, DialFailed)
    assert answer.outcome is DialResult.NO_ROUTE
    assert "No addressing information" in answer.text


async def test_a_peer_that_speaks_another_protocol_is_an_error(ends: tuple[End, End]) -> None:
    stranger = End(3, alpn=b"other")
    await stranger.start()

    answer = await ends[0].dial(stranger.address)

    assert isinstance(answer, DialFailed)
    assert answer.outcome is DialResult.ERROR
    await stranger.transport.close()


async def test_a_dial_that_was_called_off_brings_no_connection(ends: tuple[End, End]) -> None:
    answers: list[Connection | DialFailed] = []

    dial = ends[0].transport.dial(ends[1].address, answers.append)
    dial.cancel()
    dial.cancel()
    with anyio.fail_after(DEADLINE_S):
        while counter(ends[0], "socket", "num_conns_closed") == 0:  # noqa: ASYNC110 - nothing else tells of it
            await anyio.sleep(0.01)

    assert answers == []
    assert ends[1].inbound == []
    assert ends[0].transport.facts().peers == ()


async def test_closing_ends_connections_and_later_dials_fail(ends: tuple[End, End]) -> None:
    here, there = await ends[0].connected_to(ends[1])
    address = ends[0].address

    await ends[0].transport.close()
    await ends[0].transport.close()

    assert (await here.loss()).kind is LossKind.TRANSPORT_CLOSED
    assert await there.loss() == LossReason(LossKind.CLOSED_BY_PEER, "the transport was closed", 0)
    assert isinstance(await ends[0].dial(ends[1].address), DialFailed)
    assert await ends[1].dial(address) == DialFailed(DialResult.TIMEOUT, "no connection within 5000 ms")


async def test_closing_answers_the_dials_that_are_out(ends: tuple[End, End]) -> None:
    answers: list[Connection | DialFailed] = []
    ends[0].transport.dial(NOBODY, answers.append)

    await ends[0].transport.close()

    assert answers == [DialFailed(DialResult.ERROR, "the transport was closed")]


async def test_facts_show_the_path_and_keep_it_after_the_end(ends: tuple[End, End]) -> None:
    here, there = await ends[0].connected_to(ends[1])
    await here.write(b"x" * 10_000)
    await there.until(lambda ear: len(ear.data) == 10_000)

    (peer,) = ends[0].transport.facts().peers
    here.connection.close(0, "")
    await here.loss()
    (after,) = ends[0].transport.facts().peers

    assert peer.peer == after.peer == ends[1].transport.node_id
    assert (peer.conn_type, after.conn_type) == (ConnType.DIRECT, ConnType.NONE)
    assert peer.rtt_ms is not None
    assert after.rtt_ms is None
    assert (after.tx_bytes or 0) >= 10_000
    assert peer.direct_addresses[0].active
    assert not after.direct_addresses[0].active
    changes = [event for event in ends[0].events if isinstance(event, IrohConnTypeChanged)]
    assert [(change.old, change.new) for change in changes] == [
        (ConnType.NONE, ConnType.DIRECT),
        (ConnType.DIRECT, ConnType.NONE),
    ]


async def test_facts_name_versions_gaps_counters_and_the_own_address(ends: tuple[End, End]) -> None:
    here, _ = await ends[0].connected_to(ends[1])
    here.connection.close(0, "")
    await here.loss()

    facts = ends[0].transport.facts()

    assert facts.transport == "iroh"
    assert dict(facts.versions).keys() >= {"wheel", "iroh", "noq"}
    assert "TransportAddrInfo.source" in facts.api_gaps
    assert "RelayTunnel.tx_bytes_total" not in facts.api_gaps
    assert facts.local_address.node_id == ends[0].transport.node_id
    assert facts.local_address.direct_addresses
    assert facts.tunnel is None
    assert counter(ends[0], "socket", "num_conns_opened") == 1
    assert counter(ends[0], "transport", "lost_closed_here") == 1


async def test_facts_exist_before_start_and_after_close() -> None:
    end = End(4)
    before = end.transport.facts()
    await end.start()
    await end.transport.close()

    assert before.local_address == PeerAddress(end.transport.node_id)
    assert before.peers == ()
    assert end.transport.facts().counters


def test_only_a_transport_that_emits_claims_to_report_changes() -> None:
    silent = IrohTransport(b"\x07" * 32, relay_url=None, alpn=ALPN, clock=SystemClock())

    assert not silent.facts().reports_changes
    assert End(7).transport.facts().reports_changes


async def test_a_second_start_is_a_mistake(ends: tuple[End, End]) -> None:
    with pytest.raises(RuntimeError, match="started once"):
        await ends[0].start()


async def test_what_cannot_be_bound_says_so() -> None:
    end = End(5)
    end.transport = IrohTransport(
        b"\x05" * 32,
        relay_url="not a url",
        alpn=ALPN,
        clock=SystemClock(),
        emit=end.events.append,
    )

    with pytest.raises(IrohStartError, match="relay URL"):
        await end.start()
    await end.transport.close()


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_another_event_loop_than_asyncio_is_refused() -> None:
    with pytest.raises(IrohStartError, match="asyncio"):
        await End(6).transport.start(lambda connection: None)
