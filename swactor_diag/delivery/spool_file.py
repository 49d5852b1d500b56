"""What one spooled record is on the disk: the name of its file, and its bytes.

Owns: ``<9 digits>-<batch id>+<events>.bin``, a line of JSON that names the record, its length and checksum,
and has a checksum of its own, then the body. Not here: files (``disk_spool``).
"""

import re
import zlib
from os import DirEntry
from typing import Self

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from swactor_diag.schema.ids import is_id
from swactor_diag.schema.submission import Outgoing, RecordKind

_NAME = re.compile(
    r"(?P<number>[0-9]{9,12})-(?P<batch>[A-Za-z0-9._-]+-(?P<kind>boot|events|snapshot|finalize)-[0-9]+)"
    r"\+(?P<events>[0-9]{1,9})\.bin"
)


class _Header(Struct, frozen=True):
    kind: RecordKind
    run_id: str
    node_id: str
    batch_id: str
    events: int
    clock_samples: int
    bytes: int
    crc32: int
    header_crc32: int | UnsetType = UNSET
    """Of this line without this field; records of earlier versions have none."""

    def sum(self) -> int:
        return zlib.crc32(msgspec.json.encode(structs.replace(self, header_crc32=UNSET)))


class Entry(Struct, frozen=True):
    """One file; its name says all that the ledger has to know."""

    number: int
    batch_id: str
    kind: RecordKind
    events: int
    size: int

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.number:09d}-{self.batch_id}+{self.events}.bin"

    @classmethod
    def of(cls, file: DirEntry[str]) -> Self | None:
        """Return what the name of ``file`` says and how large it is, None when it is no record."""
        found = _NAME.fullmatch(file.name)
        if found is None:
            return None
        return cls(
            number=int(found["number"]),
            batch_id=found["batch"],
            kind=RecordKind(found["kind"]),
            events=int(found["events"]),
            size=file.stat().st_size,
        )


def encode_record(record: Outgoing) -> bytes:
    """Return the bytes of the file of ``record``."""
    header = _Header(
        kind=record.kind,
        run_id=record.run_id,
        node_id=record.node_id,
        batch_id=record.batch_id,
        events=record.events,
        clock_samples=record.clock_samples,
        bytes=len(record.body),
        crc32=zlib.crc32(record.body),
    )
    return msgspec.json.encode(structs.replace(header, header_crc32=header.sum())) + b"\n" + record.body


def decode_record(data: bytes, entry: Entry) -> Outgoing | None:
    """Return the record in ``data``, None when it is not what was written into the file of ``entry``."""
    head, _, body = data.partition(b"\n")
    try:
        header = msgspec.json.decode(head, type=_Header)
    except msgspec.MsgspecError:
        return None
    if not _agrees(header, entry) or len(body) != header.bytes or zlib.crc32(body) != header.crc32:
        return None
    return Outgoing(
        kind=header.kind,
        run_id=header.run_id,
        node_id=header.node_id,
        batch_id=header.batch_id,
        body=body,
        events=header.events,
        clock_samples=header.clock_samples,
    )


def _agrees(header: _Header, entry: Entry) -> bool:
    """Whether the header is what was written: it matches its checksum, its file's name, and itself."""
    return (
        header.header_crc32 in (UNSET, header.sum())
        and (header.batch_id, header.kind, header.events) == (entry.batch_id, entry.kind, entry.events)
        and is_id(header.run_id)
        and is_id(header.node_id)
        and 0 <= header.clock_samples <= header.events
    )
