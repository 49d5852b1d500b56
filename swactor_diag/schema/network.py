"""What a node knows of its network besides counters: routes, sockets, names, and what it can reach.

Owns: the records inside ``host`` and ``probes``, in the original's field names.
Not here: the blocks around ``host`` (``schema.blocks``). The same rules of absence hold.
"""

import enum
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType


class Route(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One route of this network namespace; the default one has a prefix of length 0."""

    family: Annotated[str, Meta(description="v4 or v6.")]
    destination: Annotated[str, Meta(description="With the length of its prefix.")]
    gateway: str | UnsetType = UNSET
    interface: str


class UdpSocket(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One UDP socket of this network namespace, whoever has it."""

    local_addr: str
    remote_addr: str
    state: Annotated[str, Meta(description="The kernel's two hex digits: 01 connected, 07 not.")]
    inode: int
    rx_queue_bytes: Annotated[int | UnsetType, Meta(description="Waiting to be read.")] = UNSET
    drops: Annotated[int | UnsetType, Meta(description="Lost at this socket since it exists.")] = UNSET


class DnsEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one host name meant when it was last looked up."""

    hostname: str
    a_records: tuple[str, ...] = ()
    aaaa_records: tuple[str, ...] = ()
    ttl_seconds: int | UnsetType = UNSET
    resolver_used: Annotated[
        str | UnsetType,
        Meta(description="Absent: the system does not say who answered, or whether anybody was asked."),
    ] = UNSET
    resolved_at_ms: int | UnsetType = UNSET
    error: str | UnsetType = UNSET


class ProbeOutcome(enum.StrEnum):
    """What became of one attempt to reach something."""

    PENDING = "pending"
    """No attempt has ended yet."""
    OK = "ok"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    """The host is there and nobody listens at the port."""
    UNRESOLVED = "unresolved"
    """The name has no address, or none in time."""
    ERROR = "error"


class Probe(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether one port of one host can be reached from here; says nothing about other ports."""

    target: Annotated[str, Meta(description="Label.")]
    kind: Annotated[
        str, Meta(description="udp_echo, tcp_relay; the original also wrote udp_relay, stun.")
    ] = "unknown"
    host: str | UnsetType = UNSET
    port: int | UnsetType = UNSET
    protocol: Annotated[str | UnsetType, Meta(description="udp or tcp.")] = UNSET
    resolved_addr: Annotated[str | UnsetType, Meta(description="That the last attempt went to.")] = UNSET
    last_attempted_at_ms: int | UnsetType = UNSET
    last_outcome: Annotated[str, Meta(description="ok, timeout, refused, unresolved, error, pending.")]
    last_rtt_ms: int | UnsetType = UNSET
    last_error: str | UnsetType = UNSET
    attempts: int = 0
    successes: int = 0


class ProbesBlock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``probes``: every target, sorted by kind and label."""

    probes: tuple[Probe, ...] = ()
    scraped_at_ms: int


class RentalBlock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``vastai``: what the provider of a rented machine put into the environment. Elsewhere there is none."""

    container_id: str | UnsetType = UNSET
    hostname: str | UnsetType = UNSET
    env_vars: Annotated[tuple[tuple[str, str], ...], Meta(description="Allow-listed, no secrets.")] = ()
    process_start_ms: Annotated[int | UnsetType, Meta(description="When its diagnostics started.")] = UNSET
    captured_at_ms: int
