"""One iroh connection as the seam's `Connection`: a single bi stream, read and written by its own tasks.

Owns: the reader, the write in progress, the one way out, and the reason a connection ended.
Not here: opening connections (``iroh``), frames, heartbeats, windows (the link above the seam).

Three rules come from measured faults of the library and must stay:

- A pending read or write is never cancelled (bytes would be lost); closing the connection ends both.
- The reader never waits for anybody: about 2,050 unread chunks in a stream kill the whole connection.
- The first byte belongs to this file: a stream is invisible to the peer until a byte is in it, so the
  opening side writes `STREAM_VERSION` and the accepting side takes it off.
"""

import asyncio
from typing import Final, Protocol

from iroh import BiStream, IrohError
from iroh import Connection as NativeConnection

from swactor import NodeId, parse_node_id
from swactor.cluster.transport._base import ConnectionListener, LossKind, LossReason
from swactor.cluster.transport._iroh_reasons import TEXT_MAX, cause, loss_reason

READ_BYTES: Final = 256 * 1024
STREAM_VERSION: Final = b"\x01"
PROTOCOL_CODE: Final = 400
"""Close code for a peer whose stream is not ours or ended without the connection."""

_REASON_BYTES_MAX: Final = 200


class ConnectionOwner(Protocol):
    """Who hears that a connection is over, to count and forget it."""

    def connection_ended(self, connection: "IrohConnection", reason: LossReason) -> None:
        """Called once, before the listener's ``lost``."""
        ...


class IrohConnection:
    """A `Connection` over iroh. Made by `open_stream` or `accept_stream`."""

    def __init__(self, native: NativeConnection, stream: BiStream, *, owner: ConnectionOwner) -> None:
        self.native: Final = native
        self._peer = peer_of(native)
        self._send = stream.send()
        self._recv = stream.recv()
        self._owner = owner
        self._listener: ConnectionListener | None = None
        self._reading: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._own_reason: LossReason | None = None
        self._lost: LossReason | None = None
        self.done: Final = asyncio.get_running_loop().create_task(self._watch(), name="iroh-connection")
        """Ends when the connection is over and nothing of it is pending in the library any more."""

    @property
    def peer(self) -> NodeId:
        """The other end, proven by the handshake."""
        return self._peer

    def start(self, listener: ConnectionListener) -> None:
        """Begin to report to ``listener``."""
        if self._listener is not None:
            raise RuntimeError("a connection is started once")
        self._listener = listener
        if self._lost is not None:
            asyncio.get_running_loop().call_soon(listener.lost, self._lost)
        elif self._own_reason is None:
            self._reading = asyncio.get_running_loop().create_task(self._read(listener), name="iroh-read")

    def write(self, data: bytes) -> None:
        """Send ``data``; ``written`` follows unless the connection is lost first."""
        if self._listener is None:
            raise RuntimeError("start the connection before writing to it")
        if self._own_reason is not None or self._lost is not None:
            return
        if self._writing is not None:
            raise RuntimeError("one write at a time: wait for written()")
        writing = self._write(data, self._listener)
        self._writing = asyncio.get_running_loop().create_task(writing, name="iroh-write")

    def close(self, code: int, reason: str) -> None:
        """End the connection at once; code and text reach the peer."""
        self.end(LossReason(LossKind.CLOSED_HERE, reason, code))

    def end(self, reason: LossReason) -> None:
        """End the connection from this side, for ``reason``; does nothing when it has ended or is ending."""
        if self._own_reason is not None or self._lost is not None:
            return
        self._own_reason = reason
        close_native(self.native, reason.code or 0, reason.text)

    async def _watch(self) -> None:
        """Wait for the end, let the pending read and write see it, then report it."""
        try:
            text = await self.native.closed()
        except IrohError as error:
            text = cause(error.message())
        self._lost = self._judge(text)
        pending = [task for task in (self._reading, self._writing) if task is not None]
        for failure in await asyncio.gather(*pending, return_exceptions=True):
            if isinstance(failure, BaseException):
                about = {"message": "a connection listener failed", "exception": failure}
                asyncio.get_running_loop().call_exception_handler(about)
        self._owner.connection_ended(self, self._lost)
        if self._listener is not None:
            self._listener.lost(self._lost)

    def _judge(self, text: str) -> LossReason:
        """The peer's or the network's verdict comes first: it may have arrived before our own close."""
        reason = loss_reason(text)
        if reason.kind is LossKind.CLOSED_HERE and self._own_reason is not None:
            return self._own_reason
        return reason

    async def _read(self, listener: ConnectionListener) -> None:
        """Hand over bytes as they come, until the connection ends."""
        while True:
            try:
                data = await self._recv.read(READ_BYTES)
            except IrohError as error:
                self._stream_failed(f"read: {cause(error.message())}")
                return
            if not data:
                self._stream_failed("read: the peer ended its stream")
                return
            if self._own_reason is None:
                self._hand_over(data, listener)

    def _hand_over(self, data: bytes, listener: ConnectionListener) -> None:
        """Give ``data`` to the listener. One that raises costs its connection: unread, it is doomed."""
        try:
            listener.received(data)
        except Exception as error:
            self.end(LossReason(LossKind.ERROR, f"the receiver failed: {error!r}"[:TEXT_MAX], PROTOCOL_CODE))
            raise

    async def _write(self, data: bytes, listener: ConnectionListener) -> None:
        """Hand ``data`` to the library as a whole."""
        try:
            await self._send.write_all(data)
        except IrohError as error:
            self._stream_failed(f"write: {cause(error.message())}")
            return
        self._writing = None
        if self._own_reason is None and self._lost is None:
            listener.written()

    def _stream_failed(self, text: str) -> None:
        """A stream is gone. Mostly its connection is, too, and says why; otherwise it is of no use now."""
        if self.native.close_reason() is None:
            reason = loss_reason(text)
            kind = LossKind.ERROR if reason.kind is LossKind.CLOSED_HERE else reason.kind
            self.end(LossReason(kind, text[:TEXT_MAX], PROTOCOL_CODE))


async def open_stream(native: NativeConnection, *, owner: ConnectionOwner) -> IrohConnection:
    """Open the stream of a connection that this side dialled, and make it visible to the peer."""
    stream = await native.open_bi()
    await stream.send().write_all(STREAM_VERSION)
    return IrohConnection(native, stream, owner=owner)


async def accept_stream(native: NativeConnection, *, owner: ConnectionOwner) -> IrohConnection | None:
    """Take the stream of a connection that the peer dialled; None, and closed, when it is not ours.

    Waits as long as the peer does: bound it by closing ``native``, never by cancelling.
    """
    stream = await native.accept_bi()
    version = await stream.recv().read_exact(len(STREAM_VERSION))
    if version != STREAM_VERSION:
        close_native(native, PROTOCOL_CODE, f"unknown stream version {version.hex()}")
        return None
    return IrohConnection(native, stream, owner=owner)


def peer_of(native: NativeConnection) -> NodeId:
    """The proven node id at the other end of ``native``."""
    return parse_node_id(native.remote_id().to_bytes().hex())


def close_native(native: NativeConnection, code: int, reason: str) -> None:
    """Close ``native``; harmless when it is closed."""
    try:
        native.close(code, reason.encode()[:_REASON_BYTES_MAX])
    except IrohError:
        return  # it ended by itself in this moment, which is what was wanted
