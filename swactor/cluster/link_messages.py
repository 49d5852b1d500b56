"""What a link is told, and what it is connected to on its own node.

Owns: `LinkMessage`, `Wiring`.
Not here: what a link does with it (``link``), a connection's own messages (``tap``).
"""

from collections.abc import Callable

import msgspec

from swactor import NodeId
from swactor.cluster.handshake import Hello
from swactor.cluster.routing import Router
from swactor.cluster.tap import Tap, TapMessage
from swactor.cluster.transport import Connection, DialFailed, PeerAddress, Transport


class Flush(msgspec.Struct, frozen=True):
    """Something was put into the outbox."""


class UseAddress(msgspec.Struct, frozen=True):
    """Dial here from now on."""

    address: PeerAddress


class KeepUp(msgspec.Struct, frozen=True):
    """Whether the peer is a living member, so that its link is to be there at all times."""

    wanted: bool


class Admitted(msgspec.Struct, frozen=True):
    """The peer has opened a connection and proven that it may."""

    tap: Tap
    hello: Hello


class Dialled(msgspec.Struct, frozen=True):
    """The dial ``number`` has ended."""

    number: int
    result: Connection | DialFailed


class Tick(msgspec.Struct, frozen=True):
    """Time to look at the clock."""


class Redial(msgspec.Struct, frozen=True):
    """The backoff is over."""


class Leave(msgspec.Struct, frozen=True):
    """This node leaves: send what waits and say farewell; dial nobody any more."""


LinkMessage = TapMessage | Flush | UseAddress | KeepUp | Admitted | Dialled | Tick | Redial | Leave


class Wiring(msgspec.Struct, frozen=True):
    """What every link of a node is connected to on this side."""

    token: bytes
    transport: Transport
    router: Router
    on_swim: Callable[[NodeId, bytes], None]
    on_names: Callable[[NodeId, bytes], None]
    on_left: Callable[[NodeId], None]
