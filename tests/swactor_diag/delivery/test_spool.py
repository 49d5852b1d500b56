"""Both spools: first in, first out, bounded; the one on disk survives its process."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from swactor_diag.delivery.spool import DiskSpool, MemorySpool, Spool
from swactor_diag.schema.submission import Outgoing, RecordKind


class MakeSpool(Protocol):
    def __call__(self, *, bytes_max: int = ..., records_max: int = ...) -> Spool: ...


@pytest.fixture(params=["memory", "disk"])
def make_spool(request: pytest.FixtureRequest, tmp_path: Path) -> MakeSpool:
    def make(*, bytes_max: int = 1_000_000, records_max: int = 1_000) -> Spool:
        if request.param == "memory":
            return MemorySpool(bytes_max=bytes_max, records_max=records_max)
        return DiskSpool(tmp_path, bytes_max=bytes_max, records_max=records_max)

    return make


def record(number: int, *, size: int = 10, kind: RecordKind = RecordKind.EVENTS) -> Outgoing:
    return Outgoing(
        kind=kind,
        run_id="r",
        node_id="ab" * 32,
        batch_id=f"b1-{kind.value}-{number:06d}",
        body=b"x" * size,
        events=3,
    )


def drained(spool: Spool) -> list[Outgoing]:
    out: list[Outgoing] = []
    while (oldest := spool.peek()) is not None:
        out.append(oldest)
        spool.pop(oldest.batch_id)
    return out


def test_records_come_back_in_order_and_whole(make_spool: MakeSpool) -> None:
    spool = make_spool()
    records = [record(1), record(2, kind=RecordKind.SNAPSHOT), record(3)]
    for one in records:
        spool.put(one)
    assert drained(spool) == records
    assert spool.figures().records == spool.figures().bytes == 0


def test_a_full_spool_drops_the_oldest_and_counts_by_kind(make_spool: MakeSpool) -> None:
    spool = make_spool(records_max=2)
    for number, kind in enumerate([RecordKind.SNAPSHOT, RecordKind.EVENTS, RecordKind.EVENTS]):
        spool.put(record(number, kind=kind))
    assert [one.batch_id[-1] for one in drained(spool)] == ["1", "2"]
    assert spool.figures().dropped == {"snapshot": 1}


def test_the_limit_in_bytes_holds(make_spool: MakeSpool) -> None:
    spool = make_spool(bytes_max=2_000)
    for number in range(10):
        spool.put(record(number, size=500))
    assert spool.figures().bytes <= 2_000
    assert spool.figures().dropped["events"] + spool.figures().records == 10


def test_a_record_larger_than_the_spool_is_dropped_and_counted(make_spool: MakeSpool) -> None:
    spool = make_spool(bytes_max=1_000)
    spool.put(record(1, size=5_000))
    assert spool.peek() is None
    assert spool.figures().dropped == {"events": 1}


def test_popping_a_record_that_was_dropped_meanwhile_removes_nothing(make_spool: MakeSpool) -> None:
    spool = make_spool(records_max=2)
    spool.put(record(1))
    assert spool.peek() is not None
    spool.put(record(2))
    spool.put(record(3))
    spool.pop("b1-events-000001")
    assert [one.batch_id[-1] for one in drained(spool)] == ["2", "3"]


def test_what_is_set_aside_is_counted_and_not_sent(make_spool: MakeSpool) -> None:
    spool = make_spool()
    spool.set_aside(record(1), "400: not like this")
    assert (spool.figures().set_aside, spool.peek()) == (1, None)


def test_a_second_process_finds_what_the_first_left_and_goes_on_numbering(tmp_path: Path) -> None:
    first = DiskSpool(tmp_path)
    first.put(record(1))
    first.put(record(2))
    second = DiskSpool(tmp_path)
    second.put(record(3))
    assert [one.batch_id[-1] for one in drained(second)] == ["1", "2", "3"]


def test_files_are_named_by_number_and_kind_and_no_temporary_one_stays(tmp_path: Path) -> None:
    DiskSpool(tmp_path).put(record(1))
    assert [path.name for path in tmp_path.iterdir()] == ["000000001-events.bin"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-3],
        lambda data: data[: len(data) // 4],
        lambda data: b"",
        lambda data: data[:-1] + b"y",
        lambda data: b"\0" * len(data),
    ],
    ids=["short", "half a header", "empty", "changed", "zeros"],
)
def test_fc043_a_damaged_file_is_passed_over_and_kept_aside(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    first = DiskSpool(tmp_path)
    first.put(record(1))
    first.put(record(2))
    path = tmp_path / "000000001-events.bin"
    path.write_bytes(damage(path.read_bytes()))
    spool = DiskSpool(tmp_path)
    assert [one.batch_id[-1] for one in drained(spool)] == ["2"]
    assert spool.figures().set_aside == 1
    assert (tmp_path / "set-aside" / "damaged-000000001-events.bin").exists()


def test_fc043_a_file_that_was_never_finished_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "000000001-events.bin.tmp").write_bytes(b"half")
    spool = DiskSpool(tmp_path)
    assert spool.peek() is None
    assert list(tmp_path.iterdir()) == []


def test_fc045_a_disk_that_takes_nothing_costs_records_and_raises_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    spool = DiskSpool(folder)
    folder.rmdir()
    spool.put(record(1))
    spool.set_aside(record(2), "400")
    assert spool.figures().dropped == {"events": 1}
    assert spool.peek() is None
