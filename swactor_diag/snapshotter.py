"""The actor that takes snapshots: every few seconds, on a SWIM transition, on demand.

Owns: the rhythm (no drift), one round at a time, the deadline of a round. All introspector actors are asked
at the same moment; one that fails, hangs or is being restarted costs its own block and says so under
``introspectors``. One that owes an answer is not asked again for a while, so nothing piles up.
Not here: the values (``introspect``), the bytes (``snapshot_writer``), sending (``delivery.shipper``).

Transitions that a snapshot already covers (it was begun after them) do not cause another one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET

from swactor import (
    Actor,
    ActorDeadError,
    ActorRef,
    Context,
    ExitReason,
    MailboxFullError,
    Reply,
    Request,
)
from swactor_diag.introspect import Observe, Observed
from swactor_diag.recorder import Recorder
from swactor_diag.schema.blocks import IntrospectionOutcome, IntrospectorEntry
from swactor_diag.schema.snapshot import Trigger, TriggerKind
from swactor_diag.snapshot_writer import SnapshotWriter

ROUNDS_BETWEEN_TRIES = 12
"""An introspector that owes an answer is asked again only after so many rounds."""
WANTED_APART_S = 1.0
"""Between snapshots that the collector wants: it hints in answers, and each of them brings an answer."""

_WEIGHT = {
    kind: at for at, kind in enumerate((TriggerKind.PERIODIC, TriggerKind.ON_DEMAND, TriggerKind.TRANSITION))
}
"""What is wanted during a round is one next one, named by the heaviest: only a transition names an event."""


@dataclass(frozen=True, slots=True)
class TakeSnapshot(Request[bytes]):
    """Take a snapshot now; the reply is what was shipped."""


@dataclass(frozen=True, slots=True)
class SnapshotWanted:
    """Take a snapshot, `WANTED_APART_S` after the last one so wanted at the earliest; nobody waits for it."""


@dataclass(frozen=True, slots=True)
class TransitionSeen:
    """A SwimTransition with this sequence number was recorded."""

    seq: int


@dataclass(frozen=True, slots=True)
class _Tick:
    """A period is over."""


@dataclass(frozen=True, slots=True)
class _Deadline:
    """The time of a round is up."""

    round: int


SnapshotterMessage = TakeSnapshot | SnapshotWanted | TransitionSeen | Observed | _Tick | _Deadline


@dataclass(slots=True)
class _Round:
    number: int
    trigger: Trigger
    wall_ms: int
    seq: int
    replies: list[Reply[bytes]]
    missing: dict[str, None]
    answers: dict[str, Observed] = field(default_factory=dict)


class Snapshotter(Actor[SnapshotterMessage]):
    """Takes the snapshots of one node. Without a period, only when one is wanted."""

    def __init__(
        self,
        *,
        writer: SnapshotWriter,
        recorder: Recorder,
        targets: Sequence[tuple[str, Callable[[], ActorRef[object] | None]]],
        ship: Callable[[bytes], None],
        period_s: float | None,
        deadline_s: float,
    ) -> None:
        self._writer = writer
        self._recorder = recorder
        self._targets = tuple(targets)
        self._ship = ship
        self._period_s = period_s
        self._deadline_s = deadline_s
        self._round: _Round | None = None
        self._rounds = 0
        self._covered_seq = 0
        self._next: Trigger | None = None
        self._next_replies: list[Reply[bytes]] = []
        self._owed: dict[str, int] = {}
        self._wanted_next_ns = 0

    def on_start(self, ctx: Context[SnapshotterMessage]) -> None:
        """Begin the rhythm, and hear of transitions: an observer must not tell, so the loop does it next."""
        if self._period_s is not None:
            ctx.send_every(self._period_s, _Tick())

        def seen(seq: int) -> None:
            ctx.loop.call_soon(lambda: ctx.ref.tell(TransitionSeen(seq)))

        self._recorder.call_on_transition(seen)

    def on_stop(self, ctx: Context[SnapshotterMessage], reason: ExitReason) -> None:
        """Hear of no more transitions; whoever waits for a snapshot is told that there will be none."""
        self._recorder.call_on_transition(None)
        waiting = self._next_replies + ([] if self._round is None else self._round.replies)
        for reply in waiting:
            reply.fail(ActorDeadError(ctx.actor_id, str(reason)))

    def on_message(self, ctx: Context[SnapshotterMessage], message: SnapshotterMessage) -> object:
        """Begin, continue or end a round."""
        match message:
            case TakeSnapshot():
                self._next_replies.append(ctx.defer())
                self._want(ctx, Trigger(kind=TriggerKind.ON_DEMAND))
            case SnapshotWanted():
                self._wanted(ctx, message)
            case TransitionSeen(seq):
                if self._covered_seq < seq:
                    self._want(ctx, Trigger(kind=TriggerKind.TRANSITION, data=f"seq-{seq}"))
            case _Tick():
                self._want(ctx, Trigger(kind=TriggerKind.PERIODIC))
            case Observed():
                self._observed(ctx, message)
            case _Deadline(number):
                if self._round is not None and self._round.number == number:
                    self._end(ctx, self._round)
        return None

    def _wanted(self, ctx: Context[SnapshotterMessage], hint: SnapshotWanted) -> None:
        now_ns = ctx.clock.monotonic_ns()
        if now_ns < self._wanted_next_ns:
            ctx.send_after((self._wanted_next_ns - now_ns) / 1e9, hint)
            return
        self._wanted_next_ns = now_ns + round(WANTED_APART_S * 1e9)
        self._want(ctx, Trigger(kind=TriggerKind.ON_DEMAND))

    def _want(self, ctx: Context[SnapshotterMessage], trigger: Trigger) -> None:
        """Begin a round, or remember to when the one under way has ended."""
        if self._round is None:
            self._begin(ctx, trigger)
        elif self._next is None or _WEIGHT[trigger.kind] >= _WEIGHT[self._next.kind]:
            self._next = trigger

    def _begin(self, ctx: Context[SnapshotterMessage], trigger: Trigger) -> None:
        self._rounds += 1
        replies, self._next_replies = self._next_replies, []
        current = _Round(self._rounds, trigger, ctx.clock.wall_ms(), self._recorder.seq, replies, {})
        self._round = current
        self._covered_seq = current.seq
        for name, ref_of in self._targets:
            self._ask(ctx, current, name=name, ref=ref_of())
        if current.missing:
            ctx.send_after(self._deadline_s, _Deadline(current.number), key="deadline")
        else:
            self._end(ctx, current)

    def _ask(
        self,
        ctx: Context[SnapshotterMessage],
        current: _Round,
        *,
        name: str,
        ref: ActorRef[object] | None,
    ) -> None:
        owed_since = self._owed.get(name)
        if owed_since is not None and current.number - owed_since < ROUNDS_BETWEEN_TRIES:
            self._blame(current, name, f"no answer since round {owed_since}")
            return
        if ref is None:
            self._blame(current, name, "not running")
            return
        self._owed[name] = current.number
        try:
            ref.tell(Observe(current.number, ctx.ref))
        except MailboxFullError as error:
            self._blame(current, name, str(error))
            return
        current.missing[name] = None

    def _observed(self, ctx: Context[SnapshotterMessage], answer: Observed) -> None:
        self._owed.pop(answer.name, None)
        current = self._round
        if current is None or answer.round != current.number:
            return  # too late: its block is absent in the snapshot it was asked for
        duration_us = answer.entry.duration_us
        if duration_us is not UNSET and duration_us > self._deadline_s * 1e6:  # it held the event loop
            answer = answer.failed(
                f"answered after {duration_us / 1e6:.1f} s, {self._deadline_s:g} s are allowed"
            )
        current.answers[answer.name] = answer
        current.missing.pop(answer.name, None)
        if not current.missing:
            self._end(ctx, current)

    def _end(self, ctx: Context[SnapshotterMessage], current: _Round) -> None:
        ctx.cancel("deadline")
        for name in current.missing:
            self._blame(current, name, f"no answer within {self._deadline_s:g} s")
        written = self._writer.write(
            [current.answers[name] for name, _ in self._targets],
            wall_ms=current.wall_ms,
            seq=current.seq,
            trigger=current.trigger,
            reachability=self._recorder.reachability(),
        )
        self._ship(written)
        for reply in current.replies:
            reply.send(written)
        self._round = None
        wanted, self._next = self._next, None
        if wanted is not None:
            self._begin(ctx, wanted)

    @staticmethod
    def _blame(current: _Round, name: str, reason: str) -> None:
        entry = IntrospectorEntry(name=name, outcome=IntrospectionOutcome.FAILED, reason=reason)
        current.answers[name] = Observed(current.number, entry)
