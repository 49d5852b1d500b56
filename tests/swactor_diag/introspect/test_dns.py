"""What host names mean: looked up in rounds, failures named, addresses left alone."""

from collections.abc import Callable
from functools import partial

import pytest
from msgspec import UNSET

from swactor.abc import Cancellable, Clock
from swactor_diag.introspect import Resolved
from swactor_diag.introspect.dns import DnsIntrospector, host_name
from swactor_diag.introspect.sockets import parse_nameservers
from swactor_diag.schema.network import DnsEntry


class SettableClock(Clock):
    now_ns: int
    now_ms: int


class Names:
    """Scheduler and resolver: what was asked waits until the test runs it."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[str, ...]] = {}
        self.asked: list[Callable[[], None]] = []
        self.late: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        raise AssertionError

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        self.late.append(callback)
        return self

    def resolve(self, host: str, done: Callable[[Resolved], None]) -> Cancellable:
        found = self.known.get(host)
        resolved = Resolved(error="no such name") if found is None else Resolved(found)
        self.asked.append(partial(done, resolved))
        return self

    def nameservers(self) -> tuple[str, ...]:
        return ("10.0.0.53",)

    def cancel(self) -> None:
        pass


@pytest.fixture
def names() -> Names:
    return Names()


def introspector(names: Names, clock: Clock, *urls: str) -> DnsIntrospector:
    return DnsIntrospector(clock=clock, scheduler=names, resolver=names, urls=lambda: urls)


def test_a_name_is_told_with_what_it_meant_and_when(names: Names, clock: SettableClock) -> None:
    names.known["relay.example"] = ("10.0.0.1", "fd00::1")
    dns = introspector(names, clock, "http://relay.example:7843/")
    assert dns.observe() is None
    names.asked[0]()
    assert dns.observe() == (
        DnsEntry(
            hostname="relay.example",
            a_records=("10.0.0.1",),
            aaaa_records=("fd00::1",),
            resolved_at_ms=clock.now_ms,
        ),
    )


def test_every_half_minute_again_and_the_answer_follows_the_network(
    names: Names, clock: SettableClock
) -> None:
    names.known["relay"] = ("10.0.0.1",)
    dns = introspector(names, clock, "http://relay/")
    dns.observe()
    names.asked[0]()
    del names.known["relay"]
    clock.now_ns += 29_000_000_000
    dns.observe()
    assert len(names.asked) == 1
    clock.now_ns += 1_000_000_000
    dns.observe()
    names.asked[1]()
    (entry,) = dns.observe() or ()
    assert (entry.a_records, entry.error) == ((), "no such name")


def test_fc042_one_name_that_is_never_answered_does_not_keep_the_others(names: Names, clock: Clock) -> None:
    names.known["b"] = ("10.0.0.2",)
    dns = introspector(names, clock, "http://a/", "http://b/")
    dns.observe()
    names.asked[1]()
    names.late[0]()
    first, second = dns.observe() or ()
    assert (first.hostname, first.error) == ("a", "no answer within 5 s")
    assert (second.a_records, second.error) == (("10.0.0.2",), UNSET)


@pytest.mark.parametrize("url", ["", "http://10.0.0.1:80/", "http://[::1]/", "http://[", "nonsense"])
def test_what_is_no_name_is_not_looked_up(url: str, names: Names, clock: Clock) -> None:
    assert host_name(url) is None
    assert introspector(names, clock, url).observe() is None


def test_the_servers_of_a_resolver_file() -> None:
    text = "# comment\nnameserver 10.0.0.53\nnameserver\nnameserver fe80::1%eth0\nnameserver x\nsearch a\n"
    assert parse_nameservers(text) == ("10.0.0.53", "fe80::1%eth0")
