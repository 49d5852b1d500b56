"""From the answers of a round of introspectors to the bytes of a snapshot.

Owns: where a block lies in the body, what becomes of one that cannot be written or does not fit. Pure.
Not here: asking (``snapshotter``), what an answer is (``introspect``), the records (``schema.snapshot``).

Everything is written in one go. Only when that fails, or is too much, is each block looked at by itself: what
is wrong with one costs that block, and its entry under ``introspectors`` says so.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec
from msgspec import structs

from swactor_diag.introspect import Observed
from swactor_diag.readable import encode_readable, readable
from swactor_diag.schema.blocks import IntrospectorEntry
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.snapshot import Reachability, SnapshotEnvelope, Trigger

BLOCKS_BYTES_MAX = 8 * 1024 * 1024
"""All blocks of a snapshot together; the largest ones are left out beyond it."""

OWN_KEYS = frozenset({"reachability", "introspectors"})
"""Keys of the body that no introspector may fill."""


class SnapshotWriter:
    """Writes the snapshots of one boot, numbered from 0; outlives a restart of whoever takes them."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._node = identity.node_id_short
        self._next_number = 0

    def write(
        self,
        answers: Sequence[Observed],
        *,
        wall_ms: int,
        seq: int,
        trigger: Trigger,
        reachability: tuple[Reachability, ...],
    ) -> bytes:
        """Return the next snapshot, made of ``answers`` in their order."""
        number = self._next_number
        self._next_number = number + 1
        snapshot = SnapshotEnvelope(
            identity=self._identity,
            run_id=self._identity.run_id,
            snapshot_id=f"{self._node}-{number}",
            wall_ms=wall_ms,
            monotonic_seq=seq,
            trigger=trigger,
            body=_body(answers, reachability, wall_ms),
        )
        try:
            written = msgspec.json.encode(snapshot)
        except Exception:  # noqa: BLE001 - whose fault it is, and what it is, is found out below
            written = None
        if written is not None and len(written) <= BLOCKS_BYTES_MAX:
            return written
        body = _body(_writable(answers), reachability, wall_ms)
        body["reachability"] = msgspec.Raw(encode_readable(reachability))
        return msgspec.json.encode(structs.replace(snapshot, body=body))


def _body(
    answers: Sequence[Observed], reachability: tuple[Reachability, ...], wall_ms: int
) -> dict[str, object]:
    body: dict[str, object] = {"reachability": reachability}
    entries: list[IntrospectorEntry] = []
    for answer in answers:
        entry, block = answer.entry, answer.block
        entries.append(entry)
        if block is None:
            continue
        if "." in entry.name:
            _place_inside(body, entry.name, block, wall_ms=wall_ms)
        else:
            body[entry.name] = block
    body["introspectors"] = entries
    return body


def _place_inside(body: dict[str, object], name: str, block: object, *, wall_ms: int) -> None:
    """Put ``block`` of a dotted name into its parent, which says when it was made."""
    parent, _, child = name.partition(".")
    inside = body.setdefault(parent, {"scraped_at_ms": wall_ms})
    if isinstance(inside, dict):
        inside[child] = block


def _writable(answers: Iterable[Observed]) -> list[Observed]:
    """Return ``answers`` with blocks of bytes; those that cannot be written or do not fit have failed."""
    written = [_written(answer) for answer in answers]
    room = BLOCKS_BYTES_MAX
    for at, answer in sorted(enumerate(written), key=lambda one: _size(one[1])):
        room -= _size(answer)
        if room < 0:
            written[at] = answer.failed(f"{_size(answer)} bytes are too many for a snapshot")
    return written


def _written(answer: Observed) -> Observed:
    entry = answer.entry
    reason = readable(entry.reason) if entry.reason else entry.reason
    answer = replace(answer, entry=structs.replace(entry, name=readable(entry.name), reason=reason))
    if answer.block is None:
        return answer
    try:
        return replace(answer, block=msgspec.Raw(encode_readable(answer.block)))
    except Exception as error:  # noqa: BLE001 - whatever a type raises when it is written is its failure
        return answer.failed(f"{type(error).__name__}: {error}")


def _size(answer: Observed) -> int:
    return len(memoryview(answer.block)) if isinstance(answer.block, msgspec.Raw) else 0
