"""Events that diagnostics declare themselves: child processes, probes, errors, the application's own kinds.

Owns: the types without a producer of their own below this package, and how an event becomes bytes.
Not here: events of the runtime, the cluster and the relay (declared beside their producers, listed in
``schema.catalog``), reading them back (``schema.reading``), numbering and times (``recorder``).
"""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from swactor import Event
from swactor_diag.readable import encode_readable

CLOCK_SAMPLE = "clock_sample"
"""`Custom` kind: the three collector times of one answer, and when it arrived here."""

IROH_API_MISSING = "iroh_api_missing"
"""`Custom` kind: what the linked transport library cannot be asked for, by its version; once per boot."""

OWN_CUSTOM_KINDS = frozenset({CLOCK_SAMPLE, IROH_API_MISSING})
"""`Custom` kinds that diagnostics emit; every other one is the application's."""


class SubprocessSpawned(Event, frozen=True, kw_only=True):
    """A child process of this node has started; exactly once per spawn."""

    label: Annotated[str, Meta(description="Given by the caller; several children may share one.")]
    pid: int
    command: Annotated[str, Meta(description="Arguments, cut to 256 bytes, secrets masked.")]
    spawn_id: Annotated[str | UnsetType, Meta(description="Unique within the boot; join by it.")] = UNSET
    parent_pid: int | UnsetType = UNSET
    started_at_ms: int | UnsetType = UNSET


class SubprocessExited(Event, frozen=True, kw_only=True):
    """A child process of this node has ended; exactly once per exit."""

    label: str
    pid: int
    command: str
    exit_code: Annotated[int | None, Meta(description="Absent when a signal ended it.")] = None
    exit_signal: int | None = None
    uptime_ms: Annotated[
        int | None,
        Meta(description="Spawn to exit, monotonic: without the time that the machine was suspended."),
    ] = None
    spawn_id: str | UnsetType = UNSET
    exited_at_ms: int | UnsetType = UNSET
    asked_for: Annotated[bool | UnsetType, Meta(description="We told it to stop.")] = UNSET
    escalated: Annotated[bool | UnsetType, Meta(description="Only a kill ended it.")] = UNSET
    external: Annotated[bool | UnsetType, Meta(description="We had not sent the signal that ended it.")] = (
        UNSET
    )
    oom_kills: Annotated[
        int | UnsetType, Meta(description="Out-of-memory kills in its control group during its life.")
    ] = UNSET
    oom_own_cgroup: Annotated[
        bool | UnsetType, Meta(description="False: that group is the node's, it may have been another.")
    ] = UNSET
    stderr_tail: Annotated[str | UnsetType, Meta(description="Its last words, bounded.")] = UNSET
    status_lost: Annotated[bool | UnsetType, Meta(description="The kernel gave the status to nobody.")] = (
        UNSET
    )
    eof_reached: Annotated[bool | UnsetType, Meta(description="False: something else holds its output.")] = (
        UNSET
    )
    survivors: Annotated[tuple[int, ...] | UnsetType, Meta(description="Pids of its group still alive.")] = (
        UNSET
    )


class ProbeSent(Event, frozen=True, kw_only=True):
    """A reachability probe left for ``<label> (<address>)``."""

    target: str
    kind: str


class ProbeReceived(Event, frozen=True, kw_only=True):
    """A reachability probe ended, well or not."""

    target: str
    kind: str
    rtt_ms: int | None = None
    outcome: Annotated[str, Meta(description="ok, timeout, refused, error, unresolved.")]


class Error(Event, frozen=True, kw_only=True):
    """Something that diagnostics or the application could not do; once per cause."""

    component: str
    message: str
    peer: str | None = None


class Custom(Event, frozen=True, kw_only=True):
    """What is not generic: a kind of the application's own and its fields."""

    kind: str
    fields: dict[str, object]


ENVELOPE_FIELDS = frozenset({"node_id", "monotonic_seq", "wall_ms"})
"""Written before the fields of every event, which therefore must be called something else."""


def encode_record(node_id: str, *, seq: int, wall_ms: int, event: Event) -> bytes:
    """Return the flat record of ``event``: its fields behind the envelope, as one JSON object.

    Characters that no encoder takes are replaced.

    Raises:
        ValueError: a field of the event is called as one of the envelope.
        Exception: what msgspec, or a type that it asks, raises when the event cannot be written.
    """
    if not ENVELOPE_FIELDS.isdisjoint(event.__struct_fields__):
        raise ValueError(f"an event must not have fields called {', '.join(sorted(ENVELOPE_FIELDS))}")
    fields = encode_readable(event)
    return b'{"node_id":"%b","monotonic_seq":%d,"wall_ms":%d,%b' % (
        node_id.encode(),
        seq,
        wall_ms,
        fields[1:],
    )
