"""The real network: names are looked up in threads, ports are tried with sockets that do not block.

Owns: `ThreadResolver`, `SocketProber`, the bound on lookups under way. Not here: deadlines (the caller's).

A lookup cannot be called off, and a broken resolver may take half a minute: its thread is left alone with it,
the answer is dropped, and there are never more than `LOOKUPS_MAX` of them.
"""

import errno
import ipaddress
import os
import socket
import stat
import threading
from collections.abc import Callable
from contextlib import suppress

from swactor.abc import Cancellable, Loop
from swactor_diag.introspect._reach import Answer, Resolved, Transmission, Tried

LOOKUPS_MAX = 4
"""Lookups under way at once; one more fails at once, with that reason."""

PAYLOAD = b"PROBE"
RESOLVER_FILE = "/etc/resolv.conf"

_PENDING = frozenset({0, errno.EINPROGRESS})
_READ_BYTES_MAX = 65536


class ThreadResolver:
    """Implements `Resolver` with the system's own lookup."""

    def __init__(self, loop: Loop, *, file: str = RESOLVER_FILE) -> None:
        self._loop = loop
        self._file = file
        self._under_way = 0

    def resolve(self, host: str, done: Callable[[Resolved], None]) -> Cancellable:
        """See `Resolver.resolve`. An address is its own answer."""
        asked = _Asked(done)
        literal = _literal(host)
        if literal is not None:
            self._loop.call_soon(lambda: asked.answer(Resolved((literal,))))
        elif self._under_way >= LOOKUPS_MAX:
            busy = Resolved(error=f"{LOOKUPS_MAX} lookups have not been answered yet")
            self._loop.call_soon(lambda: asked.answer(busy))
        else:
            self._start(host, asked)
        return asked

    def nameservers(self) -> tuple[str, ...]:
        """See `Resolver.nameservers`. Only a regular file is read: a pipe could hold the loop for ever."""
        try:
            descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return ()
        try:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            data = os.read(descriptor, _READ_BYTES_MAX) if is_file else b""
        except OSError:
            return ()
        finally:
            os.close(descriptor)
        return parse_nameservers(data.decode("utf-8", "replace"))

    def _start(self, host: str, asked: "_Asked") -> None:
        thread = threading.Thread(
            target=self._look_up, args=(host, asked), name=f"look up {host}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # there can be no more threads
            failed = Resolved(error=str(error))
            self._loop.call_soon(lambda: asked.answer(failed))
        else:
            self._under_way += 1  # taken back on the loop, so never before this

    def _look_up(self, host: str, asked: "_Asked") -> None:
        """In a thread of its own."""
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            resolved = Resolved(tuple(dict.fromkeys(str(address[0]) for *_, address in found)))
        except (OSError, UnicodeError) as error:  # a name that cannot even be encoded is one of the latter
            resolved = Resolved(error=str(error))

        def tell() -> None:
            self._under_way -= 1
            asked.answer(resolved)

        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_from_thread(tell)


class _Asked:
    """A question whose answer is passed on unless it was called off."""

    def __init__(self, done: Callable[[Resolved], None]) -> None:
        self._done: Callable[[Resolved], None] | None = done

    def answer(self, resolved: Resolved) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(resolved)

    def cancel(self) -> None:
        """See `Cancellable`."""
        self._done = None


class SocketProber:
    """Implements `Prober`. UDP sockets are connected, as only then the kernel tells that a port is closed."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def attempt(
        self, transmission: Transmission, address: str, *, port: int, done: Callable[[Tried], None]
    ) -> Cancellable:
        """See `Prober.attempt`."""
        attempt = _Attempt(done)
        attempt.start(self._loop, transmission, (address, port))
        return attempt


class _Attempt:
    def __init__(self, done: Callable[[Tried], None]) -> None:
        self._done: Callable[[Tried], None] | None = done
        self._socket: socket.socket | None = None
        self._watch: Cancellable | None = None

    def start(self, loop: Loop, transmission: Transmission, target: tuple[str, int]) -> None:
        """Connect, and for UDP send; whatever comes of it at once is told on the next turn of the loop."""
        family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
        is_udp = transmission is Transmission.UDP
        try:
            self._socket = socket.socket(family, socket.SOCK_DGRAM if is_udp else socket.SOCK_STREAM)
            self._socket.settimeout(0)
            code = self._socket.connect_ex(target)
            if is_udp and not code:
                self._socket.send(PAYLOAD)
        except OSError as error:
            code = error.errno or errno.EIO
        if self._socket is None or code not in _PENDING:
            failed = _failed(code)
            loop.call_soon(lambda: self._finish(failed))
        elif is_udp:
            self._watch = loop.watch_readable(self._socket.fileno(), self._received)
        else:
            self._watch = loop.watch_writable(self._socket.fileno(), self._connected)

    def cancel(self) -> None:
        """See `Cancellable`."""
        self._done = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _received(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(_READ_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError as error:
            self._finish(_failed(error.errno or errno.EIO))
            return
        self._finish(Tried(Answer.OK) if data == PAYLOAD else Tried(Answer.ERROR, "not what was sent"))

    def _connected(self) -> None:
        if self._socket is None:
            return
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not code and self._socket.getsockname() == self._socket.getpeername():
            code = errno.ECONNREFUSED  # connected to itself, by chance of ports: nobody listens
        self._finish(_failed(code) if code else Tried(Answer.OK))

    def _finish(self, tried: Tried) -> None:
        done = self._done
        self.cancel()
        if done is not None:
            done(tried)


def parse_nameservers(text: str) -> tuple[str, ...]:
    """Return the servers of a ``resolv.conf`` in order; what is no address is left out."""
    words = [line.split() for line in text.splitlines()]
    named = [row[1] for row in words if len(row) >= 2 and row[0] == "nameserver"]
    return tuple(name for name in named if _literal(name.partition("%")[0]) is not None)


def _literal(host: str) -> str | None:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


def _failed(code: int) -> Tried:
    text = f"{errno.errorcode.get(code, str(code))}: {os.strerror(code)}"
    return Tried(Answer.REFUSED if code == errno.ECONNREFUSED else Answer.ERROR, text)
