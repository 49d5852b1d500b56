"""Probes: one port, one protocol, one outcome; on real sockets, and with names and times of a test's own."""

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from swactor import ActorSystem
from swactor.abc import Cancellable, Clock, Loop
from swactor.testing import until
from swactor_diag.introspect import Answer, Resolved, Resolver, Transmission, Tried
from swactor_diag.introspect.probes import (
    ProbesIntrospector,
    ProbeTarget,
    relay_target,
    targets_from_env,
)
from swactor_diag.introspect.sockets import SocketProber, ThreadResolver
from swactor_diag.schema.network import Probe, ProbeOutcome, ProbesBlock

PERIOD_NS = 10_000_000_000


class SettableClock(Clock):
    now_ns: int


class Later:
    """A call that was made; the test decides when it ends."""

    def __init__(self, callback: Callable[..., None]) -> None:
        self.callback = callback
        self.is_off = False

    def cancel(self) -> None:
        self.is_off = True


class Hand:
    """Scheduler, resolver and prober whose every answer is given by the test."""

    def __init__(self) -> None:
        self.timers: list[Later] = []
        self.asked: list[tuple[str, Later]] = []
        self.tried: list[tuple[str, int, Later]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        raise AssertionError

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        return self._kept(self.timers, Later(callback))

    def resolve(self, host: str, done: Callable[[Resolved], None]) -> Cancellable:
        self.asked.append((host, Later(done)))
        return self.asked[-1][1]

    def nameservers(self) -> tuple[str, ...]:
        return ()

    def attempt(
        self, transmission: Transmission, address: str, *, port: int, done: Callable[[Tried], None]
    ) -> Cancellable:
        self.tried.append((address, port, Later(done)))
        return self.tried[-1][2]

    @staticmethod
    def _kept(kept: list[Later], later: Later) -> Later:
        kept.append(later)
        return later

    def probes(self, clock: Clock, *targets: ProbeTarget) -> ProbesIntrospector:
        return ProbesIntrospector(clock=clock, scheduler=self, resolver=self, prober=self, targets=targets)


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return every_backend


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
async def loop() -> AsyncIterator[Loop]:
    async with ActorSystem() as system:
        yield system.loop


@contextmanager
def udp_port(loop: Loop, *, echoes: bool) -> Iterator[int]:
    """A UDP port that echoes, or that takes everything and says nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0)

        def echo() -> None:
            data, sender = server.recvfrom(1500)
            server.sendto(data, sender)

        watch = loop.watch_readable(server.fileno(), echo) if echoes else None
        try:
            yield int(server.getsockname()[1])
        finally:
            if watch is not None:
                watch.cancel()


def closed_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def udp(port: int, *, host: str = "127.0.0.1") -> ProbeTarget:
    return ProbeTarget("echo", "udp_echo", host, port, Transmission.UDP)


def rows(probes: ProbesIntrospector) -> tuple[Probe, ...]:
    block = probes.observe()
    assert isinstance(block, ProbesBlock)
    return block.probes


def only(probes: ProbesIntrospector) -> Probe:
    (row,) = rows(probes)
    return row


async def ended(probes: ProbesIntrospector, *, attempts: int = 1) -> Probe:
    """Wait until the only target was tried so often."""
    await until(lambda: only(probes).attempts >= attempts, timeout_s=30)
    return only(probes)


def on_sockets(
    loop: Loop,
    clock: Clock,
    *targets: ProbeTarget,
    resolver: Resolver | None = None,
    relay_url: str = "",
    limit_s: float = 20.0,
) -> ProbesIntrospector:
    return ProbesIntrospector(
        clock=clock,
        scheduler=loop,
        resolver=resolver or ThreadResolver(loop),
        prober=SocketProber(loop),
        targets=targets,
        relay_urls=lambda: (relay_url,) if relay_url else (),
        limit_s=limit_s,
    )


async def test_before_the_first_answer_a_target_is_pending(loop: Loop, clock: Clock) -> None:
    with udp_port(loop, echoes=True) as port:
        probes = on_sockets(loop, clock, udp(port))
        row = only(probes)
        assert (row.last_outcome, row.attempts, row.last_attempted_at_ms) == (ProbeOutcome.PENDING, 0, UNSET)
        row = await ended(probes)
        assert (row.last_outcome, row.attempts, row.successes) == (ProbeOutcome.OK, 1, 1)
        assert (row.host, row.port, row.protocol) == ("127.0.0.1", port, "udp")
        assert (row.resolved_addr, row.last_rtt_ms, row.last_error) == ("127.0.0.1", 0, UNSET)


async def test_fc039_a_closed_udp_port_is_refused_and_one_that_swallows_is_a_timeout(
    loop: Loop, clock: Clock
) -> None:
    refused = await ended(on_sockets(loop, clock, udp(closed_port(socket.SOCK_DGRAM))))
    assert refused.last_outcome == ProbeOutcome.REFUSED
    assert "ECONNREFUSED" in str(refused.last_error)
    with udp_port(loop, echoes=False) as port:
        silent = await ended(on_sockets(loop, clock, udp(port), limit_s=0.2))
    assert (silent.last_outcome, silent.last_rtt_ms) == (ProbeOutcome.TIMEOUT, UNSET)
    assert silent.last_error == "no answer within 0.2 s"


async def test_fc040_each_round_resolves_again_and_has_a_fresh_socket(
    loop: Loop, clock: SettableClock
) -> None:
    class Names(ThreadResolver):
        address = "127.0.0.1"

        def resolve(self, host: str, done: Callable[[Resolved], None]) -> Cancellable:
            return super().resolve(self.address, done)

    names = Names(loop)
    with udp_port(loop, echoes=True) as port:
        probes = on_sockets(loop, clock, udp(port, host="collector"), resolver=names)
        assert (await ended(probes)).last_outcome == ProbeOutcome.OK
        names.address = "127.0.0.2"  # where nobody listens
        clock.now_ns += PERIOD_NS
        moved = await ended(probes, attempts=2)
        assert (moved.last_outcome, moved.resolved_addr) == (ProbeOutcome.REFUSED, "127.0.0.2")
        names.address = "127.0.0.1"
        clock.now_ns += PERIOD_NS
        assert (await ended(probes, attempts=3)).last_outcome == ProbeOutcome.OK


async def test_fc041_the_port_of_the_relay_is_tried_by_itself_as_soon_as_its_url_is_known(
    loop: Loop, clock: SettableClock
) -> None:
    known: list[str] = []
    with udp_port(loop, echoes=True) as echo, socket.socket() as relay:
        relay.bind(("127.0.0.1", 0))
        relay.listen()
        port = relay.getsockname()[1]
        probes = ProbesIntrospector(
            clock=clock,
            scheduler=loop,
            resolver=ThreadResolver(loop),
            prober=SocketProber(loop),
            targets=[udp(echo)],
            relay_urls=lambda: known,
            limit_s=20.0,
        )
        assert [row.kind for row in rows(probes)] == ["udp_echo"]
        known.append(f"http://127.0.0.1:{port}/")
        clock.now_ns += PERIOD_NS
        await until(lambda: rows(probes)[0].attempts == 1, timeout_s=30)
        found = rows(probes)[0]
        assert (found.kind, found.target, found.port, found.protocol, found.last_outcome) == (
            "tcp_relay",
            "relay-port-127.0.0.1",
            port,
            "tcp",
            ProbeOutcome.OK,
        )
    # The relay's port is closed now, and so is the echo's: but they are two rows, each with its own outcome.
    with udp_port(loop, echoes=True) as echo:
        probes = on_sockets(loop, clock, udp(echo), relay_url=known[0])
        await until(lambda: all(row.attempts for row in rows(probes)), timeout_s=30)
        assert [(row.kind, row.last_outcome) for row in rows(probes)] == [
            ("tcp_relay", ProbeOutcome.REFUSED),
            ("udp_echo", ProbeOutcome.OK),
        ]


async def test_fc042_a_name_without_address_is_unresolved(loop: Loop, clock: Clock) -> None:
    row = await ended(on_sockets(loop, clock, udp(1, host="a..b")))  # no name at all: not even asked for
    assert (row.last_outcome, row.resolved_addr, row.attempts) == (ProbeOutcome.UNRESOLVED, UNSET, 1)


def test_fc042_a_lookup_that_hangs_is_unresolved_after_the_limit_and_delays_nobody(
    hand: Hand, clock: SettableClock
) -> None:
    other = ProbeTarget("other", "udp_echo", "other", 2, Transmission.UDP)
    probes = hand.probes(clock, udp(1, host="hangs"), other)
    rows(probes)
    (_, hanging), (_, quick) = hand.asked
    quick.callback(Resolved(("10.0.0.1",)))
    hand.tried[0][2].callback(Tried(Answer.OK))
    hand.timers[0].callback()
    outcomes = {row.target: row.last_outcome for row in rows(probes)}
    assert outcomes == {"echo": ProbeOutcome.UNRESOLVED, "other": ProbeOutcome.OK}
    assert hanging.is_off


async def test_fc042_lookups_that_never_end_do_not_pile_up(loop: Loop) -> None:
    resolver = ThreadResolver(loop)
    answers: list[Resolved] = []
    for number in range(40):
        resolver.resolve(f"a..{number}", answers.append)
    await until(lambda: len(answers) == 40, timeout_s=30)
    assert all(not answer.addresses and answer.error for answer in answers)
    assert sum("not been answered" in answer.error for answer in answers) == 36


@pytest.mark.timeout(10)
async def test_a_resolver_file_that_is_a_pipe_holds_nobody(loop: Loop, tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    os.mkfifo(file)
    assert ThreadResolver(loop, file=str(file)).nameservers() == ()
    file.unlink()
    file.write_text("nameserver 10.0.0.53\n")
    assert ThreadResolver(loop, file=str(file)).nameservers() == ("10.0.0.53",)


def test_rounds_are_ten_seconds_apart_however_often_one_looks(hand: Hand, clock: SettableClock) -> None:
    probes = hand.probes(clock, udp(1))
    for _ in range(5):
        rows(probes)
    assert len(hand.asked) == 1
    clock.now_ns += PERIOD_NS
    rows(probes)
    assert len(hand.asked) == 2


def test_the_next_address_is_tried_when_one_cannot_be_reached_at_all(hand: Hand, clock: Clock) -> None:
    probes = hand.probes(clock, udp(1))
    rows(probes)
    hand.asked[0][1].callback(Resolved(("::1", "10.0.0.1")))
    hand.tried[0][2].callback(Tried(Answer.ERROR, "ENETUNREACH"))
    hand.tried[1][2].callback(Tried(Answer.REFUSED, "ECONNREFUSED"))
    assert [address for address, _, _ in hand.tried] == ["::1", "10.0.0.1"]
    row = only(probes)
    assert (row.last_outcome, row.resolved_addr) == (ProbeOutcome.REFUSED, "10.0.0.1")


def test_closing_calls_off_everything_under_way(hand: Hand, clock: Clock) -> None:
    probes = hand.probes(clock, udp(1))
    rows(probes)
    hand.asked[0][1].callback(Resolved(("10.0.0.1",)))
    probes.close()
    assert all(later.is_off for later in (*hand.timers, hand.tried[0][2]))
    assert only(probes).attempts == 0
    assert len(hand.asked) == 2


async def test_something_else_than_the_echo_is_an_error(loop: Loop, clock: Clock) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0)
        watch = loop.watch_readable(
            server.fileno(), lambda: void(server.sendto(b"?", server.recvfrom(1500)[1]))
        )
        row = await ended(on_sockets(loop, clock, udp(server.getsockname()[1])))
        watch.cancel()
    assert (row.last_outcome, row.last_error) == (ProbeOutcome.ERROR, "not what was sent")


def void(_value: object) -> None:
    """For callbacks that return nothing."""


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://relay.example:7843/", ("relay-port-relay.example", "relay.example", 7843)),
        ("https://relay.example./", ("relay-port-relay.example", "relay.example", 443)),
        ("http://[::1]/", ("relay-port-::1", "::1", 80)),
        ("relay.example:7843", None),
        ("http://relay:port/", None),
        ("http://[/", None),
        ("", None),
    ],
)
def test_what_a_relay_url_tells_to_try(url: str, found: tuple[str, str, int] | None) -> None:
    target = relay_target(url)
    assert found == (None if target is None else (target.label, target.host, target.port))


def test_the_echo_of_the_environment(caplog: pytest.LogCaptureFixture) -> None:
    assert targets_from_env({}) == ()
    assert targets_from_env({"SWACTOR_DIAG_UDP_ECHO": " "}) == ()
    (target,) = targets_from_env({"SWACTOR_DIAG_UDP_ECHO": "collector.example:9081"})
    assert (target.label, target.host, target.port) == ("collector_udp_echo", "collector.example", 9081)
    assert targets_from_env({"SWACTOR_DIAG_UDP_ECHO": "collector.example"}) == ()
    assert "host:port" in caplog.text


def test_with_nothing_to_try_there_is_no_block(hand: Hand, clock: Clock) -> None:
    assert hand.probes(clock).observe() is None
