"""What a relay is told before it starts: where it listens, who may use it, its limits, and who it is.

Owns: `RelayConfig`, checked as a whole when it is made, and the node id a relay goes by.
Not here: anything that listens (see ``server``).
"""

import hashlib
import ipaddress

from msgspec import Struct

from swactor import NodeId, SwactorError

TOKEN_LENGTH_MIN = 8


class RelayConfigError(SwactorError):
    """A relay cannot be run like this. ``field`` names the setting to change."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"relay setting {field}: {problem}")
        self.field = field


class RelayConfig(Struct, frozen=True, kw_only=True):
    """Settings of one relay.

    Beyond loopback a ``token`` is required. Tokens travel in ``Authorization: Bearer`` headers over plain
    HTTP: whoever can read the network can read them. They never appear in logs, records or ``repr``.

    Raises:
        RelayConfigError: a setting is out of range, or the combination is unsafe.
    """

    host: str = "127.0.0.1"
    port: int = 7843
    """0 takes a free port; `RelayServer.url` tells which."""
    advertised_url: str | None = None
    """How nodes reach this relay, when that differs from host and port (wildcard host, port mapping)."""
    token: str | None = None
    """What a client must show to open a session; None admits every client (loopback only)."""
    read_token: str | None = None
    """What ``/sessions`` requires; None answers loopback only."""
    admin_token: str | None = None
    """What ``/admin`` requires; None: there is no ``/admin``."""
    sessions_max: int = 4096
    sessions_per_id_max: int = 4
    """Above it, the oldest parked session of the id is closed."""
    sessions_listed_max: int = 256
    """Rows of the session table in a report; newest first, the rest is counted."""
    handshakes_max: int = 256
    """Clients that have not proved their identity yet; above it, HTTP 503."""
    handshake_timeout_s: float = 30.0
    ping_period_s: float = 15.0
    """After so long without a frame from a client the relay pings it."""
    ping_jitter_s: float = 5.0
    ping_timeout_s: float = 5.0
    """After so long without any frame following a ping the session ends (idle timeout)."""
    write_timeout_s: float = 2.0
    """A client whose socket takes no byte for so long is cut."""
    queue_frames_max: int = 512
    """Frames that wait for one client; at the limit the newest is dropped and counted."""
    goodbye_timeout_s: float = 1.0
    """How long a closed session may take to flush its close frame before the socket is aborted."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise RelayConfigError("port", f"{self.port} is not in 0..65535")
        self._check_tokens()
        self._check_reachability()
        for name in (
            "sessions_max",
            "sessions_per_id_max",
            "handshakes_max",
            "queue_frames_max",
            "handshake_timeout_s",
            "ping_period_s",
            "ping_timeout_s",
            "write_timeout_s",
            "goodbye_timeout_s",
        ):
            if not getattr(self, name) > 0:
                raise RelayConfigError(name, "must be above zero")
        for name in ("sessions_listed_max", "ping_jitter_s"):
            if getattr(self, name) < 0:
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
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{bound_port}/"

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

    def _check_reachability(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise RelayConfigError("token", f"required to listen on {self.host}, which others can reach")
        if self.advertised_url is None and self.host in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared, not bound
            raise RelayConfigError("advertised_url", "required when listening on every interface")
        if self.advertised_url is not None and not self.advertised_url.startswith(("http://", "https://")):
            raise RelayConfigError("advertised_url", "must start with http:// or https://")


def is_loopback(host: str) -> bool:
    """Whether ``host``, an address or a name, means this machine only. Names other than localhost do not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def relay_node_id(advertised_url: str) -> NodeId:
    """Return the node id a relay goes by in records: SHA-256 of its advertised URL.

    A relay has no key pair of its own; the id only has to be stable and the same for everybody who knows
    the URL.
    """
    return NodeId(hashlib.sha256(advertised_url.encode()).hexdigest())
