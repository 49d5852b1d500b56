"""The membership of one node, fed by hand."""

from sim.streams import SimRandom
from swactor import NodeId
from swactor.cluster.claims import Claim, SwimKind, SwimMessage
from swactor.cluster.events import MemberState, SwimReason
from swactor.cluster.members import AddressLearned, Effect, Refuted, Send, SwimConfig, Transitioned
from swactor.cluster.swim import Swim
from swactor.cluster.transport import PeerAddress

MS = 1_000_000
ME, ONE, TWO = (NodeId(digit * 64) for digit in "012")
CONFIG = SwimConfig(probe_period_ms=1_000, probe_timeout_ms=500)


def a_swim(*, seeds: tuple[PeerAddress, ...] = ()) -> Swim:
    swim = Swim(PeerAddress(ME), boot=10, seeds=seeds, config=CONFIG, random=SimRandom(1).stream("swim"))
    swim.start(0)
    return swim


def ping(*, boot: int = 20, incarnation: int = 0, claims: tuple[Claim, ...] = ()) -> SwimMessage:
    return SwimMessage(SwimKind.PING, boot, incarnation, 1, None, claims)


def transitions(effects: list[Effect]) -> list[tuple[NodeId, MemberState]]:
    return [(effect.peer, effect.after) for effect in effects if isinstance(effect, Transitioned)]


def sent(effects: list[Effect], kind: SwimKind) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send) and effect.message.kind is kind]


def run_until(swim: Swim, end_ms: int) -> list[Effect]:
    """Let time pass, each tick exactly when it is due; nobody answers."""
    effects: list[Effect] = []
    while swim.deadline_ns <= end_ms * MS:
        effects += swim.tick(swim.deadline_ns)
    return effects


def test_seeds_are_asked_again_and_again_until_somebody_answers() -> None:
    swim = a_swim(seeds=(PeerAddress(ONE, None, ("10.0.0.1:1",)),))

    assert len(sent(run_until(swim, 60_000), SwimKind.JOIN_REQUEST)) > 5


def test_whoever_pings_becomes_a_member() -> None:
    effects = a_swim().receive(ONE, ping(), 5 * MS)

    assert transitions(effects) == [(ONE, MemberState.ALIVE)]
    assert [effect.peer for effect in sent(effects, SwimKind.ACK)] == [ONE]


def test_an_unanswered_probe_goes_through_others_then_suspicion_then_death() -> None:
    swim = a_swim()
    swim.receive(ONE, ping(), 0)
    swim.receive(TWO, ping(), 0)

    effects = run_until(swim, 2_500)
    assert sent(effects, SwimKind.PING_REQ)
    assert MemberState.SUSPECT in [state for _, state in transitions(effects)]
    effects = run_until(swim, 60_000)
    assert (ONE, MemberState.DEAD) in transitions(effects)
    assert (TWO, MemberState.DEAD) in transitions(effects)


def test_an_answer_through_another_node_counts() -> None:
    swim = a_swim()
    swim.receive(ONE, ping(), 0)
    swim.receive(TWO, ping(), 0)
    [probe] = sent(run_until(swim, 1_000), SwimKind.PING)
    other = TWO if probe.peer == ONE else ONE

    swim.receive(
        other, SwimMessage(SwimKind.INDIRECT_ACK, 20, 0, probe.message.sequence, probe.peer), 1_400 * MS
    )

    assert (probe.peer, MemberState.SUSPECT) not in transitions(run_until(swim, 2_100))


def test_asked_to_ping_for_another_it_reports_the_answer() -> None:
    swim = a_swim()
    swim.receive(ONE, ping(), 0)
    swim.receive(TWO, ping(), 0)

    effects = swim.receive(ONE, SwimMessage(SwimKind.PING_REQ, 20, 0, 77, TWO), 5 * MS)
    [forwarded] = [effect for effect in sent(effects, SwimKind.PING) if effect.peer == TWO]
    effects = swim.receive(TWO, SwimMessage(SwimKind.ACK, 20, 0, forwarded.message.sequence), 6 * MS)

    [report] = sent(effects, SwimKind.INDIRECT_ACK)
    assert (report.peer, report.message.sequence, report.message.subject) == (ONE, 77, TWO)


def test_a_suspicion_of_this_node_is_refuted_above_it() -> None:
    swim = a_swim()

    effects = swim.receive(ONE, ping(claims=(Claim(ME, 10, 7, MemberState.SUSPECT),)), 0)

    assert Refuted(10, 8) in effects
    assert all(send.message.incarnation == 8 for send in sent(effects, SwimKind.ACK))
    [ack] = sent(swim.receive(TWO, ping(), 0), SwimKind.ACK)
    assert swim.claim() in ack.message.claims


def test_an_old_suspicion_of_this_node_is_ignored() -> None:
    swim = a_swim()
    swim.receive(ONE, ping(claims=(Claim(ME, 10, 7, MemberState.SUSPECT),)), 0)

    swim.receive(ONE, ping(claims=(Claim(ME, 10, 7, MemberState.DEAD),)), 0)
    swim.receive(ONE, ping(claims=(Claim(ME, 9, 100, MemberState.DEAD),)), 0)

    assert swim.incarnation == 8


def test_a_message_from_oneself_is_counted_and_changes_nothing() -> None:
    swim = a_swim()

    effects = swim.receive(ME, ping(claims=(Claim(ME, 10, 0, MemberState.SUSPECT),)), 0)

    assert not effects
    assert swim.anomalies == 1
    assert swim.incarnation == 0


def test_a_doubted_peer_is_told_so_with_the_next_message() -> None:
    swim = a_swim()
    swim.receive(ONE, ping(claims=(Claim(TWO, 1, 0, MemberState.ALIVE),)), 0)
    swim.receive(ONE, ping(claims=(Claim(TWO, 1, 0, MemberState.SUSPECT),)), 0)

    effects = swim.receive(TWO, ping(boot=1), 5 * MS)

    [ack] = sent(effects, SwimKind.ACK)
    assert ack.message.claims[0] == Claim(TWO, 1, 0, MemberState.SUSPECT)


def test_after_standing_still_nobody_is_judged_for_a_period() -> None:
    swim = a_swim()
    swim.receive(ONE, ping(), 0)
    run_until(swim, 1_000)
    assert sent(swim.tick(swim.deadline_ns), SwimKind.PING_REQ) == []  # a probe is under way

    effects = swim.tick(31_000 * MS)

    assert transitions(effects) == []
    assert swim.health > 0


def test_standing_still_while_a_peer_is_suspected_does_not_kill_it() -> None:
    swim = a_swim()
    swim.receive(ONE, ping(), 0)
    run_until(swim, 2_100)
    assert swim.members[ONE].state is MemberState.SUSPECT

    assert transitions(swim.tick(60_000 * MS)) == []


def test_the_newest_address_of_a_member_is_used() -> None:
    swim = a_swim()
    old = Claim(ONE, 1, 0, MemberState.ALIVE, None, ("10.0.0.1:1",))
    new = Claim(ONE, 1, 1, MemberState.ALIVE, "http://relay", ())
    swim.receive(TWO, ping(claims=(new,)), 0)

    effects = swim.receive(TWO, ping(claims=(old,)), 0)

    assert not [effect for effect in effects if isinstance(effect, AddressLearned)]
    assert swim.members[ONE].address == PeerAddress(ONE, "http://relay")


def test_an_address_is_learned_even_if_the_member_was_heard_of_before() -> None:
    swim = a_swim()
    swim.receive(ONE, ping(), 0)

    claim = Claim(ONE, 20, 0, MemberState.ALIVE, "http://relay", ())
    effects = swim.receive(TWO, ping(claims=(claim,)), 0)

    assert AddressLearned(PeerAddress(ONE, "http://relay"), "swim_metadata") in effects


def test_a_moved_node_tells_everybody() -> None:
    swim = a_swim()
    swim.move(PeerAddress(ME, "http://relay"))

    [ack] = sent(swim.receive(ONE, ping(), 0), SwimKind.ACK)

    assert ack.message.claims[0] in (swim.claim(), swim.members[ONE].claim())
    assert swim.claim() in ack.message.claims
    assert swim.incarnation == 1


def test_a_newer_life_ends_the_former_one_first() -> None:
    swim = a_swim()
    swim.receive(ONE, ping(boot=20), 0)

    effects = swim.receive(ONE, ping(boot=21), 0)

    assert transitions(effects) == [(ONE, MemberState.DEAD), (ONE, MemberState.ALIVE)]
    ended = next(effect for effect in effects if isinstance(effect, Transitioned))
    assert (ended.boot, ended.reason) == (20, SwimReason.PING_RECEIVED)


def test_the_longest_dead_are_forgotten_when_there_are_many() -> None:
    swim = a_swim()
    nodes = [NodeId(f"{number:064x}") for number in range(10, 10 + CONFIG.dead_kept_max + 5)]
    for at, node in enumerate(nodes):
        swim.receive(ONE, ping(claims=(Claim(node, 1, 0, MemberState.DEAD),)), at * MS)

    assert nodes[0] not in swim.members
    assert len([m for m in swim.members.values() if m.state is MemberState.DEAD]) == CONFIG.dead_kept_max
