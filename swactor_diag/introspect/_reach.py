"""How names become addresses and ports are tried: the seams.

Owns: `Resolver`, `Prober` and their answers. Not here: the real ones (``sockets``), when anything is looked
up or tried and for how long (``dns``, ``probes``, which call off what takes too long).
"""

import enum
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from swactor.abc import Cancellable


class Transmission(enum.StrEnum):
    """How a port is tried."""

    UDP = "udp"
    """One datagram, which has to come back as it was."""
    TCP = "tcp"
    """One connection, which has to stand."""


class Answer(enum.StrEnum):
    """What a port said. Silence is no answer."""

    OK = "ok"
    REFUSED = "refused"
    ERROR = "error"


class Tried(Struct, frozen=True):
    """What became of one try; ``error`` says more about the two that are not OK."""

    answer: Answer
    error: str = ""


class Resolved(Struct, frozen=True):
    """The addresses of a name in the order to try them; none and an ``error`` when it has none."""

    addresses: tuple[str, ...] = ()
    error: str = ""


class Resolver(Protocol):
    """Looks names up without holding the loop."""

    def resolve(self, host: str, done: Callable[[Resolved], None]) -> Cancellable:
        """Look ``host`` up; ``done`` is called later on the loop, once, unless cancelled before."""
        ...

    def nameservers(self) -> tuple[str, ...]:
        """Return the servers that are asked, as far as this is known."""
        ...


class Prober(Protocol):
    """Tries ports, each time with a fresh socket."""

    def attempt(
        self, transmission: Transmission, address: str, *, port: int, done: Callable[[Tried], None]
    ) -> Cancellable:
        """Try ``port`` of ``address``; ``done`` is called later on the loop, at most once, or never.

        Cancelling lets go of the socket.
        """
        ...
