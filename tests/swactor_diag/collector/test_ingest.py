"""What is accepted is stored, once, and found again by whoever comes after a restart."""

import json

import msgspec
import pytest

from swactor_diag.collector.ingest import Ingest, RefusedError, unnamed_batch_id
from swactor_diag.collector.staging import Staging
from swactor_diag.collector.storage import MemoryStorage, StorageFullError, StoragePath
from swactor_diag.schema.manifest import SetAside
from swactor_diag.schema.submission import Outgoing, RecordKind, batch_id

NODE = "a1" * 32
OTHER = "b2" * 32


def record(
    kind: str,
    number: int = 1,
    *,
    body: object = None,
    raw: bytes | None = None,
    node: str = NODE,
    boot: str = "boot1",
    run: str = "run-1",
) -> Outgoing:
    encoded = raw if raw is not None else json.dumps(body if body is not None else {}).encode()
    return Outgoing(
        kind=RecordKind(kind),
        run_id=run,
        node_id=node,
        batch_id=batch_id(boot, RecordKind(kind), number),
        body=encoded,
    )


def on_demand(number: int, *, node: str = NODE) -> Outgoing:
    return record("snapshot", number, body={"trigger": {"kind": "OnDemand"}}, node=node)


def stored(storage: MemoryStorage) -> list[tuple[str, bytes | SetAside]]:
    """What a reader who knows nothing but the storage finds: batch ids and bodies."""
    staging = Staging(storage)
    return [
        (found.batch_id, staging.read(found))
        for run_id in staging.run_ids()
        for portion in staging.portions(staging.list(run_id))
        for found in portion.records
    ]


def bodies(storage: MemoryStorage) -> list[bytes | SetAside]:
    return [body for _, body in stored(storage)]


def test_the_answer_carries_the_three_times() -> None:
    answer = Ingest(MemoryStorage()).accept(record("boot"), 1_000, send_ms=990)

    assert answer.clock.node_send_ms_echoed == 990
    assert answer.clock.collector_recv_ms == 1_000
    assert answer.clock.collector_send_ms >= 1_000
    assert not answer.snapshot_now


def test_a_repeated_batch_is_a_success_and_changes_nothing() -> None:
    """FC-046."""
    storage = MemoryStorage()
    ingest = Ingest(storage)

    for recv_ms in (1_000, 2_000, 3_000):
        ingest.accept(record("events", body=[1]), recv_ms)

    assert len(stored(storage)) == 1


def test_a_repeat_is_recognised_after_a_restart() -> None:
    """FC-058."""
    storage = MemoryStorage()
    Ingest(storage).accept(record("events", body=[1]), 1_000)

    Ingest(storage).accept(record("events", body=[1]), 2_000)

    assert len(stored(storage)) == 1


def test_a_repeat_of_what_was_lost_while_a_run_was_read_is_stored() -> None:
    """Reading takes long, and what was read may be trimmed, or cut off after a failed flush, meanwhile."""
    storage = MemoryStorage()
    Ingest(storage).accept(record("events", body=[1]), 1_000)
    ingest = Ingest(storage)

    read = ingest.load("run-1")
    with ingest.closing("run-1"):
        storage.delete(("run-1",))
    ingest.learn(read)
    ingest.accept(record("events", body=[1]), 2_000)

    assert bodies(storage) == [b"[1]"]


def test_another_body_under_a_stored_batch_id_is_refused() -> None:
    storage = MemoryStorage()
    ingest = Ingest(storage)
    ingest.accept(record("events", body=[1]), 1_000)

    with pytest.raises(RefusedError) as caught:
        ingest.accept(record("events", body=[2]), 2_000)

    assert caught.value.code == "batch_conflict"
    assert bodies(storage) == [b"[1]"]


def test_a_repeat_mends_what_was_damaged_from_outside() -> None:
    storage = MemoryStorage()
    Ingest(storage).accept(record("events", body=[1, 2, 3]), 1_000)
    segment = ("run-1", "@log", "main-000001.seg")
    storage.write(segment, storage.read(segment).replace(b"[1, 2", b"[1, 7"))

    Ingest(storage).accept(record("events", body=[1, 2, 3]), 2_000)

    damaged, mended = bodies(storage)
    assert isinstance(damaged, SetAside)
    assert mended == b"[1, 2, 3]"


def test_a_second_life_of_a_node_overwrites_nothing() -> None:
    """FC-047."""
    storage = MemoryStorage()
    for boot in ("boot1", "boot2"):
        ingest = Ingest(storage)
        ingest.accept(record("boot", boot=boot), 1_000)
        for number in (1, 2, 3):
            ingest.accept(record("events", number, body=[boot, number], boot=boot), 1_000)

    names = [batch for batch, _ in stored(storage)]

    assert sum("-events-" in name for name in names) == 6
    assert sum("-boot-" in name for name in names) == 2


@pytest.mark.parametrize("bad", ["", ".", "..", "../x", "a/b", "a\0b", "a\r\nX: y", "x" * 129, "ä", "a b"])
@pytest.mark.parametrize("field", ["run_id", "node_id", "batch_id"])
def test_an_id_that_is_no_id_is_refused_and_creates_nothing(field: str, bad: str) -> None:
    """FC-048."""
    storage = MemoryStorage()
    sound = record("events", body=[])

    with pytest.raises(RefusedError) as caught:
        Ingest(storage).accept(msgspec.structs.replace(sound, **{field: bad}), 1_000)

    assert caught.value.code == "invalid_id"
    assert stored(storage) == []


@pytest.mark.parametrize("raw", [b"{", b"[1,]", b"NaN", b"\xff", b"[" * 50_000, b'{"a":1}x', b"\0"])
def test_a_body_that_is_not_json_is_refused(raw: bytes) -> None:
    storage = MemoryStorage()

    with pytest.raises(RefusedError) as caught:
        Ingest(storage).accept(record("events", raw=raw), 1_000)

    assert caught.value.code == "not_json"
    assert stored(storage) == []


def test_an_empty_body_is_stored_as_null() -> None:
    storage = MemoryStorage()

    Ingest(storage).accept(record("finalize", raw=b""), 1_000)

    assert bodies(storage) == [b"null"]


def test_a_sender_without_batch_ids_is_recognised_by_its_bytes() -> None:
    assert unnamed_batch_id(b"[1]") == unnamed_batch_id(b"[1]")
    assert unnamed_batch_id(b"[1]") != unnamed_batch_id(b"[2]")


def test_whoever_makes_up_nodes_gets_no_more_than_a_run_may_have() -> None:
    storage = MemoryStorage()
    ingest = Ingest(storage, nodes_max=2)
    for node in (NODE, OTHER):
        ingest.accept(record("boot", node=node), 1_000)

    with pytest.raises(RefusedError) as caught:
        ingest.accept(record("boot", node="c3" * 32), 1_000)
    ingest.accept(record("events", node=OTHER, body=[]), 1_000)

    assert (caught.value.code, caught.value.status) == ("too_many_nodes", 422)
    assert len(stored(storage)) == 3


def test_a_run_called_like_a_folder_of_the_collector_collides_with_nothing() -> None:
    ingest = Ingest(MemoryStorage())

    ingest.accept(record("boot", run="bundles"), 1_000)

    assert [run.run_id for run in ingest.runs()] == ["bundles"]


def test_a_full_storage_is_told_and_leaves_no_trace_in_the_index() -> None:
    class FullOnce(MemoryStorage):
        full = True

        def append(self, path: StoragePath, data: bytes, *, at: int) -> None:
            if self.full:
                raise StorageFullError("no room")
            super().append(path, data, at=at)

    storage = FullOnce()
    ingest = Ingest(storage)
    with pytest.raises(StorageFullError):
        ingest.accept(record("boot"), 1_000)

    storage.full = False
    ingest.accept(record("boot"), 2_000)

    assert len(stored(storage)) == 1


def test_counts_are_those_of_the_storage() -> None:
    storage = MemoryStorage()
    ingest = Ingest(storage)
    ingest.accept(record("boot"), 1_000)
    ingest.accept(record("events", 1, body=[]), 1_500)
    ingest.accept(record("snapshot", 1), 2_000)

    (run,) = Ingest(storage).runs()

    assert ingest.runs() == (run,)
    assert (run.run_start_collector_ms, run.run_end_collector_ms) == (1_000, 2_000)
    assert not run.finalize_received
    (node,) = run.nodes
    assert (node.boot_recorded, node.event_batches, node.snapshots) == (True, 1, 1)


def test_after_a_finalize_every_node_is_told_once() -> None:
    ingest = Ingest(MemoryStorage())
    ingest.accept(record("boot"), 1_000)
    ingest.accept(record("boot", node=OTHER), 1_000)

    finalizing = ingest.accept(record("finalize"), 2_000)
    first = ingest.accept(record("events", 1, body=[], node=OTHER), 2_100)
    second = ingest.accept(record("events", 2, body=[], node=OTHER), 2_200)

    assert [finalizing.snapshot_now, first.snapshot_now, second.snapshot_now] == [True, True, False]


def test_a_finalize_settles_when_the_others_have_sent_their_last_snapshot() -> None:
    ingest = Ingest(MemoryStorage())
    ingest.accept(record("boot"), 1_000)
    ingest.accept(record("boot", node=OTHER), 1_000)
    ingest.accept(record("finalize"), 2_000)
    settled: list[str] = []
    ingest.when_settled("run-1", lambda: settled.append("now"))

    # A snapshot that was on its way before the hint was taken is not the one that was asked for.
    ingest.accept(on_demand(1, node=OTHER), 2_100)
    assert (settled, ingest.outstanding("run-1")) == ([], (OTHER,))

    ingest.accept(on_demand(2, node=OTHER), 2_200)
    assert (settled, ingest.outstanding("run-1")) == (["now"], ())


def test_nobody_waits_for_a_node_that_fell_silent() -> None:
    ingest = Ingest(MemoryStorage(), live_window_ms=15_000)
    ingest.accept(record("boot", node=OTHER), 1_000)
    ingest.accept(record("boot"), 30_000)

    ingest.accept(record("finalize"), 30_001)

    assert ingest.outstanding("run-1") == ()


def test_a_second_finalize_starts_over() -> None:
    ingest = Ingest(MemoryStorage())
    ingest.accept(record("boot", node=OTHER), 1_000)
    ingest.accept(record("finalize", 1), 1_100)
    ingest.accept(record("events", 1, body=[], node=OTHER), 1_200)
    ingest.accept(on_demand(1, node=OTHER), 1_300)

    again = ingest.accept(record("finalize", 2), 2_000)
    told = ingest.accept(record("events", 2, body=[], node=OTHER), 2_100)

    assert again.snapshot_now
    assert told.snapshot_now
