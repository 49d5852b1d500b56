"""A storage on an object store (S3, Google, Azure, and what speaks their protocols), for several collectors.

Owns: `ObjectStorage`: how files and logs become objects. Not here: what is promised (``storage_seam``), the
protocols (the library `obstore`).

Objects cannot grow. So what is appended to a log waits for the next flush and becomes an object of its own
then, named after its place in the log: ``main-000001.seg~/000000000008192``. No plain name has a ``~``. When
the log is sealed, its pieces become one object. Reading goes by blocks, of which some are kept.
"""

import builtins
import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING

import msgspec
import obstore
from obstore.exceptions import BaseError, GenericError, NotFoundError
from obstore.store import ObjectStore, from_url

from swactor_diag.collector.config import ConfigError
from swactor_diag.collector.storage_seam import (
    Entry,
    EntryKind,
    StorageError,
    StorageFullError,
    StorageMissingError,
    StoragePath,
    StorageTakenError,
    checked_path,
)

if TYPE_CHECKING:
    from obstore import ObjectMeta

PENDING_BYTES_MAX = 256 * 1024 * 1024
"""What may wait for a flush; more is refused."""

_PART_BYTES = 8 * 1024 * 1024
_BLOCK_BYTES = 4 * 1024 * 1024
_BLOCKS_MAX = 16
_PIECES = "~"
_LOG = logging.getLogger(__name__)


class _Part(msgspec.Struct, frozen=True):
    """An object that holds a file from ``offset`` on."""

    key: str
    offset: int
    size: int
    version: str
    """Changes when somebody writes other bytes under the same key: the store's version of the object,
    else its ETag, else when it was written."""

    @property
    def stop(self) -> int:
        """Where in the file what follows it begins."""
        return self.offset + self.size


class _Pending:
    """What was appended to a log since the last flush."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.data = bytearray()


class ObjectStorage:
    """The tree of a storage below an address such as ``s3://bucket/prefix``."""

    flushes = True

    def __init__(self, url: str) -> None:
        """Prepare; keys, regions and endpoints are taken from the environment, as `obstore` names them.

        Raises:
            ConfigError: this is no address of an object store.
        """
        try:
            self._store = _open(url)
        except (BaseError, ValueError) as exc:
            raise ConfigError(f"not an object store that can be used: {url}") from exc
        self._url = url.rstrip("/")
        self._lock = Lock()  # of everything below: flushing and bundles have threads of their own
        self._pending: dict[StoragePath, _Pending] = {}
        self._sealing: builtins.list[StoragePath] = []
        self._parts: dict[StoragePath, tuple[_Part, ...]] = {}
        self._blocks: OrderedDict[tuple[str, str, int], bytes] = OrderedDict()

    def write(self, path: StoragePath, pieces: bytes | Iterable[bytes]) -> None:
        """See `Storage.write`."""
        key = _key(path)
        with _storage_errors("write", key):
            if isinstance(pieces, bytes):
                obstore.put(self._store, key, pieces)
            else:
                self._write_pieces(key, pieces)
        self._forget(path)

    def append(self, path: StoragePath, data: bytes, *, at: int) -> None:
        """See `Storage.append`."""
        if at == 0 and (checked_path(path) in self._pending or self._find(path)):
            raise StorageTakenError(f"there is an object {self.location(path)} already")
        with self._lock:
            if sum(len(one.data) for one in self._pending.values()) + len(data) > PENDING_BYTES_MAX:
                raise StorageFullError("the object store does not keep up")
            pending = self._pending.setdefault(path, _Pending(at))
            pending.data[at - pending.offset :] = data

    def flush(self) -> None:
        """See `Storage.flush`."""
        with self._lock:
            pending, self._pending = self._pending, {}
            sealing, self._sealing = self._sealing, []
        for path, one in pending.items():
            key = f"{_key(path)}{_PIECES}/{one.offset:015d}"
            with _storage_errors("write", key):
                obstore.put(self._store, key, bytes(one.data))
            self._forget(path)
        for path in sealing:
            try:
                self._join(path)
            except StorageError as exc:
                _LOG.warning("%s stays in pieces: %s", self.location(path), exc)

    def drop_unflushed(self) -> None:
        """See `Storage.drop_unflushed`."""
        with self._lock:
            self._pending.clear()

    def seal(self, path: StoragePath) -> None:
        """See `Storage.seal`. It is done by the next flush."""
        with self._lock:
            self._sealing.append(path)

    def read(self, path: StoragePath, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage.read`."""
        stop = None if length is None else start + length
        try:
            return self._read(path, start, stop)
        except StorageMissingError:
            self._forget(path)  # its pieces were joined meanwhile
            return self._read(path, start, stop)

    def stream(self, path: StoragePath, start: int, stop: int) -> Iterator[bytes]:
        """See `Storage.stream`. Objects that are streamed are never replaced, only removed."""
        while start < stop:
            piece = self.read(path, start, min(_BLOCK_BYTES, stop - start))
            if not piece:
                raise StorageError(f"{self.location(path)} ends at byte {start}")
            yield piece
            start += len(piece)

    def list(self, path: StoragePath = ()) -> tuple[Entry, ...]:
        """See `Storage.list`."""
        prefix = f"{_key(path)}/" if path else ""
        with _storage_errors("list", prefix):
            found = obstore.list_with_delimiter(self._store, prefix or None)
        entries: dict[str, Entry] = {}
        for key in found["common_prefixes"]:
            name = key.rstrip("/").rpartition("/")[2]
            if name.endswith(_PIECES):
                name = name.removesuffix(_PIECES)
                size = sum(part.size for part in _row(self._pieces(f"{prefix}{name}")))
                entries[name] = Entry(name=name, kind=EntryKind.FILE, size_bytes=size)
            else:
                entries[name] = Entry(name=name, kind=EntryKind.FOLDER)
        for meta in found["objects"]:
            name = meta["path"].rpartition("/")[2]
            entries[name] = Entry(
                name=name,
                kind=EntryKind.FILE,
                size_bytes=meta["size"],
                modified_ms=int(meta["last_modified"].timestamp() * 1000),
            )
        return tuple(entries[name] for name in sorted(entries))

    def delete(self, path: StoragePath) -> None:
        """See `Storage.delete`."""
        key = _key(path)
        with self._lock:
            for below in [one for one in self._pending if one[: len(path)] == path]:
                del self._pending[below]
        with _storage_errors("delete", key):
            keys = [part.key for part in self._find(path)]
            keys += [part.key for part in self._pieces(key)]
            keys += [meta["path"] for chunk in obstore.list(self._store, f"{key}/") for meta in chunk]
            if keys:
                obstore.delete(self._store, sorted(set(keys)))
        self._forget(path)

    def location(self, path: StoragePath) -> str:
        """See `Storage.location`."""
        return f"{self._url}/{_key(path)}"

    def close(self) -> None:
        """See `Storage.close`."""

    def _read(self, path: StoragePath, start: int, stop: int | None) -> bytes:
        parts = self._parts_of(path, stop=stop)
        stop = parts[-1].stop if stop is None else min(parts[-1].stop, stop)
        return b"".join(
            self._read_part(part, max(start, part.offset), min(stop, part.stop))
            for part in parts
            if part.offset < stop and start < part.stop
        )

    def _write_pieces(self, key: str, pieces: Iterable[bytes]) -> None:
        # `put` would ask for the pieces from inside of the library, where none can be read from this store.
        writer = obstore.open_writer(self._store, key, buffer_size=_PART_BYTES, max_concurrency=2)
        for piece in pieces:
            writer.write(piece)
        # What is not closed, because a piece could not be had, never becomes an object. Parts of it that were
        # sent stay in the store until a rule of the bucket removes them: see docs/collector.md.
        writer.close()

    def _join(self, path: StoragePath) -> None:
        key = _key(path)
        pieces = self._pieces(key)
        if len(pieces) < 2:
            return
        with _storage_errors("join", key):
            obstore.put(self._store, key, self.read(path))
            obstore.delete(self._store, [part.key for part in pieces])
        self._forget(path)

    def _parts_of(self, path: StoragePath, *, stop: int | None) -> tuple[_Part, ...]:
        """Return the objects that make up a file, as they are known if they reach up to ``stop``.

        Others write here as well: their logs grow, and whole files may be other ones by now.
        """
        with self._lock:
            known = self._parts.get(path)
        if known is not None and stop is not None and known[-1].stop >= stop:
            return known
        found = self._find(path)
        if not found:
            raise StorageMissingError(f"no object {self.location(path)}")
        with self._lock:
            self._parts[path] = found
            while len(self._parts) > 1_000:
                del self._parts[next(iter(self._parts))]
        return found

    def _find(self, path: StoragePath) -> tuple[_Part, ...]:
        """Return the objects that make up a file: the one of its name if there is one, else its pieces."""
        key = _key(path)
        with _storage_errors("find", key), suppress(NotFoundError, FileNotFoundError):
            return (_part(obstore.head(self._store, key), 0),)
        return _row(self._pieces(key))

    def _pieces(self, key: str) -> builtins.list[_Part]:
        with _storage_errors("find", key):
            return [
                _part(meta, int(meta["path"].rpartition("/")[2]))
                for chunk in obstore.list(self._store, f"{key}{_PIECES}")
                for meta in chunk
            ]

    def _read_part(self, part: _Part, start: int, stop: int) -> bytes:
        first, last = (start - part.offset) // _BLOCK_BYTES, (stop - part.offset - 1) // _BLOCK_BYTES
        data = b"".join(self._block(part, number) for number in range(first, last + 1))
        begin = start - part.offset - first * _BLOCK_BYTES
        return data[begin : begin + stop - start]

    def _block(self, part: _Part, number: int) -> bytes:
        name = (part.key, part.version, number)
        with self._lock:
            known = self._blocks.get(name)
            if known is not None:
                self._blocks.move_to_end(name)
                return known
        at = number * _BLOCK_BYTES
        with _storage_errors("read", part.key):
            end = min(at + _BLOCK_BYTES, part.size)
            data = bytes(obstore.get_range(self._store, part.key, start=at, end=end))
        with self._lock:
            self._blocks[name] = data
            while len(self._blocks) > _BLOCKS_MAX:
                self._blocks.popitem(last=False)
        return data

    def _forget(self, path: StoragePath) -> None:
        with self._lock:
            for below in [one for one in self._parts if one[: len(path)] == path]:
                for part in self._parts.pop(below):
                    for name in [one for one in self._blocks if one[0] == part.key]:
                        del self._blocks[name]


def _open(url: str) -> ObjectStore:
    if url.startswith("memory:"):
        return from_url(url)
    if url.startswith("file:"):
        return from_url(url, mkdir=True)
    # The endpoint is the operator's choice, and may well be plain HTTP on the same machine.
    return from_url(url, client_options={"allow_http": True})


def _key(path: StoragePath) -> str:
    return "/".join(checked_path(path))


def _part(meta: "ObjectMeta", offset: int) -> _Part:
    version = meta.get("version") or meta.get("e_tag") or str(meta["last_modified"])
    return _Part(meta["path"], offset, meta["size"], version)


def _row(pieces: list[_Part]) -> tuple[_Part, ...]:
    """Return the pieces of a log in order, as far as there is no gap."""
    row: list[_Part] = []
    for part in sorted(pieces, key=lambda part: part.offset):
        if part.offset != (row[-1].stop if row else 0):
            break
        row.append(part)
    return tuple(row)


@contextmanager
def _storage_errors(doing: str, key: str) -> Iterator[None]:
    try:
        yield
    except (NotFoundError, FileNotFoundError) as exc:
        raise StorageMissingError(f"no object {key}") from exc
    except (BaseError, GenericError, OSError) as exc:
        raise StorageError(f"cannot {doing} {key}: {str(exc).partition(chr(10))[0][:200]}") from exc
