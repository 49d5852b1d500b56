"""Both spools: first in, first out, bounded, nothing lost uncounted."""

from pathlib import Path
from typing import Protocol

import pytest

from swactor_diag.delivery.disk_spool import DiskSpool
from swactor_diag.delivery.ledger import BOOTS_KEPT_MAX, EARLIER_BOOTS, Ledger, Loss, LossPlace
from swactor_diag.delivery.spool import MemorySpool, Spool
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
        events=3 if kind is RecordKind.EVENTS else 0,
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


def test_records_can_be_passed_over_and_keep_their_place(make_spool: MakeSpool) -> None:
    spool = make_spool()
    for number in range(1, 6):
        spool.put(record(number))
    passing = [record(1).batch_id, record(2).batch_id, record(4).batch_id]
    assert spool.peek(passing=passing) == record(3)
    spool.pop(record(3).batch_id)
    refused = spool.peek(passing=passing)
    assert refused == record(5)
    spool.set_aside(refused, "400: not like this")
    assert spool.peek(passing=passing) is None
    assert drained(spool) == [record(1), record(2), record(4)]
    assert [loss.where for loss in spool.figures().losses] == [LossPlace.REFUSED]


def test_a_full_spool_drops_the_oldest_and_counts_by_kind(make_spool: MakeSpool) -> None:
    spool = make_spool(records_max=2)
    for number, kind in enumerate([RecordKind.SNAPSHOT, RecordKind.EVENTS, RecordKind.EVENTS]):
        spool.put(record(number, kind=kind))
    assert [one.batch_id[-1] for one in drained(spool)] == ["1", "2"]
    assert spool.figures().losses == (
        Loss(boot_id="b1", where=LossPlace.SPOOL, what=RecordKind.SNAPSHOT, records=1, events=0),
    )


def test_boot_records_stay_to_the_last(make_spool: MakeSpool) -> None:
    spool = make_spool(records_max=2)
    for number, kind in enumerate([RecordKind.BOOT, RecordKind.EVENTS, RecordKind.EVENTS]):
        spool.put(record(number, kind=kind))
    spool.put(record(5))
    assert [one.batch_id[-1] for one in drained(spool)] == ["0", "5"]


def test_a_boot_record_does_not_go_for_another_kind(make_spool: MakeSpool) -> None:
    spool = make_spool(records_max=1)
    spool.put(record(1, kind=RecordKind.BOOT))
    spool.put(record(2))
    assert drained(spool) == [record(1, kind=RecordKind.BOOT)]
    assert spool.figures().lost(LossPlace.SPOOL) == 1


def test_the_limit_in_bytes_holds(make_spool: MakeSpool) -> None:
    spool = make_spool(bytes_max=2_000)
    for number in range(10):
        spool.put(record(number, size=500))
    assert spool.figures().bytes <= 2_000
    figures = spool.figures()
    assert figures.lost(LossPlace.SPOOL) + figures.records == 10
    assert sum(loss.events for loss in figures.losses) == 3 * figures.lost(LossPlace.SPOOL)


def test_a_record_larger_than_the_spool_is_dropped_and_counted(make_spool: MakeSpool) -> None:
    spool = make_spool(bytes_max=1_000)
    spool.put(record(1))
    spool.put(record(2, size=5_000))
    assert spool.figures().lost(LossPlace.SPOOL) == 1
    assert [one.batch_id[-1] for one in drained(spool)] == ["1"]


def test_a_record_that_was_dropped_while_it_was_sent_is_no_loss_once_it_has_arrived(
    make_spool: MakeSpool,
) -> None:
    spool = make_spool(records_max=2)
    spool.put(record(1))
    assert spool.peek() is not None
    spool.put(record(2))
    spool.put(record(3))
    assert spool.figures().lost(LossPlace.SPOOL) == 1
    for _ in range(2):
        spool.pop("b1-events-000001")
        assert spool.figures().losses == ()
    assert [one.batch_id[-1] for one in drained(spool)] == ["2", "3"]


def test_the_record_that_goes_is_the_one_that_was_peeked_whatever_its_id(make_spool: MakeSpool) -> None:
    spool = make_spool(records_max=1)
    spool.put(record(1))
    assert spool.peek() is not None
    spool.put(record(1, size=20))
    spool.pop("b1-events-000001")
    assert [len(one.body) for one in drained(spool)] == [20]
    assert spool.figures().losses == ()


def test_a_record_that_was_dropped_while_it_was_sent_and_is_refused_is_one_loss(
    make_spool: MakeSpool,
) -> None:
    spool = make_spool(records_max=2)
    spool.put(record(1))
    refused = spool.peek()
    assert refused is not None
    spool.put(record(2))
    spool.put(record(3))
    spool.set_aside(refused, "400: not like this")
    losses = spool.figures()
    assert (losses.lost(LossPlace.SPOOL), losses.lost(LossPlace.REFUSED), losses.records) == (0, 1, 2)


def test_the_oldest_record_goes_when_it_is_set_aside(make_spool: MakeSpool) -> None:
    spool = make_spool()
    spool.put(record(1))
    spool.put(record(2))
    refused = spool.peek()
    assert refused is not None
    spool.set_aside(refused, "400: not like this")
    assert spool.figures().lost(LossPlace.REFUSED) == 1
    assert [one.batch_id[-1] for one in drained(spool)] == ["2"]


def test_what_is_set_aside_is_counted_and_not_sent(make_spool: MakeSpool) -> None:
    spool = make_spool()
    spool.set_aside(record(1), "400: not like this")
    assert (spool.figures().lost(LossPlace.REFUSED), spool.peek()) == (1, None)


def test_the_ledger_of_many_boots_stays_small_and_loses_no_count() -> None:
    ledger = Ledger()
    for number in range(1_000):
        ledger.count(LossPlace.SPOOL, batch_id=f"b{number}-events-000001", kind=RecordKind.EVENTS, events=2)
    losses = ledger.losses()
    assert len({loss.boot_id for loss in losses}) == BOOTS_KEPT_MAX + 1
    assert sum(loss.records for loss in losses) == 1_000
    assert sum(loss.events for loss in losses) == 2_000
    assert EARLIER_BOOTS in {loss.boot_id for loss in losses}
