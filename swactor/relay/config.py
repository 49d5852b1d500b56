"""What a relay is told before it starts: where it listens, who may use it, its limits, and who it is.

Owns: `RelayConfig`, checked as a whole when it is made, and the node id a relay goes by.
Not here: anything that listens (see ``server``).
"""

import hashlib
import math
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from swactor import NodeId, SwactorError, parse_node_id
from swactor.addresses import is_loopback

TOKEN_LENGTH_MIN = 8
PORT_DEFAULT = 7843
JOURNALED_SESSIONS_MAX = 16_384
"""Those that are open fill at most half of a journal. With more it would be written anew at every opening."""


class RelayConfigError(SwactorError):
    """A relay cannot be run like this. ``field`` names the setting to change."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"relay setting {field}: {problem}")
        self.field = field


class Subprotocol(StrEnum):
    """Versions of the relay protocol, newest first."""

    V2 = "iroh-relay-v2"
    V1 = "iroh-relay-v1"


class RelayConfig(Struct, frozen=True, kw_only=True):
    """Settings of one relay.

    Who may use it: everybody who can connect (on loopback only), who shows the ``token``, whose node id
    is among the ``allowed_ids``, or who does both. Tokens travel in ``Authorization: Bearer`` headers: over
    plain HTTP, whoever can read the network can read them. They never appear in logs, records or ``repr``.

    Raises:
        RelayConfigError: a setting is out of range, or the combination is unsafe.
    """

    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    """0 takes a free port; `RelayServer.url` tells which."""
    advertised_url: str | None = None
    """How nodes reach this relay, when that differs from host and port (wildcard host, port mapping)."""
    certificate_file: Path | None = None
    """PEM file with the certificate chain; with it the relay speaks https only."""
    key_file: Path | None = None
    """PEM file with the private key of the certificate, when that is not in the same file."""
    subprotocols: tuple[Subprotocol, ...] = tuple(Subprotocol)
    """Versions to speak; the newest that the client offers too is chosen."""

    token: str | None = None
    """What a client must show to open a session."""
    allowed_ids: frozenset[str] | None = None
    """Node ids that may open a session; None: any. A client proves its id with a signature."""
    read_token: str | None = None
    """What ``/sessions`` and ``/metrics`` require; None answers loopback only."""
    admin_token: str | None = None
    """What ``/admin`` requires; None: there is no ``/admin``."""

    sessions_max: int = 4096
    """With a ``journal_file``, at most `JOURNALED_SESSIONS_MAX`."""
    sessions_per_id_max: int = 4
    """Above it, the oldest parked session of the id is closed."""
    sessions_listed_max: int = 256
    """Rows of the session table in a report; newest first, the rest is counted."""
    connections_per_address_max: int = 1024
    """TCP connections of one address, HTTP probes included; above it a new one is closed at once."""
    handshakes_max: int = 256
    """Clients that have not proved their identity yet; above it, HTTP 503."""
    opens_per_s_max: float | None = None
    """Sessions opened a second, evenly; who has to wait more than 8 s for it is denied. None: no limit."""
    handshake_timeout_s: float = 30.0
    """For a connection to send a whole request, and for a client then to prove its identity."""
    ping_period_s: float = 15.0
    """After so long without a frame from a client the relay pings it."""
    ping_jitter_s: float = 5.0
    ping_timeout_s: float = 5.0
    """After so long without any frame following a ping the session ends (idle timeout)."""
    write_timeout_s: float = 2.0
    """A client whose socket takes no byte for so long is cut."""
    queue_frames_max: int = 512
    """Frames that wait for one client; at the limit the newest is dropped and counted."""
    client_bytes_per_s_max: int | None = None
    """What is read of one session a second; beyond it the relay reads more slowly. None: no limit."""
    goodbye_timeout_s: float = 1.0
    """How long a closed session may take to flush its close frame before the socket is aborted."""
    drain_s: float = 0.0
    """An orderly stop closes the open sessions evenly over so long, so that not all come back at once."""

    journal_file: Path | None = None
    """Where open sessions are written down, for the next process to tell how they ended after a crash."""
    journal_period_s: float = 5.0
    """How old the byte counts in the journal may be."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise RelayConfigError("port", f"{self.port} is not in 0..65535")
        self._check_tokens()
        self._check_ids()
        self._check_reachability()
        if self.journal_file is not None and self.sessions_max > JOURNALED_SESSIONS_MAX:
            raise RelayConfigError("sessions_max", f"at most {JOURNALED_SESSIONS_MAX} with a journal_file")
        if self.key_file is not None and self.certificate_file is None:
            raise RelayConfigError("certificate_file", "required when there is a key_file")
        if not self.subprotocols:
            raise RelayConfigError("subprotocols", f"name at least one of {', '.join(Subprotocol)}")
        for name in (
            "sessions_max",
            "sessions_per_id_max",
            "connections_per_address_max",
            "handshakes_max",
            "opens_per_s_max",
            "queue_frames_max",
            "handshake_timeout_s",
            "ping_period_s",
            "ping_timeout_s",
            "write_timeout_s",
            "client_bytes_per_s_max",
            "goodbye_timeout_s",
            "journal_period_s",
        ):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise RelayConfigError(name, "must be above zero")
        for name in ("sessions_listed_max", "ping_jitter_s", "drain_s"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise RelayConfigError(name, "must not be negative")

    def __repr__(self) -> str:
        """Show the address and which tokens are set, not the tokens."""
        tokens = ", ".join(f"{name}={'set' if token else 'none'}" for name, token in self._tokens())
        return f"RelayConfig({self.host}:{self.port}, {tokens})"

    @property
    def idle_limit_ms(self) -> int:
        """The longest silence of a client before its session ends, milliseconds."""
        return round((self.ping_period_s + self.ping_jitter_s + self.ping_timeout_s) * 1000)

    def url_for(self, bound_port: int) -> str:
        """Return the URL that nodes use, given the port that was bound."""
        if self.advertised_url is not None:
            return self.advertised_url
        scheme = "http" if self.certificate_file is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{bound_port}/"

    def _tokens(self) -> tuple[tuple[str, str | None], ...]:
        return (("token", self.token), ("read_token", self.read_token), ("admin_token", self.admin_token))

    def _check_tokens(self) -> None:
        for name, token in self._tokens():
            if token is None:
                continue
            if len(token) < TOKEN_LENGTH_MIN:
                raise RelayConfigError(name, f"use at least {TOKEN_LENGTH_MIN} characters")
            if not (token.isascii() and token.isprintable()) or " " in token:
                raise RelayConfigError(name, "use printable ASCII without spaces")

    def _check_ids(self) -> None:
        for text in sorted(self.allowed_ids or ()):
            try:
                parse_node_id(text)
            except ValueError as error:
                raise RelayConfigError("allowed_ids", str(error)) from error

    def _check_reachability(self) -> None:
        if self.token is None and self.allowed_ids is None and not is_loopback(self.host):
            problem = f"this or allowed_ids is required to listen on {self.host}, which others can reach"
            raise RelayConfigError("token", problem)
        if self.advertised_url is None and self.host in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared, not bound
            raise RelayConfigError("advertised_url", "required when listening on every interface")
        if self.advertised_url is not None and not self.advertised_url.startswith(("http://", "https://")):
            raise RelayConfigError("advertised_url", "must start with http:// or https://")


def relay_node_id(advertised_url: str) -> NodeId:
    """Return the node id a relay goes by in records: SHA-256 of its advertised URL.

    A relay has no key pair of its own; the id only has to be stable and the same for everybody who knows
    the URL.
    """
    return NodeId(hashlib.sha256(advertised_url.encode()).hexdigest())
