"""The blocks of a snapshot body: current values, one record per surface.

Owns: what each introspector of ours fills, in the original's field names.
Not here: the envelope and the reachability block (``schema.snapshot``), how values are read (``introspect``).

An absent value is left out, and so is an empty list; zero is always a measured zero. Where a value
could not be asked for, ``*_source`` or a ``reasons`` list beside it says so. Statuses that belong to another
layer (connection types, SWIM states, tunnel statuses) stay text here: a reader keeps values it does not know.
"""

import enum
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from swactor.relay.report import SessionReport
from swactor_diag.schema.network import DnsEntry, Route, UdpSocket


class OpenEnum(enum.StrEnum):
    """A closed set of values that a newer version may have extended.

    Its last member is ``UNRECOGNIZED``: read from a record of a newer version, never written; what was there
    is in the raw record.
    """

    @classmethod
    def _missing_(cls, value: object) -> "OpenEnum":  # noqa: ARG003 - any unknown one
        return cls["UNRECOGNIZED"]


class UdpKernelStats(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``/proc/net/snmp``, Udp lines, or ``snmp6``: totals of this network namespace since it exists."""

    in_datagrams: int | UnsetType = UNSET
    no_ports: int | UnsetType = UNSET
    in_errors: int | UnsetType = UNSET
    out_datagrams: int | UnsetType = UNSET
    rcvbuf_errors: int | UnsetType = UNSET
    sndbuf_errors: int | UnsetType = UNSET


class InterfaceCounters(Struct, frozen=True, kw_only=True):
    """``/proc/net/dev``, one interface: totals since it exists."""

    rx_bytes: int
    rx_packets: int
    rx_errors: int
    rx_dropped: int
    tx_bytes: int
    tx_packets: int
    tx_errors: int
    tx_dropped: int


class NetworkInterface(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One interface of this network namespace."""

    name: str
    addresses: tuple[str, ...] = ()
    mtu: int | UnsetType = UNSET
    up: bool | UnsetType = UNSET
    counters: InterfaceCounters | UnsetType = UNSET
    counters_reset: Annotated[bool, Meta(description="One is lower than before: take no delta.")] = False
    first_seen_at_ms: Annotated[
        int | UnsetType, Meta(description="Appeared while this node ran: its counters begin here.")
    ] = UNSET


class HostNetwork(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``host.network``: what the kernel says about this node's network."""

    interfaces: tuple[NetworkInterface, ...] = ()
    interfaces_omitted: Annotated[int | UnsetType, Meta(description="Absent: not counted.")] = UNSET
    udp_kernel_stats: Annotated[UdpKernelStats | UnsetType, Meta(description="Over IPv4.")] = UNSET
    udp_reset: Annotated[bool, Meta(description="One is lower than before: take no delta.")] = False
    udp6_kernel_stats: Annotated[
        UdpKernelStats | UnsetType, Meta(description="Over IPv6, not among the others.")
    ] = UNSET
    udp6_reset: Annotated[bool, Meta(description="As udp_reset.")] = False
    default_routes: Annotated[tuple[Route, ...], Meta(description="All routes, despite the name.")] = ()
    routes_omitted: Annotated[int | UnsetType, Meta(description="Absent: not counted.")] = UNSET
    udp_sockets: Annotated[tuple[UdpSocket, ...], Meta(description="Those that lost most first.")] = ()
    udp_sockets_omitted: Annotated[int | UnsetType, Meta(description="Absent: not counted.")] = UNSET
    conntrack_count: int | UnsetType = UNSET
    ipv6_enabled: bool | UnsetType = UNSET
    resolv_conf_nameservers: tuple[str, ...] = ()
    local_addresses: Annotated[
        tuple[str, ...], Meta(description="Of this host, on interfaces that are not listed.")
    ] = ()
    namespace: Annotated[
        str | UnsetType, Meta(description="Equal marks: one namespace, do not add the counters.")
    ] = UNSET
    refreshed_at_ms: int | UnsetType = UNSET
    reasons: Annotated[tuple[str, ...], Meta(description="Why a part is absent.")] = ()


class HostBlock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``host``."""

    network: HostNetwork | UnsetType = UNSET
    dns: tuple[DnsEntry, ...] = ()
    scraped_at_ms: int | UnsetType = UNSET


class SubprocessStatus(OpenEnum):
    """Whether a child runs, as far as its owner and the kernel have said."""

    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"
    UNRECOGNIZED = "unrecognized"


class Subprocess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One child process. Join by ``spawn_id``: labels repeat, pids are used again."""

    label: str
    pid: int
    spawn_id: str | UnsetType = UNSET
    parent_pid: int | UnsetType = UNSET
    status: SubprocessStatus
    spawn_at_ms: int | UnsetType = UNSET
    exit_at_ms: int | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
    exit_signal: int | UnsetType = UNSET
    rss_bytes: int | UnsetType = UNSET
    vm_size_bytes: int | UnsetType = UNSET
    open_fd_count: int | UnsetType = UNSET
    cpu_ms: Annotated[int | UnsetType, Meta(description="User and system, as read.")] = UNSET
    cpu_reset: Annotated[bool, Meta(description="Lower than read before: take no rate.")] = False
    threads: int | UnsetType = UNSET
    state: Annotated[str | UnsetType, Meta(description="The kernel's letter: R, S, D, Z, T, ...")] = UNSET
    cmdline: str | UnsetType = UNSET
    cmdline_cut: bool = False
    reasons: Annotated[tuple[str, ...], Meta(description="Why fields are absent.")] = ()


class SubprocessBlock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``subprocess``: every running child of this node and the last ones that ended."""

    subprocesses: tuple[Subprocess, ...] = ()
    exited_forgotten: Annotated[int, Meta(description="Ended children no longer listed.")] = 0
    scraped_at_ms: int


class PythonFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The interpreter of this process."""

    implementation: str
    gc_collections: Annotated[tuple[int, ...], Meta(description="Per generation, since start.")] = ()
    gc_uncollectable: int | UnsetType = UNSET
    tasks: Annotated[int | UnsetType, Meta(description="Tasks of the event loop that have not ended.")] = (
        UNSET
    )


class ProcessBlock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``process``: this process itself."""

    pid: int | UnsetType = UNSET
    rss_bytes: int | UnsetType = UNSET
    vm_size_bytes: int | UnsetType = UNSET
    open_fd_count: int | UnsetType = UNSET
    cpu_ms: int | UnsetType = UNSET
    threads: int | UnsetType = UNSET
    loop_lag_ms: Annotated[
        int | UnsetType, Meta(description="How late a timer came, at most, since the snapshot before.")
    ] = UNSET
    python: PythonFacts | UnsetType = UNSET
    captured_at_ms: int
    reasons: tuple[str, ...] = ()


class ActorEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One actor of this process."""

    actor: Annotated[str, Meta(description="Path and serial, as in events.")]
    behaviour: Annotated[str | UnsetType, Meta(description="Class name.")] = UNSET
    state: str | UnsetType = UNSET
    mailbox_depth: int
    current_message: Annotated[str | UnsetType, Meta(description="Type being handled.")] = UNSET
    current_message_ms: Annotated[
        int | UnsetType, Meta(description="How long it has been handled, at least.")
    ] = UNSET
    oldest_wait_ms: Annotated[
        int | UnsetType, Meta(description="How long the oldest message has waited, at most.")
    ] = UNSET
    handled: int = 0
    dropped: Annotated[int, Meta(description="Messages lost to a full mailbox.")] = 0
    restarts: int = 0


class ActorsBlock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``actors``: totals, and the actors that deserve a look first."""

    actors: tuple[ActorEntry, ...] = ()
    actors_total: int
    actors_omitted: int = 0
    messages_waiting: int
    messages_dropped: int = 0
    messages_handled: int | UnsetType = UNSET
    restarts: int | UnsetType = UNSET
    dead_letters: int | UnsetType = UNSET
    ready_depth: Annotated[int | UnsetType, Meta(description="Actors waiting for their turn.")] = UNSET
    run_queue_lag_ms: Annotated[
        int | UnsetType, Meta(description="How long the last wakeup of the run queue took to come.")
    ] = UNSET
    scraped_at_ms: int


class RelayServerBlock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``relay_server``: the relay's own count; ours is a `swactor.relay.report.RelayReport`."""

    active_sessions: int
    total_opens: int
    total_closes: int
    bytes_rx_total: int
    bytes_tx_total: int
    closes_by_reason: tuple[tuple[str, int], ...] = ()
    parked_sessions: int | UnsetType = UNSET
    frames_queue_dropped_total: int | UnsetType = UNSET
    frames_unroutable_total: int | UnsetType = UNSET
    frames_pair_dropped_total: int | UnsetType = UNSET
    dropped_pairs: tuple[tuple[str, str], ...] = ()
    refusals_by_reason: tuple[tuple[str, int], ...] = ()
    refused_ids: tuple[str, ...] = ()
    paused_ids: tuple[str, ...] = ()
    limited_ids: tuple[tuple[str, int], ...] = ()
    draining: bool = False
    crashed_sessions: Annotated[
        int, Meta(description="Of a former process, told from its journal; not among opens and closes.")
    ] = 0
    journal_errors: Annotated[int, Meta(description="Writes to the journal that failed.")] = 0
    sessions: tuple[SessionReport, ...] = ()
    sessions_omitted: int = 0
    scraped_at_ms: int


class DropCount(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many events of a type, or records of a kind, are gone for good, and where they were lost."""

    where: Annotated[
        str,
        Meta(
            description="recorder (events nobody could fetch), spool (no room), refused (by the collector), "
            "damaged (on this node's disk)."
        ),
    ]
    what: Annotated[str, Meta(description="Event type in the recorder, else record kind.")]
    count: int
    events: Annotated[int | UnsetType, Meta(description="How many events were lost with them.")] = UNSET
    boot_id: Annotated[
        str | UnsetType, Meta(description="The process start that made them; absent: the reporting one.")
    ] = UNSET


class DeliveryBlock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``delivery``: what this node's diagnostics did with what they saw, since start."""

    events_made: int
    events_waiting: int
    records_made: int
    records_sent: int
    records_waiting: Annotated[int, Meta(description="In memory.")]
    records_spooled: Annotated[int, Meta(description="In the spool now.")]
    spooled_bytes: int
    records_set_aside: Annotated[int, Meta(description="Refused for good.")]
    attempts_failed: int
    last_failure: str | UnsetType = UNSET
    drops: Annotated[
        tuple[DropCount, ...], Meta(description="Also those of earlier boots, where the spool is on disk.")
    ] = ()


class IntrospectionOutcome(OpenEnum):
    """What asking one introspector brought."""

    OK = "ok"
    NO_DATA = "no_data"
    FAILED = "failed"
    UNRECOGNIZED = "unrecognized"


class IntrospectorEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One introspector in this snapshot: why its block is there or is not."""

    name: str
    outcome: IntrospectionOutcome
    duration_us: Annotated[int | UnsetType, Meta(description="Absent when no answer came.")] = UNSET
    reason: str | UnsetType = UNSET
