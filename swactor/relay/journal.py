"""Which sessions were open: kept in a file, so that a relay that was killed is told of by its successor.

Owns: the file. Each line is one entry: a session was opened or its counts have changed, a session was closed,
the relay was alive. Lines go to the page cache, which outlives the process; a loss of power may cost the
last ones. A relay never fails for its journal: writes that fail are counted and tried again with the next.
Not here: when to write (see ``server``), what a close means (see ``events``).
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from swactor import SwactorError
from swactor.relay.events import CloseReason, RelaySessionClosed
from swactor.relay.session import Instant, Session, closing_event

FILE_BYTES_MAX = 16 * 1024 * 1024
"""A journal beyond this is written anew with what is open; one open session is 280 to 370 bytes."""

_HEAD = b'{"entry":"relay_journal","version":1}\n'


class JournalError(SwactorError):
    """The journal cannot be used: no access, another relay has it, or the file is something else."""


class _Open(Struct, frozen=True, tag_field="entry", tag="open"):
    """One open session, as of now; a later entry of the same session replaces it."""

    session_id: int
    peer: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    opened: Instant
    heard_ns: int
    bytes_rx: int
    bytes_tx: int
    frames_queue_dropped: int
    parked: bool
    rtt_ms: float | None

    @classmethod
    def of(cls, session: Session) -> "_Open":
        """Return what to write down of ``session``."""
        return cls(
            session_id=session.session_id,
            peer=session.node_id_hex,
            opened=session.opened,
            heard_ns=session.heard_ns,
            bytes_rx=session.bytes_rx,
            bytes_tx=session.bytes_tx,
            frames_queue_dropped=session.frames_queue_dropped,
            parked=session.parked,
            rtt_ms=session.rtt_ms,
        )

    def session(self) -> Session:
        """Return the session as it was when this was written."""
        session = Session(
            self.session_id, bytes.fromhex(self.peer), opened=self.opened, subprotocol="", remote_address=""
        )
        session.heard_ns = self.heard_ns
        session.bytes_rx, session.bytes_tx = self.bytes_rx, self.bytes_tx
        session.frames_queue_dropped = self.frames_queue_dropped
        session.parked, session.rtt_ms = self.parked, self.rtt_ms
        return session


class _Closed(Struct, frozen=True, tag_field="entry", tag="closed"):
    """A session was closed, and its closing record was emitted."""

    session_id: int


class _Alive(Struct, frozen=True, tag_field="entry", tag="alive"):
    """The relay ran at this moment; ids up to ``last_session_id`` have been given."""

    at: Instant
    last_session_id: int
    idle_limit_ms: int


_Entry = _Open | _Closed | _Alive
_DECODER = msgspec.json.Decoder(_Entry)


class Leftover(Struct, frozen=True):
    """What a former process left behind."""

    crashed: tuple[RelaySessionClosed, ...] = ()
    """Closing records of the sessions it never closed."""
    last_session_id: int = 0


class Journal:
    """The journal of one relay process; `open` takes it over from the former one."""

    def __init__(self, path: Path, descriptor: int, *, last_session_id: int, idle_limit_ms: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._last_session_id = last_session_id
        self._idle_limit_ms = idle_limit_ms
        self._written: dict[int, _Open] = {}
        self._n_bytes = 0
        self._is_damaged = False
        self.errors = 0
        """Writes that failed, so far."""

    @classmethod
    def open(cls, path: Path, now: Instant, *, idle_limit_ms: int) -> tuple["Journal", Leftover]:
        """Take over the file at ``path``, made if there is none; return what is left in it.

        That stays there until `begin`: whoever dies before it has told of it leaves it behind again.

        Raises:
            JournalError: no access, another relay has it, or the file is no journal.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(f"cannot open the journal {path}: {error.strerror}") from error
        try:
            _lock(descriptor, path)
            leftover = _leftover(_entries(descriptor, path), now)
        except BaseException:
            os.close(descriptor)
            raise
        journal = cls(path, descriptor, last_session_id=leftover.last_session_id, idle_limit_ms=idle_limit_ms)
        return journal, leftover

    def begin(self, now: Instant) -> None:
        """Start anew: what was left has been told."""
        self._write_anew(now)

    def opened(self, session: Session) -> None:
        """Write down that ``session`` is open. Call it before anybody is told."""
        self._last_session_id = session.session_id
        entry = self._written[session.session_id] = _Open.of(session)
        self._append_or_write_anew([entry], session.opened)

    def closed(self, session: Session) -> None:
        """Write down that ``session`` is closed. Call it after its closing record has been emitted."""
        del self._written[session.session_id]
        self._append([_Closed(session.session_id)])

    def checkpoint(self, sessions: Iterable[Session], now: Instant) -> None:
        """Write down that the relay lives, and the counts of ``sessions`` that have changed."""
        changed: list[_Entry] = []
        for session in sessions:
            entry = _Open.of(session)
            if entry != self._written[session.session_id]:
                self._written[session.session_id] = entry
                changed.append(entry)
        if self._is_damaged:
            self._write_anew(now)
        else:
            self._append_or_write_anew([*changed, self._alive(now)], now)

    def close(self) -> None:
        """Let go of the file; sessions that are still open in it count as crashed."""
        os.close(self._descriptor)

    def _alive(self, now: Instant) -> _Alive:
        return _Alive(now, self._last_session_id, self._idle_limit_ms)

    def _append_or_write_anew(self, entries: Iterable[_Entry], now: Instant) -> None:
        if self._n_bytes > FILE_BYTES_MAX and not self._is_damaged:
            self._write_anew(now)
        else:
            self._append(entries)

    def _append(self, entries: Iterable[_Entry]) -> None:
        if self._is_damaged:
            return  # The next checkpoint writes it anew.
        try:
            self._n_bytes += _write(self._descriptor, _lines(entries))
        except OSError:
            self.errors += 1
            self._is_damaged = True

    def _write_anew(self, now: Instant) -> None:
        """Put a file with only what is open in place of this one, in one step."""
        fresh = self._path.with_name(self._path.name + ".new")
        try:
            descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                n_bytes = _write(descriptor, _HEAD + _lines([self._alive(now), *self._written.values()]))
                fresh.replace(self._path)
            except OSError:
                os.close(descriptor)
                raise
        except OSError:
            self.errors += 1
            self._is_damaged = True
            return
        os.close(self._descriptor)
        self._descriptor, self._n_bytes, self._is_damaged = descriptor, n_bytes, False


def _lock(descriptor: int, path: Path) -> None:
    in_use = JournalError(f"another relay uses the journal {path}")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # It may have been replaced between opening and locking; then its owner lives.
        is_current = os.path.samestat(os.fstat(descriptor), path.stat())
    except BlockingIOError as error:
        raise in_use from error
    except OSError as error:
        raise JournalError(f"cannot lock the journal {path}: {error.strerror}") from error
    if not is_current:
        raise in_use


def _entries(descriptor: int, path: Path) -> list[bytes]:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise JournalError(f"{path} is not a regular file")
    with os.fdopen(os.dup(descriptor), "rb") as file:
        # A journal is written anew beyond its limit; what a checkpoint may add to it is far below that again.
        content = file.read(2 * FILE_BYTES_MAX)
    if content and not content.startswith(_HEAD):
        raise JournalError(f"{path} is not the journal of a relay")
    return content.splitlines()[1:]


def _write(descriptor: int, data: bytes) -> int:
    written = os.write(descriptor, data)
    if written != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return written


def _lines(entries: Iterable[_Entry]) -> bytes:
    return b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)


def _leftover(lines: Iterable[bytes], now: Instant) -> Leftover:
    """Return who was open at the end; a line that is no entry, such as a torn last one, is left out."""
    sessions: dict[int, Session] = {}
    alive = None
    last_session_id = 0
    for line in lines:
        try:
            entry = _DECODER.decode(line)
        except msgspec.MsgspecError:
            continue
        match entry:
            case _Open():
                sessions[entry.session_id] = entry.session()
                last_session_id = max(last_session_id, entry.session_id)
            case _Closed():
                sessions.pop(entry.session_id, None)
            case _Alive():
                alive = entry
                last_session_id = max(last_session_id, entry.last_session_id)
    if alive is None:
        return Leftover(last_session_id=last_session_id)
    crashed = tuple(_crashed(session, alive, now) for session in sessions.values())
    return Leftover(crashed, last_session_id)


def _crashed(session: Session, alive: _Alive, now: Instant) -> RelaySessionClosed:
    """Return the closing record of a session whose relay is known to have lived until ``alive``."""
    seen = max(alive.at, session.opened, key=lambda instant: instant.monotonic_ns)
    return closing_event(
        session,
        CloseReason.CRASHED,
        seen,
        idle_limit_ms=alive.idle_limit_ms,
        detail=f"ended after closed_at_ms and before {now.wall_ms}; counts as of closed_at_ms",
    )
