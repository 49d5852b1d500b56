"""A relay that iroh endpoints use unmodified, and that can say who closed which session and why.

This package's names need no web server: events, reports, settings and the pure session book. The server is
``swactor.relay.server.RelayServer`` and needs the ``relay`` extra, as does ``swactor.relay.protocol``.
"""

from swactor.relay.config import RelayConfig, RelayConfigError, Subprotocol, relay_node_id
from swactor.relay.events import (
    CLOSE_RULES,
    CloseEvidence,
    CloseInitiator,
    CloseReason,
    CloseRule,
    RelaySessionClosed,
    RelaySessionOpened,
)
from swactor.relay.report import RelayReport, SessionReport, SessionState
from swactor.relay.session import Instant, Session
from swactor.relay.sessions import Closed, Notice, NoticeKind, Opened, Refusal, SessionBook

__all__ = [
    "CLOSE_RULES",
    "CloseEvidence",
    "CloseInitiator",
    "CloseReason",
    "CloseRule",
    "Closed",
    "Instant",
    "Notice",
    "NoticeKind",
    "Opened",
    "Refusal",
    "RelayConfig",
    "RelayConfigError",
    "RelayReport",
    "RelaySessionClosed",
    "RelaySessionOpened",
    "Session",
    "SessionBook",
    "SessionReport",
    "SessionState",
    "Subprotocol",
    "relay_node_id",
]
