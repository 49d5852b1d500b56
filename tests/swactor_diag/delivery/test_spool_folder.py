"""Which folder a node's spool is in: its own, whoever else is alive, with what was left there before."""

import shutil
from pathlib import Path

import pytest

from swactor import ActorSystem
from swactor_diag.delivery.disk_spool import DiskSpool
from swactor_diag.delivery.ledger import LossPlace
from swactor_diag.delivery.sink import SinkUnavailableError
from swactor_diag.delivery.spool import Spool
from swactor_diag.delivery.spool_folder import FOLDERS_MAX, open_disk_spool
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.submission import Answer, Outgoing, RecordKind
from swactor_diag.supervisor import Diagnostics

NODE = "ab" * 32


def record(boot: str, number: int) -> Outgoing:
    return Outgoing(
        kind=RecordKind.EVENTS,
        run_id="r",
        node_id=NODE,
        batch_id=f"{boot}-events-{number:06d}",
        body=b"[]",
        events=1,
    )


def drained(spool: Spool) -> list[str]:
    out: list[str] = []
    while (oldest := spool.peek()) is not None:
        out.append(oldest.batch_id)
        spool.pop(oldest.batch_id)
    return out


@pytest.mark.parametrize("other", [NODE, NODE[:16] + "cd" * 24])
def test_two_live_processes_do_not_meet_in_one_spool(tmp_path: Path, other: str) -> None:
    first = open_disk_spool(tmp_path, NODE)
    for number in range(1, 4):
        first.put(record("b1", number))
    second = open_disk_spool(tmp_path, other)
    for number in range(1, 4):
        second.put(record("b2", number))
    assert [one[:2] for one in drained(first)] == ["b1"] * 3
    assert [one[:2] for one in drained(second)] == ["b2"] * 3
    assert first.figures().losses == second.figures().losses == ()


def test_who_has_to_use_another_folder_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = open_disk_spool(tmp_path, NODE)
    assert not caplog.records
    second = open_disk_spool(tmp_path, NODE)
    assert [one.getMessage().count(f"{NODE}.2") for one in caplog.records] == [1]
    for spool in (first, second):
        spool.close()


def test_a_folder_that_was_removed_and_made_again_is_locked_anew(tmp_path: Path) -> None:
    first = open_disk_spool(tmp_path, NODE)
    shutil.rmtree(tmp_path / NODE)
    first.put(record("b1", 1))
    second = open_disk_spool(tmp_path, NODE)
    second.put(record("b2", 1))
    assert drained(second) == ["b2-events-000001"]
    first.close()
    assert drained(open_disk_spool(tmp_path, NODE)) == ["b1-events-000001"]


def test_a_folder_whose_files_were_removed_is_locked_anew(tmp_path: Path) -> None:
    first = open_disk_spool(tmp_path, NODE)
    (tmp_path / NODE / "lock").unlink()
    first.put(record("b1", 1))
    assert drained(open_disk_spool(tmp_path, NODE)) == []
    assert drained(first) == ["b1-events-000001"]


def test_a_folder_that_another_process_made_again_is_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = open_disk_spool(tmp_path, NODE)
    shutil.rmtree(tmp_path / NODE)
    second = open_disk_spool(tmp_path, NODE)
    second.set_aside(record("b2", 1), "400: not like this")
    second.put(record("b2", 2))
    for closed in (False, True):
        first.put(record("b1", 1 + closed))
        first.set_aside(record("b1", 3), "400: not like this")
        if not closed:
            second.close()
    assert [one.getMessage().count("another process") for one in caplog.records] == [1]

    found = open_disk_spool(tmp_path, NODE)
    assert [loss.boot_id for loss in found.figures().losses] == ["b2"]
    assert drained(found) == ["b2-events-000002"]
    assert not list((tmp_path / NODE / "set-aside").glob("b1*"))
    assert drained(first) == ["b1-events-000001", "b1-events-000002"]


def test_folders_are_bounded(tmp_path: Path) -> None:
    spools = [open_disk_spool(tmp_path, NODE) for _ in range(FOLDERS_MAX)]
    with pytest.raises(OSError, match="all folders"):
        open_disk_spool(tmp_path, NODE)
    spools[2].close()
    open_disk_spool(tmp_path, NODE).close()
    assert len(list(tmp_path.iterdir())) == FOLDERS_MAX


def test_what_both_left_is_sent_by_the_next_process(tmp_path: Path) -> None:
    first, second = open_disk_spool(tmp_path, NODE), open_disk_spool(tmp_path, NODE)
    first.put(record("b1", 1))
    second.put(record("b2", 1))
    first.close()
    third = open_disk_spool(tmp_path, NODE)
    assert drained(third) == ["b1-events-000001"]
    third.close()
    second.close()
    assert drained(open_disk_spool(tmp_path, NODE)) == ["b2-events-000001"]


def test_the_folder_of_an_earlier_version_is_taken_over_with_its_counts(tmp_path: Path) -> None:
    earlier = DiskSpool(tmp_path / NODE[:16], records_max=1)
    earlier.put(record("b1", 1))
    earlier.put(record("b1", 2))
    spool = open_disk_spool(tmp_path, NODE)
    assert drained(spool) == ["b1-events-000002"]
    assert spool.figures().lost(LossPlace.SPOOL) == 1
    assert [path.name for path in tmp_path.iterdir()] == [NODE]


def test_the_folder_of_a_live_node_is_not_taken_over(tmp_path: Path) -> None:
    other = open_disk_spool(tmp_path, NODE[:16])
    other.put(record("b1", 1))
    assert drained(open_disk_spool(tmp_path, NODE)) == []
    assert drained(other) == ["b1-events-000001"]


class Away:
    async def post(self, record: Outgoing) -> Answer:
        raise SinkUnavailableError("away")

    async def close(self) -> None:
        pass


async def test_a_stopped_node_leaves_its_spool_to_the_next_one_of_its_process(
    tmp_path: Path, identity: Identity
) -> None:
    spool = open_disk_spool(tmp_path, NODE)
    async with ActorSystem() as system:
        await Diagnostics.start(system, identity, sink=Away(), spool=spool)
    left = drained(open_disk_spool(tmp_path, NODE))
    assert "-boot-" in left[0]
