"""What a relay tells about its sessions: one event when one opens, one when it ends, and why it ended.

Owns: the two event types, the closed set of close reasons, and the rule that gives each reason its initiator
and says what the wire could not tell. Not here: when a session opens or ends (see ``sessions``).

``bytes_rx`` is what the relay received from the peer, ``bytes_tx`` what it wrote to the peer: whole relay
frames, without websocket and TCP headers.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from swactor import Event


class CloseInitiator(StrEnum):
    """Whose doing the end of a relay session was."""

    RELAY = "relay"
    REMOTE = "remote"
    IDLE_TIMEOUT = "idle_timeout"
    TRANSPORT = "transport"
    UNRECOGNIZED = "unrecognized"
    """Read from a record of a newer version; never written."""

    @classmethod
    def _missing_(cls, value: object) -> "CloseInitiator":  # noqa: ARG003 - any unknown one
        return cls.UNRECOGNIZED


class CloseReason(StrEnum):
    """Why a relay session ended. `CLOSE_RULES` explains each."""

    CLIENT_CLOSED = "client_closed"
    CLIENT_GONE = "client_gone"
    CONNECTION_RESET = "connection_reset"
    TRANSPORT_ERROR = "transport_error"
    IDLE_TIMEOUT = "idle_timeout"
    SLOW_CLIENT = "slow_client"
    PROTOCOL_ERROR = "protocol_error"
    SUPERSEDED = "superseded"
    EVICTED = "evicted"
    RELAY_SHUTDOWN = "relay_shutdown"
    RELAY_FAILURE = "relay_failure"
    CRASHED = "crashed"


class CloseEvidence(StrEnum):
    """What the relay saw or did that made it write the reason down."""

    CLOSE_FRAME = "close_frame"
    FIN = "fin"
    RESET = "reset"
    OS_ERROR = "os_error"
    SILENCE = "silence"
    OWN_ACTION = "own_action"
    JOURNAL = "journal"


class CloseRule(Struct, frozen=True):
    """What one close reason implies."""

    initiator: CloseInitiator
    evidence: CloseEvidence
    meaning: str
    ambiguous: str = ""
    """Which causes look the same on the wire; empty when the reason is certain."""


CLOSE_RULES: Mapping[CloseReason, CloseRule] = MappingProxyType(
    {
        CloseReason.CLIENT_CLOSED: CloseRule(
            CloseInitiator.REMOTE,
            CloseEvidence.CLOSE_FRAME,
            "The client said goodbye with a websocket close frame.",
        ),
        CloseReason.CLIENT_GONE: CloseRule(
            CloseInitiator.REMOTE,
            CloseEvidence.FIN,
            "The client's side of the TCP connection ended without a close frame.",
            "its process died, or it dropped this tunnel and lives on",
        ),
        CloseReason.CONNECTION_RESET: CloseRule(
            CloseInitiator.TRANSPORT,
            CloseEvidence.RESET,
            "The TCP connection was reset.",
            "the client's process died with unread data, or something on the way rejected the packets",
        ),
        CloseReason.TRANSPORT_ERROR: CloseRule(
            CloseInitiator.TRANSPORT,
            CloseEvidence.OS_ERROR,
            "The operating system gave the connection up (no route, timed out); the detail names the error.",
        ),
        CloseReason.IDLE_TIMEOUT: CloseRule(
            CloseInitiator.IDLE_TIMEOUT,
            CloseEvidence.SILENCE,
            "Nothing came from the client for the idle limit, no answer to the relay's ping either.",
            "the client is frozen or switched off, or packets are lost on the way",
        ),
        CloseReason.SLOW_CLIENT: CloseRule(
            CloseInitiator.RELAY,
            CloseEvidence.OWN_ACTION,
            "The client's socket took no byte for the write timeout while frames waited for it.",
            "the client does not read, or packets are lost on the way",
        ),
        CloseReason.PROTOCOL_ERROR: CloseRule(
            CloseInitiator.RELAY,
            CloseEvidence.OWN_ACTION,
            "The client sent something the protocol does not allow; the detail says what.",
        ),
        CloseReason.SUPERSEDED: CloseRule(
            CloseInitiator.RELAY,
            CloseEvidence.OWN_ACTION,
            "The same id opened more sessions than one id may have; this was the oldest parked one.",
        ),
        CloseReason.EVICTED: CloseRule(
            CloseInitiator.RELAY,
            CloseEvidence.OWN_ACTION,
            "An administrator closed the session.",
        ),
        CloseReason.RELAY_SHUTDOWN: CloseRule(
            CloseInitiator.RELAY,
            CloseEvidence.OWN_ACTION,
            "The relay was stopped; the detail says by what.",
        ),
        CloseReason.RELAY_FAILURE: CloseRule(
            CloseInitiator.RELAY,
            CloseEvidence.OWN_ACTION,
            "A defect of the relay: it failed while it served the session; the detail names the error.",
        ),
        CloseReason.CRASHED: CloseRule(
            CloseInitiator.RELAY,
            CloseEvidence.JOURNAL,
            "The relay's process ended without a stop; its successor tells, as of the journal's last entry.",
            "the process was killed, or it crashed, or its machine failed",
        ),
    }
)


class RelaySessionOpened(Event, frozen=True):
    """A node proved its identity to the relay, and its tunnel is ready."""

    peer_node_id_hex: Annotated[str, Meta(description="Node id of the client, 64 hex digits.")]
    at_ms: Annotated[int, Meta(description="When, UTC.")]
    session_id: (
        Annotated[int, Meta(description="From 1; goes on over restarts with a journal.")] | UnsetType
    ) = UNSET
    subprotocol: str | UnsetType = UNSET
    remote_address: Annotated[str, Meta(description="Address and port of the client.")] | UnsetType = UNSET
    superseded_session_id: (
        Annotated[int, Meta(description="Session of the same id that this one parked.")] | UnsetType
    ) = UNSET


class RelaySessionClosed(Event, frozen=True):
    """A relay session ended; written exactly once for each one opened."""

    peer_node_id_hex: Annotated[str, Meta(description="Node id of the client, 64 hex digits.")]
    opened_at_ms: int
    closed_at_ms: int
    duration_ms: Annotated[int, Meta(description="Opening to end, monotonic.")]
    close_initiator: CloseInitiator
    close_reason: Annotated[str, Meta(description="A `CloseReason`; older relays wrote free text.")]
    bytes_rx: Annotated[int, Meta(description="Received from the peer, frame bytes.")]
    bytes_tx: Annotated[int, Meta(description="Written to the peer, frame bytes.")]
    session_id: int | UnsetType = UNSET
    evidence: Annotated[str, Meta(description="A `CloseEvidence`: what the relay saw.")] | UnsetType = UNSET
    ambiguous: Annotated[str, Meta(description="Causes that look the same on the wire.")] | UnsetType = UNSET
    detail: Annotated[str, Meta(description="For people: close code, error name.")] | UnsetType = UNSET
    parked: Annotated[bool, Meta(description="A newer session of the id was active.")] | UnsetType = UNSET
    promoted_session_id: (
        Annotated[int, Meta(description="Parked session that became active.")] | UnsetType
    ) = UNSET
    idle_ms: Annotated[int, Meta(description="Since the last frame from the peer.")] | UnsetType = UNSET
    idle_limit_ms: int | UnsetType = UNSET
    rtt_ms: Annotated[float, Meta(description="Last answered ping.")] | UnsetType = UNSET
    frames_queue_dropped: (
        Annotated[int, Meta(description="For this peer, dropped as its queue was full.")] | UnsetType
    ) = UNSET
