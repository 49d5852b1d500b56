"""The network model: latency within bounds, loss as declared, cuts that shift nothing, honest counters."""

from sim.network import RETRANSMIT_NS, Drop, Edge, Network
from sim.streams import SimRandom

MS = 1_000_000


def network(edge: Edge, seed: int = 1) -> Network:
    return Network(SimRandom(seed), default=edge, edges={})


def test_latency_is_base_plus_jitter() -> None:
    net = network(Edge(base_ns=10 * MS, jitter_ns=2 * MS))

    arrivals = [net.packet("a", "b", n_bytes=100, now_ns=0) for _ in range(500)]

    assert all(isinstance(at_ns, int) and 10 * MS <= at_ns <= 12 * MS for at_ns in arrivals)
    assert len(set(arrivals)) > 400


def test_an_edge_without_jitter_is_exact() -> None:
    assert network(Edge(base_ns=5)).packet("a", "b", n_bytes=1, now_ns=7) == 12


def test_loss_is_about_as_declared() -> None:
    net = network(Edge(loss_ppm=100_000))

    lost = sum(net.packet("a", "b", n_bytes=1, now_ns=0) is Drop.LOST for _ in range(10_000))

    assert 900 <= lost <= 1_100


def test_each_direction_draws_from_its_own_stream() -> None:
    alone, busy = network(Edge(jitter_ns=MS)), network(Edge(jitter_ns=MS))
    for _ in range(100):
        busy.packet("b", "a", n_bytes=1, now_ns=0)

    assert alone.packet("a", "b", n_bytes=1, now_ns=0) == busy.packet("a", "b", n_bytes=1, now_ns=0)


def test_a_cut_drops_and_shifts_no_later_draw() -> None:
    whole, cut = network(Edge(jitter_ns=MS)), network(Edge(jitter_ns=MS))
    cut.cut("a", "b")
    for _ in range(10):
        whole.packet("a", "b", n_bytes=1, now_ns=0)
        assert cut.packet("a", "b", n_bytes=1, now_ns=0) is Drop.CUT
    cut.heal("a", "b")

    assert whole.packet("a", "b", n_bytes=1, now_ns=0) == cut.packet("a", "b", n_bytes=1, now_ns=0)


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

    assert net.packet("a", "b", n_bytes=1, now_ns=0) is Drop.HOST_DOWN
    assert net.packet("b", "a", n_bytes=1, now_ns=0) is Drop.HOST_DOWN
    net.set_up("a", is_up=True)
    assert net.packet("a", "b", n_bytes=1, now_ns=0) == 0


def test_pieces_of_a_tunnel_stay_in_order() -> None:
    net = network(Edge(base_ns=MS, jitter_ns=50 * MS, loss_ppm=50_000))

    arrivals = [net.tunnel_leg("a", "b", n_bytes=1, now_ns=now_ns) for now_ns in range(0, 100 * MS, MS)]

    assert arrivals == sorted(arrivals, key=lambda at_ns: at_ns if isinstance(at_ns, int) else -1)


def test_loss_in_a_tunnel_is_delay() -> None:
    net = network(Edge(base_ns=MS, loss_ppm=1_000_000))

    assert net.tunnel_leg("a", "b", n_bytes=1, now_ns=0) == MS + RETRANSMIT_NS


def test_receipt_is_counted_on_arrival_only() -> None:
    net = network(Edge())
    net.packet("a", "b", n_bytes=3_000, now_ns=0)

    assert (net.counters("a").tx_packets, net.counters("a").tx_bytes) == (3, 3_000)
    assert net.counters("b").rx_packets == 0
    net.received("b", 3_000)
    assert (net.counters("b").rx_packets, net.counters("b").rx_bytes) == (3, 3_000)


def test_a_declared_edge_replaces_the_default_in_its_direction_only() -> None:
    net = Network(SimRandom(1), default=Edge(base_ns=1), edges={("a", "b"): Edge(base_ns=9)})

    assert net.packet("a", "b", n_bytes=1, now_ns=0) == 9
    assert net.packet("b", "a", n_bytes=1, now_ns=0) == 1
