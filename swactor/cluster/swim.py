"""SWIM membership as a pure state machine: times and messages in, effects out.

Answers: who is a member, in which state, and whom to ask next.
Owns: joining, probing (direct, then through others), suspicion, refutation, slow re-contact of the dead,
and the node's doubt in itself (Lifeguard's local health: the later it runs, the more time others get).
Not here: the precedence of claims (``claims``), sending, timers, events (``membership``).

Times are monotonic nanoseconds. Call `Swim.tick` at `Swim.deadline_ns`, or later: lateness is noticed. After
a gap of more than a probe period (a stopped process, a blocked loop) nobody is judged for one more period.
Nor is anybody while this node itself is cut off from them (``cutoff``); claims of others count all the same.

Sources: Das, Gupta, Motivala, "SWIM: Scalable Weakly-consistent Infection-style Process Group Membership
Protocol" (DSN 2002); Dadgar, Phillips, Currey, "Lifeguard" (arXiv:1707.00788).
"""

from collections import deque

from swactor import NodeId
from swactor.abc import RandomStream
from swactor.cluster.claims import (
    CLAIMS_PER_MESSAGE_MAX,
    Claim,
    Rumours,
    SwimKind,
    SwimMessage,
    precedence,
)
from swactor.cluster.cutoff import CutOff
from swactor.cluster.events import MemberState, SwimReason
from swactor.cluster.members import (
    AddressLearned,
    Effect,
    Member,
    Probe,
    RecentMessage,
    Refuted,
    Send,
    SwimConfig,
    Transitioned,
)
from swactor.cluster.transport import PeerAddress

_MS = 1_000_000
_FORWARDS_MAX = 256  # pings under way on behalf of others; the oldest is forgotten
_RECENT_MAX = 64
_CONTACTS_WHEN_ALONE = 3


class Swim:
    """The membership of one node, as seen by it."""

    def __init__(
        self,
        address: PeerAddress,
        *,
        boot: int,
        seeds: tuple[PeerAddress, ...],
        config: SwimConfig,
        random: RandomStream,
    ) -> None:
        self.me = address.node_id
        self.address = address
        self.boot = boot
        self.incarnation = 0
        self.health = 0
        self.config = config
        self.members: dict[NodeId, Member] = {}
        self.recent: deque[RecentMessage] = deque(maxlen=_RECENT_MAX)
        self.cut_off = CutOff()
        self.anomalies = 0  # accusations and messages that name this node itself as their source
        self._seeds = {seed.node_id: seed for seed in seeds if seed.node_id != self.me}
        self._random = random
        self._rumours = Rumours()
        self._round: list[NodeId] = []
        self._sequence = 0
        self._probe: Probe | None = None
        self._forwards: dict[int, tuple[NodeId, int]] = {}
        self._suspects: set[NodeId] = set()
        self._now_ns = 0
        self._probe_at_ns = 0
        self._contact_at_ns = 0
        self._contact_wait_ms = config.join_retry_ms
        self._effects: list[Effect] = []

    # --- inputs -------------------------------------------------------------------------------------------

    def start(self, now_ns: int) -> list[Effect]:
        """Contact the seeds."""
        self._now_ns = now_ns
        self._probe_at_ns = now_ns + self.config.probe_period_ms * _MS
        self._effects.extend(AddressLearned(seed, "join_seed") for seed in self._seeds.values())
        self._contact_others()
        return self._take_effects()

    @property
    def deadline_ns(self) -> int:
        """When `tick` is to be called next."""
        due = min(self._probe_at_ns, self._contact_at_ns)
        if self._probe is not None and self._probe.ask_others_ns is not None:
            due = min(due, self._probe.ask_others_ns)
        return min([due, *(self.members[peer].suspect_until_ns for peer in self._suspects)])

    def tick(self, now_ns: int) -> list[Effect]:
        """Do what is due by ``now_ns``."""
        self._now_ns = now_ns
        self._notice_lateness(now_ns)
        probe = self._probe
        if probe is not None and probe.ask_others_ns is not None and now_ns >= probe.ask_others_ns:
            self._ask_others(probe)
        if now_ns >= self._probe_at_ns:
            self._judge_probe()
            self._probe_next()
        for peer in sorted(self._suspects):
            if now_ns < self.members[peer].suspect_until_ns:
                continue
            if self.cut_off.excuses(peer, now_ns):
                self.members[peer].suspect_until_ns = now_ns + self.config.probe_period_ms * _MS
            else:
                self._hold(peer, MemberState.DEAD, SwimReason.SUSPICION_TIMEOUT)
        if now_ns >= self._contact_at_ns:
            self._contact_others()
        return self._take_effects()

    def receive(self, peer: NodeId, message: SwimMessage, now_ns: int) -> list[Effect]:
        """Take in what ``peer``, an admitted node, has sent."""
        if peer == self.me:
            self.anomalies += 1
            return []
        self._now_ns = now_ns
        self._note(message.kind, peer, message.sequence)
        reason = _HEARD.get(message.kind, SwimReason.GOSSIP)
        self._weigh(Claim(peer, message.boot, message.incarnation, MemberState.ALIVE), reason)
        gossip = SwimReason.JOIN_RESPONSE if reason is SwimReason.JOIN_RESPONSE else SwimReason.GOSSIP
        for claim in message.claims:
            if claim.node == self.me:
                self._answer_claim(claim, peer)
            else:
                self._weigh(claim, reason if claim.node == peer else gossip)
        self._respond(peer, message)
        return self._take_effects()

    def left(self, peer: NodeId, now_ns: int) -> list[Effect]:
        """``peer`` has said on its own link that it leaves."""
        self._now_ns = now_ns
        member = self.members.get(peer)
        if member is not None and member.state is not MemberState.DEAD:
            self._hold(peer, MemberState.DEAD, SwimReason.LEFT)
        return self._take_effects()

    def move(self, address: PeerAddress) -> list[Effect]:
        """This node is reached at ``address`` from now on; tell everybody."""
        if address != self.address:
            self.address = address
            self.incarnation += 1
            self._rumours.add(self.claim())
        return self._take_effects()

    # --- values -------------------------------------------------------------------------------------------

    def claim(self) -> Claim:
        """Return what this node claims about itself."""
        return Claim.about(
            self.address, boot=self.boot, incarnation=self.incarnation, state=MemberState.ALIVE
        )

    def reachable(self) -> list[NodeId]:
        """Return the members that are not dead, in a stable order."""
        return sorted(peer for peer, member in self.members.items() if member.state in _LIVING)

    # --- probing ------------------------------------------------------------------------------------------

    def _probe_next(self) -> None:
        config, stretch = self.config, 1 + self.health
        self._probe_at_ns = self._now_ns + config.probe_period_ms * stretch * _MS
        target = self._next_target()
        if target is None:
            return
        sequence = self._next_sequence()
        self._probe = Probe(target, sequence, self._now_ns + config.probe_timeout_ms * stretch * _MS)
        self.members[target].last_ping_sent_ns = self._now_ns
        self._send(target, SwimKind.PING, sequence=sequence)

    def _next_target(self) -> NodeId | None:
        """Return the next of a shuffled round over all living members."""
        for _ in range(2):
            while self._round:
                peer = self._round.pop()
                member = self.members.get(peer)
                if member is not None and member.state in _LIVING:
                    return peer
            self._round = self._shuffled(self.reachable())
        return None

    def _ask_others(self, probe: Probe) -> None:
        self._probe = Probe(probe.target, probe.sequence, None)
        others = self._shuffled([peer for peer in self.reachable() if peer != probe.target])
        for peer in others[: self.config.indirect_probes]:
            self._send(peer, SwimKind.PING_REQ, sequence=probe.sequence, subject=probe.target)

    def _judge_probe(self) -> None:
        """The period is over: who has not answered by now, in whatever way, is suspected."""
        probe, self._probe = self._probe, None
        if probe is None or self.cut_off.excuses(probe.target, self._now_ns):
            return
        self._doubt_self(+1)
        member = self.members.get(probe.target)
        if member is not None and member.state is MemberState.ALIVE:
            self._hold(probe.target, MemberState.SUSPECT, SwimReason.PROBE_TIMEOUT)

    def _contact_others(self) -> None:
        """Ask seeds and dead members whether they are there after all, round robin and slowly."""
        absent = [peer for peer in self._seeds if self._state(peer) not in _LIVING]
        absent += [peer for peer in sorted(self.members) if peer not in absent and self._is_dead(peer)]
        alone = not self.reachable()
        for peer in self._shuffled(absent)[: _CONTACTS_WHEN_ALONE if alone else 1]:
            self._send(peer, SwimKind.JOIN_REQUEST, claims=self._about(peer, own=True))
        slow = self.config.dead_reprobe_period_ms
        self._contact_at_ns = self._now_ns + (self._contact_wait_ms if alone else slow) * _MS
        self._contact_wait_ms = min(self._contact_wait_ms * 2, slow) if alone else self.config.join_retry_ms

    def _notice_lateness(self, now_ns: int) -> None:
        late_ns = now_ns - self.deadline_ns
        period_ns = self.config.probe_period_ms * _MS
        if late_ns < period_ns // 4:
            return
        self._doubt_self(+1)
        if late_ns > period_ns:
            self._probe = None  # its answer may still wait to be read: no judgement
            self._probe_at_ns = max(self._probe_at_ns, now_ns)
            for peer in self._suspects:
                self.members[peer].suspect_until_ns += late_ns + period_ns

    def _doubt_self(self, change: int) -> None:
        self.health = max(0, min(self.config.health_max, self.health + change))

    # --- messages -----------------------------------------------------------------------------------------

    def _respond(self, peer: NodeId, message: SwimMessage) -> None:
        member = self.members[peer]
        match message.kind:
            case SwimKind.PING:
                member.last_ping_received_ns = self._now_ns
                self._send(peer, SwimKind.ACK, sequence=message.sequence)
            case SwimKind.ACK:
                member.last_ack_received_ns = self._now_ns
                self._acknowledged(peer, message.sequence)
            case SwimKind.INDIRECT_ACK:
                if self._probe is not None and self._probe.target == message.subject:
                    self._acknowledged(self._probe.target, message.sequence)
            case SwimKind.PING_REQ:
                if message.subject is not None and message.subject in self.members:
                    self._ping_for(peer, message.subject, message.sequence)
            case SwimKind.JOIN_REQUEST:
                living = [self.members[other].claim() for other in self.reachable() if other != peer]
                claims = [self.claim(), member.claim(), *living]
                self._send(peer, SwimKind.JOIN_RESPONSE, claims=tuple(claims[:CLAIMS_PER_MESSAGE_MAX]))
            case SwimKind.JOIN_RESPONSE:
                pass  # its claims are all there is to it

    def _acknowledged(self, target: NodeId, sequence: int) -> None:
        if self._probe is not None and (self._probe.target, self._probe.sequence) == (target, sequence):
            self._probe = None
            self._doubt_self(-1)
        origin = self._forwards.pop(sequence, None)
        if origin is not None:
            self._send(origin[0], SwimKind.INDIRECT_ACK, sequence=origin[1], subject=target)

    def _ping_for(self, origin: NodeId, target: NodeId, origin_sequence: int) -> None:
        if len(self._forwards) >= _FORWARDS_MAX:
            del self._forwards[next(iter(self._forwards))]
        sequence = self._next_sequence()
        self._forwards[sequence] = (origin, origin_sequence)
        self._send(target, SwimKind.PING, sequence=sequence)

    def _send(
        self,
        peer: NodeId,
        kind: SwimKind,
        *,
        sequence: int = 0,
        subject: NodeId | None = None,
        claims: tuple[Claim, ...] | None = None,
    ) -> None:
        if claims is None:
            claims = self._about(peer)
        message = SwimMessage(kind, self.boot, self.incarnation, sequence, subject, claims)
        self._note(kind, peer, sequence)
        self._effects.append(Send(peer, message))

    def _about(self, peer: NodeId, *, own: bool = False) -> tuple[Claim, ...]:
        """Return the gossip of one message; a peer in doubt is told so first, that it may refute."""
        times_max = self.config.gossip_lambda * max(1, len(self.members).bit_length())
        member = self.members.get(peer)
        doubt = member.claim() if member is not None and member.state in _DOUBTED else None
        claims = self._rumours.take(self.config.piggyback_max, times_max=times_max, first=doubt)
        return (self.claim(), *(c for c in claims if c.node != self.me)) if own else claims

    # --- opinions -----------------------------------------------------------------------------------------

    def _weigh(self, claim: Claim, reason: SwimReason) -> None:
        """Let ``claim`` change the opinion of another node if it takes precedence."""
        member = self.members.get(claim.node)
        if member is None:
            member = self.members[claim.node] = Member(PeerAddress(claim.node), self._now_ns)
        self._consider_address(member, claim)
        if precedence(claim.boot, claim.incarnation, claim.state) <= precedence(
            member.boot, member.incarnation, member.state
        ):
            return
        if 0 <= member.boot < claim.boot and member.state is not MemberState.DEAD:
            self._hold(claim.node, MemberState.DEAD, reason)  # its former life has ended
        member.boot, member.incarnation = claim.boot, claim.incarnation
        if claim.state is member.state:
            self._rumours.add(member.claim())
        else:
            self._hold(claim.node, claim.state, reason)

    def _consider_address(self, member: Member, claim: Claim) -> None:
        """Take the claim's address when it is newer; a claim without one says nothing."""
        age = (claim.boot, claim.incarnation)
        if age > member.address_age and claim.address.is_dialable:
            member.address_age = age
            if claim.address != member.address:
                member.address = claim.address
                self._effects.append(AddressLearned(claim.address, "swim_metadata"))

    def _hold(self, peer: NodeId, state: MemberState, reason: SwimReason) -> None:
        """Change the opinion of a known member and tell everybody."""
        member = self.members[peer]
        before, member.state, member.since_ns = member.state, state, self._now_ns
        if state is MemberState.SUSPECT:
            self._suspects.add(peer)
            wait_ms = self.config.suspicion_timeout_ms * (1 + self.health // 2)
            member.suspect_until_ns = self._now_ns + wait_ms * _MS
        else:
            self._suspects.discard(peer)
        self._rumours.add(member.claim())
        self._effects.append(Transitioned(peer, member.boot, member.incarnation, before, state, reason))
        if state is MemberState.DEAD:
            self._forget_long_dead()
            if not self.reachable():
                # rather this node is cut off than all others are dead: do not spread that when it is back
                self._rumours.clear()
                self._contact_wait_ms = self.config.join_retry_ms
                self._contact_at_ns = min(self._contact_at_ns, self._now_ns + self._contact_wait_ms * _MS)

    def _answer_claim(self, claim: Claim, source: NodeId) -> None:
        """Somebody holds ``claim`` about this node: contradict it unless it is no more than the truth."""
        mine, theirs = (self.boot, self.incarnation), (claim.boot, claim.incarnation)
        if theirs < mine or (theirs == mine and claim.state is MemberState.ALIVE):
            return
        if claim.boot > self.boot:
            self.boot, self.incarnation = claim.boot + 1, 0  # the wall clock went back between two lives
        else:
            self.incarnation = claim.incarnation + 1
        self._doubt_self(+1)
        self._rumours.add(self.claim())
        self._effects.append(Refuted(self.boot, self.incarnation))
        self._send(source, SwimKind.PING, sequence=self._next_sequence())

    def _forget_long_dead(self) -> None:
        dead = [peer for peer in self.members if self._is_dead(peer)]
        if len(dead) > self.config.dead_kept_max:
            del self.members[min(dead, key=lambda peer: (self.members[peer].since_ns, peer))]

    def _state(self, peer: NodeId) -> MemberState:
        member = self.members.get(peer)
        return MemberState.UNKNOWN if member is None else member.state

    def _is_dead(self, peer: NodeId) -> bool:
        return self.members[peer].state is MemberState.DEAD

    # --- bookkeeping --------------------------------------------------------------------------------------

    def _note(self, kind: SwimKind, peer: NodeId, sequence: int) -> None:
        self.recent.append(RecentMessage(kind, peer, self._now_ns, sequence))

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def _shuffled(self, peers: list[NodeId]) -> list[NodeId]:
        for last in range(len(peers) - 1, 0, -1):
            other = self._random.below(last + 1)
            peers[last], peers[other] = peers[other], peers[last]
        return peers

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


_LIVING = frozenset({MemberState.ALIVE, MemberState.SUSPECT})
_DOUBTED = frozenset({MemberState.SUSPECT, MemberState.DEAD})
_HEARD = {
    SwimKind.PING: SwimReason.PING_RECEIVED,
    SwimKind.JOIN_REQUEST: SwimReason.JOIN_REQUEST,
    SwimKind.JOIN_RESPONSE: SwimReason.JOIN_RESPONSE,
}
