"""Event types that are declared beside their producers, under one roof for whoever reads bundles.

Owns: nothing but the list. Not here: decoding (``reading``), the types of diagnostics (``events``).
"""

from swactor.cluster.events import (
    DialErrorText,
    DialOutcome,
    DialStarted,
    GossipReceived,
    MemberState,
    SwimReason,
    SwimTransition,
)
from swactor.relay.events import RelaySessionClosed
from swactor_process.events import SubprocessGivenUp, SubprocessLeftBehind, SubprocessSpawnFailed

__all__ = [
    "DialErrorText",
    "DialOutcome",
    "DialStarted",
    "GossipReceived",
    "MemberState",
    "RelaySessionClosed",
    "SubprocessGivenUp",
    "SubprocessLeftBehind",
    "SubprocessSpawnFailed",
    "SwimReason",
    "SwimTransition",
]
