"""The websocket under one relay session: its queue, its writer, its silence, and how it ended.

Owns: which of all possible ends of a connection is the one that happened. An own decision is recorded
before it is acted upon; what the wire did by itself is read off the tap. And when to read on: a client that
is paused or over its limit is not read, so that TCP slows it down.
Not here: routing and the book (see ``server``), meaning of frames.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from swactor.abc import Clock, RandomStream
from swactor.relay._tap import Tap
from swactor.relay.config import RelayConfig, Subprotocol
from swactor.relay.drills import Throttle
from swactor.relay.events import CloseReason
from swactor.relay.protocol import (
    PING_BYTES,
    ProtocolError,
    Status,
    ping_frame,
    status_frame,
    websocket_head,
)
from swactor.relay.session import Session

_WRITE_BYTES = 64 * 1024
"""A write takes further frames up to here; one more of the largest may exceed it."""


class CarrierOwner(Protocol):
    """Who hears of frames and of the end; the relay server."""

    def frame_received(self, carrier: "Carrier", message: bytes) -> None:
        """Handle one message; raises ProtocolError to have the session ended."""
        ...

    def carrier_ended(self, session: Session, reason: CloseReason, detail: str) -> None:
        """Take note of the end. Called exactly once a carrier, before the socket is closed."""
        ...


class Carrier:
    """One client's websocket for as long as its session lasts."""

    def __init__(
        self,
        session: Session,
        websocket: web.WebSocketResponse,
        *,
        transport: asyncio.Transport,
        owner: CarrierOwner,
        config: RelayConfig,
        clock: Clock,
        random: RandomStream,
    ) -> None:
        self.session = session
        self._websocket = websocket
        self._transport = transport
        self._tap = Tap.of(transport)
        self._owner = owner
        self._config = config
        self._clock = clock
        self._random = random
        self._control: deque[bytes] = deque()
        self._datagrams: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self._read_done = asyncio.Event()
        self._goodbye: bytes | None = None
        self._ping_payload = b""
        self._ping_sent_ns = 0
        self._patience_s = 0.0
        self._is_paused = False
        self._throttle: Throttle | None = None
        self._was_told_of_limit = False
        self._is_holding = False
        self._may_read = asyncio.Event()
        self._read_on_ns = 0
        self._silence_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    async def serve(self) -> None:
        """Carry the session until it ends; the socket is closed on return."""
        self._tap.on_paused = self._watch_stall
        self._tap.on_resumed = self._wake.set
        self._tap.on_lost = self._stop_waiting
        writer = asyncio.create_task(self._write(), name=f"relay-writer-{self.session.session_id}")
        self._ping()
        self._new_patience()
        try:
            await self._read()
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._read_done.set()
            await writer

    # -- to the client -----------------------------------------------------------------------------------

    def forward(self, frame: bytes) -> None:
        """Queue a frame of another client; dropped and counted when the queue is full (newest first)."""
        self._queue(self._datagrams, frame)

    def tell(self, frame: bytes) -> None:
        """Queue a frame of the relay itself; overtakes forwarded ones. Bounded like `forward`."""
        self._queue(self._control, frame)

    def _queue(self, queue: deque[bytes], frame: bytes) -> None:
        if len(queue) >= self._config.queue_frames_max:
            self.session.frames_queue_dropped += 1
            return
        queue.append(frame)
        self._wake.set()

    async def _write(self) -> None:
        try:
            await self._send_queued()
        except BaseException as error:
            self._fail(error)
            raise
        await self._part()

    async def _send_queued(self) -> None:
        """Send what is queued, as much at a time as the socket takes, until the session ends."""
        while not self._ended:
            is_sendable = not (self._tap.paused or self._transport.is_closing())
            if is_sendable and (self._control or self._datagrams):
                self._transport.write(self._next_messages())
            else:
                self._wake.clear()
                await self._wake.wait()

    def _next_messages(self) -> bytes:
        """Take frames off the queues, the relay's own first; many, as each write costs a system call."""
        parts: list[bytes] = []
        n_bytes = 0
        while n_bytes < _WRITE_BYTES and (queue := self._control or self._datagrams):
            frame = queue.popleft()
            parts += (websocket_head(len(frame)), frame)
            n_bytes += len(frame)
            self.session.sent(len(frame))
        return b"".join(parts)

    async def _part(self) -> None:
        """Say goodbye if there is one to say, and be rid of the socket within the goodbye timeout."""
        if self._goodbye is not None:
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(self._config.goodbye_timeout_s):
                    await self._websocket.send_frame(self._goodbye, WSMsgType.CLOSE)
                    # Closing at once could turn into a reset that overtakes the goodbye.
                    await self._read_done.wait()
                    self._transport.close()
                    await self._tap.lost.wait()
        self._transport.abort()

    # -- from the client ---------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Read until the client or the wire ends it; what comes after our own goodbye is thrown away."""
        while True:
            message = await self._websocket.receive()
            if message.type is WSMsgType.BINARY:
                if self._is_paused or self._throttle is not None:
                    await self._hold_back(len(message.data))
                if not self._ended:
                    self._take(message.data)
            elif message.type is WSMsgType.TEXT:
                code = WSCloseCode.UNSUPPORTED_DATA
                self.end(CloseReason.PROTOCOL_ERROR, detail="text message", goodbye=code)
            else:
                self._end_by(message)
                return

    def _take(self, frame: bytes) -> None:
        self.session.received(len(frame), now_ns=self._clock.monotonic_ns())
        try:
            self._owner.frame_received(self, frame)
        except ProtocolError as error:
            self.end(CloseReason.PROTOCOL_ERROR, detail=str(error), goodbye=WSCloseCode.PROTOCOL_ERROR)

    def _end_by(self, message: WSMessage) -> None:
        """End the session by a message that is not a frame: a close, an error, or the connection's end."""
        if message.type is WSMsgType.CLOSE:
            detail = f"code {message.data} {message.extra or ''}".rstrip()
            self.end(CloseReason.CLIENT_CLOSED, detail=detail, goodbye=WSCloseCode.OK)
        elif message.type is WSMsgType.ERROR and self._tap.wire_cause() is None:
            self.end(CloseReason.PROTOCOL_ERROR, detail=f"websocket: {message.data}")
        else:
            # `end` puts what the wire did in place of this; if it did nothing, it was us, unrecorded.
            self.end(
                CloseReason.RELAY_FAILURE, detail=f"closed without a recorded cause ({message.type.name})"
            )

    # -- reading on, or not ------------------------------------------------------------------------------

    def pause(self) -> None:
        """Read no further frame until `resume`. The client is not blamed for the silence."""
        self._is_paused = True

    def resume(self) -> None:
        """Read on."""
        self._is_paused = False
        self._may_read.set()

    def limit(self, bytes_per_s: int | None) -> None:
        """Read at most so many bytes of frames a second from now on; None: as fast as they come."""
        self._throttle = None
        if bytes_per_s is not None:
            self._throttle = Throttle(bytes_per_s, now_ns=self._clock.monotonic_ns())
        self._may_read.set()

    async def _hold_back(self, n_bytes: int) -> None:
        """Return when a frame of ``n_bytes`` may be handled; at once when nobody can wait for it any more."""
        if self._throttle is not None:
            self._throttle.take(n_bytes, now_ns=self._clock.monotonic_ns())
        while not self._ended and not self._tap.lost.is_set():
            wait_s = None if self._is_paused else self._limited_for_s()
            if wait_s == 0:
                return
            self._is_holding = True
            self._may_read.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._may_read.wait()
            self._is_holding = False
            self._read_on_ns = self._clock.monotonic_ns()

    def _limited_for_s(self) -> float:
        wait_s = 0.0 if self._throttle is None else self._throttle.wait_s(self._clock.monotonic_ns())
        if wait_s > 0 and not self._was_told_of_limit:
            self._was_told_of_limit = True
            self.tell(status_frame(Status.RATE_LIMITED, Subprotocol(self.session.subprotocol)))
        return wait_s

    # -- the end -----------------------------------------------------------------------------------------

    def end(self, reason: CloseReason, *, detail: str = "", goodbye: int | None = None) -> None:
        """End the session for ``reason``; the first call counts, later ones do nothing.

        When the wire has already ended by itself, that is the reason recorded. With ``goodbye``, a websocket
        close code, the client is told the reason; without, the socket is aborted.
        """
        if self._ended:
            return
        self._ended = True
        for timer in (self._silence_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        if reason is not CloseReason.CLIENT_CLOSED:
            reason, detail = self._tap.wire_cause() or (reason, detail)
        self._owner.carrier_ended(self.session, reason, detail)
        # A client whose socket is stuck cannot be told anything.
        if goodbye is None or self._tap.paused:
            self._transport.abort()
        else:
            text = "" if reason is CloseReason.CLIENT_CLOSED else reason.value
            self._goodbye = goodbye.to_bytes(2, "big") + text.encode()
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        self._wake.set()
        self._may_read.set()

    def _fail(self, error: BaseException) -> None:
        self.end(CloseReason.RELAY_FAILURE, detail=repr(error))

    def _after(self, delay_s: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Do ``action`` later. If it fails nobody watches the client any more, so the session ends."""

        def act() -> None:
            try:
                action()
            except BaseException as error:
                self._fail(error)
                raise

        return asyncio.get_running_loop().call_later(delay_s, act)

    # -- silence and stalls ------------------------------------------------------------------------------

    def ponged(self, payload: bytes) -> None:
        """Take the answer to a ping; one that answers no ping of ours is ignored."""
        if payload == self._ping_payload:
            self._ping_payload = b""
            self.session.rtt_ms = (self._clock.monotonic_ns() - self._ping_sent_ns) / 1e6

    def _ping(self) -> None:
        self._ping_payload = self._random.token(PING_BYTES)
        self._ping_sent_ns = self._clock.monotonic_ns()
        self.tell(ping_frame(self._ping_payload))

    def _alive_ns(self) -> int:
        """Return when the client was last heard, or could not be heard as we did not read."""
        if self._is_holding:
            return self._clock.monotonic_ns()
        return max(self.session.heard_ns, self._read_on_ns)

    def _silent_s(self) -> float:
        return (self._clock.monotonic_ns() - self._alive_ns()) / 1e9

    def _new_patience(self) -> None:
        """Draw how long the client may be silent before the next ping; jitter keeps pings apart."""
        jitter_s = self._random.below(round(self._config.ping_jitter_s * 1000) + 1) / 1000
        self._patience_s = self._config.ping_period_s + jitter_s
        self._check_silence()

    def _check_silence(self) -> None:
        remaining_s = self._patience_s - self._silent_s()
        if remaining_s > 0:
            self._silence_timer = self._after(remaining_s, self._check_silence)
        else:
            self._ping()
            self._silence_timer = self._after(self._config.ping_timeout_s, self._check_answer)

    def _check_answer(self) -> None:
        if self._alive_ns() > self._ping_sent_ns:
            self._new_patience()
        else:
            self.end(CloseReason.IDLE_TIMEOUT, detail=f"no frame for {self._silent_s():.1f} s")

    def _watch_stall(self) -> None:
        """The socket is full: from now on it must take bytes within each write timeout."""
        if not self._ended:
            self._arm_stall()

    def _arm_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        taken = self._taken_bytes()
        self._stall_timer = self._after(self._config.write_timeout_s, lambda: self._check_stall(taken))

    def _check_stall(self, taken_before: int) -> None:
        if not self._tap.paused:
            return
        if self._taken_bytes() > taken_before:
            self._arm_stall()
        else:
            unsent = self._transport.get_write_buffer_size()
            self.end(CloseReason.SLOW_CLIENT, detail=f"{unsent} bytes unsent")

    def _taken_bytes(self) -> int:
        """Return what the client has taken so far; where the kernel does not tell, what left our buffer.

        That buffer alone may grow while the socket takes some, and below TLS there is a second one.
        """
        acked = self._tap.acked_bytes()
        if acked is not None:
            return acked
        return self.session.bytes_tx - self._transport.get_write_buffer_size()
