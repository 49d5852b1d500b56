"""What the staged records of one run say together: its nodes, the order of their records, what is lost.

Owns: which of several copies counts, the order of records, and every line of the manifest but its files.
Not here: finding records (``staging``), labels (``labels``), the archive (``bundle``).

Bodies are read one at a time and not kept, whatever the size of the run.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import UNSET

from swactor_diag.collector.labels import RoleFacts, assign_labels, label_order, read_role
from swactor_diag.collector.staging import Listing, Portion, StagedRecord, Staging, read_json
from swactor_diag.schema.boot import SCHEMA_VERSION
from swactor_diag.schema.manifest import DropRow, Manifest, ManifestBoot, ManifestNode, SetAside, Silence
from swactor_diag.schema.submission import RecordKind, split_batch_id

SILENCE_MS = 15_000
"""A node sends a snapshot every 5 s: after three of them that did not come, it was silent."""
SILENCES_MAX = 16

_TELLING = frozenset({RecordKind.BOOT, RecordKind.FINALIZE})  # of the whole run


class NodeFacts:
    """The records of one node that can be used, in order, and what they say of it."""

    def __init__(self, node_id: str, *, label: str = "") -> None:
        self.node_id = node_id
        self.label = label
        self.records: list[StagedRecord] = []
        self.role = RoleFacts()
        self.schema_version: int | None = None

    def of_kind(self, kind: RecordKind) -> list[StagedRecord]:
        """Return the records of one kind, in order."""
        return [record for record in self.records if record.kind is kind]


class RunFacts:
    """One run as ``listing`` found it."""

    def __init__(self, staging: Staging, listing: Listing, *, verify: bool = True) -> None:
        """Read it.

        With ``verify`` every body is read, and a damaged one is set aside; else only those that tell about
        the run as a whole.
        """
        self.run_id = listing.run_id
        # They are held: several readers of a run share what was read of its segments.
        self._portions: tuple[Portion, ...] = tuple(staging.portions(listing))
        self._staging = staging
        self._verify = verify
        self._aside = [aside for portion in self._portions for aside in portion.set_aside]
        self._reason: str | None = None
        self._drops: dict[tuple[str, str | None, str, str], DropRow] | None = None
        self.nodes = [self._node(node_id, found) for node_id, found in sorted(self._by_node().items())]
        labels = assign_labels({node.node_id: node.role for node in self.nodes})
        for node in self.nodes:
            node.label = labels[node.node_id]

    @property
    def set_aside(self) -> tuple[SetAside, ...]:
        """What is stored and cannot be used, sorted; also what a repair has dealt with."""
        return tuple(sorted(self._aside, key=lambda aside: (aside.path, aside.reason)))

    def manifest(self) -> Manifest:
        """Return the contents list of the run, without its files."""
        received = [
            at for node in self.nodes for record in node.records if (at := record.recv_ms) is not None
        ]
        end = max(received, default=None)
        nodes = [manifest_node(node, end) for node in self.nodes]
        return Manifest(
            run_id=self.run_id,
            run_start_collector_ms=min(received, default=None),
            run_end_collector_ms=end,
            finalize_received=any(node.finalize_recorded for node in nodes),
            nodes=tuple(sorted(nodes, key=lambda node: (label_order(node.label), node.node_id_hex))),
            schema_version=SCHEMA_VERSION,
            finalize_reason=UNSET if self._reason is None else self._reason,
            # Nobody reported on deliveries: that is unknown, not zero.
            drops=UNSET if self._drops is None else tuple(self._drops.values()),
            set_aside=self.set_aside,
        )

    def _by_node(self) -> dict[str, list[StagedRecord]]:
        found: dict[str, list[StagedRecord]] = {}
        for portion in self._portions:
            for record in portion.records:
                found.setdefault(record.node_id, []).append(record)
        return found

    def _node(self, node_id: str, found: list[StagedRecord]) -> NodeFacts:
        node = NodeFacts(node_id)
        first: dict[tuple[RecordKind, str], StagedRecord] = {}
        last_snapshots: dict[str | None, StagedRecord] = {}
        for record in sorted(found, key=lambda record: record.order):
            body = self._body(record)
            if isinstance(body, SetAside):
                self._aside.append(body)
                continue
            stored = first.setdefault((record.kind, record.batch_id), record)
            if stored is not record:
                self._compare(stored, record)
                continue
            node.records.append(record)
            if record.kind is RecordKind.SNAPSHOT:
                last_snapshots[boot_id(record)] = record
            if body is not None and record.kind in _TELLING:
                self._take_in(node, record, read_json(body))
        for boot, record in last_snapshots.items():
            self._read_drops(node_id, boot, record)
        return node

    def _body(self, record: StagedRecord) -> bytes | SetAside | None:
        """Return the body if it says something of the whole run, and check it if that is wanted."""
        if record.kind not in _TELLING and (not self._verify or record.digest is not None):
            return None
        body = self._staging.read(record)
        if isinstance(body, bytes) and record.digest is None:
            record.digest = hashlib.sha256(body).digest()
        return body

    def _take_in(self, node: NodeFacts, record: StagedRecord, value: object) -> None:
        if record.kind is RecordKind.BOOT:
            node.role = read_role(value)
            version = _dig(value, "schema_version")
            node.schema_version = version if isinstance(version, int) else None
        else:
            reason = _dig(value, "reason")
            self._reason = reason if isinstance(reason, str) else self._reason

    def _compare(self, stored: StagedRecord, again: StagedRecord) -> None:
        """A batch that is stored twice is one batch; two that share their id are a sender's mistake."""
        if self._verify and stored.digest != again.digest:
            reason = f"another body under the id of a stored batch: {again.batch_id} of {again.node_id}"
            self._aside.append(again.set_aside(reason))

    def _read_drops(self, node_id: str, boot: str | None, record: StagedRecord) -> None:
        """The ledger of a boot is in each of its snapshots; the last one has it all.

        A later boot of the node repeats what an earlier one said, or found since: the greater count is right.
        """
        body = self._staging.read(record)
        delivery = _dig(read_json(body), "body", "delivery") if isinstance(body, bytes) else None
        if isinstance(delivery, dict):
            self._drops = self._drops or {}
            for row in _drop_rows(node_id, boot, delivery.get("drops")):
                key = (node_id, row.boot_id, row.where, row.what)
                if key not in self._drops or self._drops[key].count < row.count:
                    self._drops[key] = row


def boot_id(record: StagedRecord) -> str | None:
    """Return which process start made the record; None for senders that do not say."""
    found = split_batch_id(record.batch_id)
    return None if found is None else found[0]


def manifest_node(node: NodeFacts, run_end_ms: int | None) -> ManifestNode:
    """Return what the manifest says of a node whose label is known."""
    received = sorted(record.recv_ms for record in node.records if record.recv_ms is not None)
    counts = {kind: len(node.of_kind(kind)) for kind in RecordKind}
    return ManifestNode(
        node_id_hex=node.node_id,
        label=node.label,
        role=node.role.role,
        stage_index=node.role.stage_index,
        boot_recorded=counts[RecordKind.BOOT] > 0,
        event_batches=counts[RecordKind.EVENTS],
        snapshots=counts[RecordKind.SNAPSHOT],
        finalize_recorded=counts[RecordKind.FINALIZE] > 0,
        first_record_at_ms=received[0] if received else UNSET,
        last_record_at_ms=received[-1] if received else UNSET,
        silent_ms=UNSET if run_end_ms is None or not received else run_end_ms - received[-1],
        boots=_boots(node.records),
        schema_version=UNSET if node.schema_version is None else node.schema_version,
        silences=_silences(received) if received else UNSET,
    )


def _silences(received: Sequence[int]) -> tuple[Silence, ...]:
    gaps = [
        Silence(from_ms=before, to_ms=after)
        for before, after in pairwise(received)
        if after - before > SILENCE_MS
    ]
    longest = sorted(gaps, key=lambda gap: gap.from_ms - gap.to_ms)[:SILENCES_MAX]
    return tuple(sorted(longest, key=lambda gap: gap.from_ms))


def _boots(records: Sequence[StagedRecord]) -> tuple[ManifestBoot, ...]:
    by_boot: dict[str, list[StagedRecord]] = {}
    for record in records:
        boot = boot_id(record)
        if boot is not None and record.recv_ms is not None:
            by_boot.setdefault(boot, []).append(record)
    return tuple(
        ManifestBoot(
            boot_id=boot,
            first_record_at_ms=min(record.recv_ms or 0 for record in mine),
            last_record_at_ms=max(record.recv_ms or 0 for record in mine),
            event_batches=sum(record.kind is RecordKind.EVENTS for record in mine),
            snapshots=sum(record.kind is RecordKind.SNAPSHOT for record in mine),
            batches_missing=_missing(mine),
        )
        for boot, mine in by_boot.items()
    )


def _missing(records: Sequence[StagedRecord]) -> int:
    """Return how many numbers are left out below the highest of each kind."""
    highest = dict.fromkeys(RecordKind, 0)
    for record in records:
        found = split_batch_id(record.batch_id)
        highest[record.kind] = max(highest[record.kind], 0 if found is None else found[1])
    return max(0, sum(highest.values()) - len(records))


def _drop_rows(node_id: str, boot: str | None, drops: object) -> Iterator[DropRow]:
    for drop in drops if isinstance(drops, list) else []:
        where, what, count = (_dig(drop, key) for key in ("where", "what", "count"))
        if isinstance(where, str) and isinstance(what, str) and isinstance(count, int):
            events, made_by = _dig(drop, "events"), _dig(drop, "boot_id")
            yield DropRow(
                node_id_hex=node_id,
                boot_id=made_by if isinstance(made_by, str) else boot,
                where=where,
                what=what,
                count=count,
                events=events if isinstance(events, int) else UNSET,
            )


def _dig(value: object, *keys: str) -> object:
    """Return what lies below ``keys``, or None as soon as there is nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
