"""Transports: what carries the bytes of a cluster.

The seam is public here; each implementation is imported by its own module name, so that nobody loads a
library that is not used: ``transport.memory`` (in one process), ``transport.iroh`` (between machines).
"""

from swactor.cluster.transport._base import (
    DIAL_TIMEOUT_MS,
    AddressUse,
    Connection,
    ConnectionListener,
    ConnType,
    DialFailed,
    DialResult,
    FactSource,
    LossKind,
    LossReason,
    PathFacts,
    PeerAddress,
    Transport,
    TransportCounter,
    TransportFacts,
    TunnelFacts,
    TunnelStatus,
)

__all__ = [
    "DIAL_TIMEOUT_MS",
    "AddressUse",
    "ConnType",
    "Connection",
    "ConnectionListener",
    "DialFailed",
    "DialResult",
    "FactSource",
    "LossKind",
    "LossReason",
    "PathFacts",
    "PeerAddress",
    "Transport",
    "TransportCounter",
    "TransportFacts",
    "TunnelFacts",
    "TunnelStatus",
]
