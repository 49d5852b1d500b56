"""Between a connection and the actors that use it: callbacks become messages.

Owns: `Tap`, which collects the fixed-size hello and then passes bytes on to whoever uses the connection.
Not here: judging the hello (``handshake``), frames (``link``).
"""

from typing import Any

import msgspec

from swactor import ActorRef, MailboxFullError, NodeId
from swactor.cluster.handshake import HELLO_BYTES
from swactor.cluster.session import CloseCode
from swactor.cluster.transport import Connection, LossReason

HELD_BYTES_MAX = 64 << 10
"""More than this before anybody takes the connection over is no hello: it is closed."""


class HelloRead(msgspec.Struct, frozen=True):
    """The first `HELLO_BYTES` bytes have come; the rest waits in the tap until `Tap.use`."""

    tap: "Tap"
    hello: bytes


class BytesRead(msgspec.Struct, frozen=True):
    """More bytes of a connection in use."""

    tap: "Tap"
    data: bytes


class Written(msgspec.Struct, frozen=True):
    """The write in progress was handed over."""

    tap: "Tap"


class ConnectionLost(msgspec.Struct, frozen=True):
    """The connection has ended."""

    tap: "Tap"
    reason: LossReason


TapMessage = HelloRead | BytesRead | Written | ConnectionLost


class Tap:
    """The listener of one connection; tells ``owner``, an actor, what happens to it."""

    __slots__ = ("_held", "_hello_read", "_in_use", "connection", "owner", "peer")

    def __init__(self, connection: Connection, owner: ActorRef[Any]) -> None:
        self.connection = connection
        self.peer: NodeId = connection.peer
        self.owner: ActorRef[Any] | None = owner
        self._held = bytearray()
        self._hello_read = False
        self._in_use = False
        connection.start(self)

    def use(self, owner: ActorRef[Any]) -> bytes:
        """Pass everything to ``owner`` from now on; return the bytes that came after the hello so far."""
        self.owner = owner
        self._in_use = True
        held, self._held = bytes(self._held), bytearray()
        return held

    def close(self, code: CloseCode, reason: str) -> None:
        """End the connection; `ConnectionLost` follows."""
        self.connection.close(code, reason)

    def retire(self, code: CloseCode, reason: str) -> None:
        """End the connection and tell nobody any more."""
        self.owner = None
        self.connection.close(code, reason)

    # --- what the transport calls -----------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Pass on, or collect the hello."""
        if self._in_use:
            self._tell(BytesRead(self, data))
            return
        self._held += data
        if len(self._held) > HELD_BYTES_MAX:
            self.close(CloseCode.PROTOCOL, "too much before the greeting was over")
        elif not self._hello_read and len(self._held) >= HELLO_BYTES:
            self._hello_read = True
            hello = bytes(self._held[:HELLO_BYTES])
            del self._held[:HELLO_BYTES]
            self._tell(HelloRead(self, hello))

    def written(self) -> None:
        """Pass on."""
        self._tell(Written(self))

    def lost(self, reason: LossReason) -> None:
        """Pass on."""
        self._tell(ConnectionLost(self, reason))

    def _tell(self, message: TapMessage) -> None:
        if self.owner is None:
            return
        try:
            self.owner.tell(message)
        except MailboxFullError:
            self.close(CloseCode.PROTOCOL, "this node does not keep up")
