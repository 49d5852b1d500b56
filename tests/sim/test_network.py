"""The network model: latency within bounds, loss as declared, cuts that shift nothing, honest counters."""

from sim.network import RETRANSMIT_NS, Drop, Edge, Network
from sim.streams import SimRandom

MS = 1_000_000


def network(edge: Edge, seed: int = 1) -> Network:
    return Network(SimRandom(seed), default=edge, edges={})


def sent(net: Network, source: str = "a", target: str = "b", *, now_ns: int = 0) -> int | Drop:
    return net.tunnel_leg(source, target, n_bytes=100, now_ns=now_ns)


def test_latency_is_base_plus_jitter() -> None:
    net = network(Edge(base_ns=10 * MS, jitter_ns=2 * MS))

    latencies = [sent(net, now_ns=now_ns) for now_ns in range(0, 500_000 * MS, 1_000 * MS)]

    above = [at_ns % (1_000 * MS) for at_ns in latencies if isinstance(at_ns, int)]
    assert len(set(above)) > 400
    assert all(10 * MS <= latency_ns <= 12 * MS for latency_ns in above)


def test_an_edge_without_jitter_is_exact() -> None:
    assert sent(network(Edge(base_ns=5)), now_ns=7) == 12


def test_about_as_much_is_late_as_declared() -> None:
    net = network(Edge(loss_ppm=100_000))

    late = sum(sent(net, now_ns=now_ns) != now_ns for now_ns in range(0, 10_000_000 * MS, 1_000 * MS))

    assert 900 <= late <= 1_100


def test_each_direction_draws_from_its_own_stream() -> None:
    alone, busy = network(Edge(jitter_ns=MS)), network(Edge(jitter_ns=MS))
    for _ in range(100):
        sent(busy, "b", "a")

    assert sent(alone) == sent(busy)


def test_a_cut_drops_and_shifts_no_later_draw() -> None:
    whole, cut = network(Edge(jitter_ns=MS)), network(Edge(jitter_ns=MS))
    cut.cut("a", "b")
    for _ in range(10):
        sent(whole)
        assert sent(cut) is Drop.CUT
    cut.heal("a", "b")

    assert sent(whole, now_ns=1_000 * MS) == sent(cut, now_ns=1_000 * MS)


def test_a_cut_is_one_way_and_counted() -> None:
    net = network(Edge())
    net.cut("a", "b")
    net.cut("a", "b")
    net.heal("a", "b")

    assert not net.is_open("a", "b")
    assert net.is_open("b", "a")
    net.heal("a", "b")
    assert net.is_open("a", "b")


def test_healing_more_often_than_cutting_is_harmless() -> None:
    net = network(Edge())
    net.heal("a", "b")
    net.cut("a", "b")

    assert not net.is_open("a", "b")


def test_a_host_that_is_down_neither_sends_nor_receives() -> None:
    net = network(Edge())
    net.set_up("a", is_up=False)

    assert sent(net, "a", "b") is Drop.HOST_DOWN
    assert sent(net, "b", "a") is Drop.HOST_DOWN
    net.set_up("a", is_up=True)
    assert sent(net, "a", "b") == 0


def test_pieces_of_a_tunnel_stay_in_order() -> None:
    net = network(Edge(base_ns=MS, jitter_ns=50 * MS, loss_ppm=50_000))

    arrivals = [net.tunnel_leg("a", "b", n_bytes=1, now_ns=now_ns) for now_ns in range(0, 100 * MS, MS)]

    assert arrivals == sorted(arrivals, key=lambda at_ns: at_ns if isinstance(at_ns, int) else -1)


def test_loss_in_a_tunnel_is_delay() -> None:
    net = network(Edge(base_ns=MS, loss_ppm=1_000_000))

    assert net.tunnel_leg("a", "b", n_bytes=1, now_ns=0) == MS + RETRANSMIT_NS


def test_receipt_is_counted_on_arrival_only() -> None:
    net = network(Edge())
    net.tunnel_leg("a", "b", n_bytes=3_000, now_ns=0)

    assert (net.counters("a").tx_packets, net.counters("a").tx_bytes) == (3, 3_000)
    assert net.counters("b").rx_packets == 0
    net.received("b", 3_000)
    assert (net.counters("b").rx_packets, net.counters("b").rx_bytes) == (3, 3_000)


def test_a_declared_edge_replaces_the_default_in_its_direction_only() -> None:
    net = Network(SimRandom(1), default=Edge(base_ns=1), edges={("a", "b"): Edge(base_ns=9)})

    assert sent(net, "a", "b") == 9
    assert sent(net, "b", "a") == 1
