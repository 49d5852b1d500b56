"""The spool on disk: it survives its process, a kill at any moment, damage, and a disk without room."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs

from swactor_diag.delivery.disk_spool import DiskSpool
from swactor_diag.delivery.ledger import Loss, LossPlace
from swactor_diag.delivery.spool import Spool
from swactor_diag.schema.submission import Outgoing, RecordKind
from tests.descriptors import no_more_descriptors


def record(number: int, *, size: int = 10) -> Outgoing:
    return Outgoing(
        kind=RecordKind.EVENTS,
        run_id="r",
        node_id="ab" * 32,
        batch_id=f"b1-events-{number:06d}",
        body=b"x" * size,
        events=3,
    )


def drained(spool: Spool) -> list[Outgoing]:
    out: list[Outgoing] = []
    while (oldest := spool.peek()) is not None:
        out.append(oldest)
        spool.pop(oldest.batch_id)
    return out


def test_a_second_process_finds_what_the_first_left_and_goes_on_numbering(tmp_path: Path) -> None:
    first = DiskSpool(tmp_path)
    first.put(record(1))
    first.put(record(2))
    second = DiskSpool(tmp_path)
    second.put(record(3))
    assert [one.batch_id[-1] for one in drained(second)] == ["1", "2", "3"]


def test_files_are_named_by_number_batch_and_events_and_no_temporary_one_stays(tmp_path: Path) -> None:
    DiskSpool(tmp_path).put(record(1))
    assert [path.name for path in tmp_path.iterdir()] == ["000000001-b1-events-000001+3.bin"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-3],
        lambda data: data[: len(data) // 4],
        lambda data: b"",
        lambda data: data[:-1] + b"y",
        lambda data: b"\0" * len(data),
        lambda data: data.replace(b"b1-events", b"b0-events"),
        lambda data: data.replace(b'"kind":"events"', b'"kind":"snapshot"'),
        lambda data: data.replace(b'"events":3', b'"events":-3'),
        lambda data: data.replace(b'"clock_samples":0', b'"clock_samples":1'),
        lambda data: data.replace(b'"run_id":"r"', b'"run_id":"q"'),
    ],
    ids=["short", "half a header", "empty", "changed", "zeros", "batch", "kind", "events", "samples", "run"],
)
def test_fc043_a_damaged_file_is_passed_over_and_kept_aside(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    first = DiskSpool(tmp_path)
    first.put(record(1))
    first.put(record(2))
    path = tmp_path / "000000001-b1-events-000001+3.bin"
    path.write_bytes(damage(path.read_bytes()))
    spool = DiskSpool(tmp_path)
    assert [one.batch_id[-1] for one in drained(spool)] == ["2"]
    assert spool.figures().lost(LossPlace.DAMAGED) == 1
    assert (tmp_path / "set-aside" / "damaged-000000001-b1-events-000001+3.bin").exists()


def without_header_sum(data: bytes) -> bytes:
    """The form in which earlier versions wrote it."""
    return re.sub(rb',"header_crc32":[0-9]+', b"", data)


def test_a_record_of_an_earlier_version_is_sent(tmp_path: Path) -> None:
    DiskSpool(tmp_path).put(record(1))
    path = tmp_path / "000000001-b1-events-000001+3.bin"
    whole = path.read_bytes()
    path.write_bytes(without_header_sum(whole))
    assert path.stat().st_size < len(whole)
    assert drained(DiskSpool(tmp_path)) == [record(1)]


@pytest.mark.parametrize(
    ("found", "changed"),
    [
        (b"b1-events", b"b0-events"),
        (b'"kind":"events"', b'"kind":"snapshot"'),
        (b'"events":3', b'"events":4'),
        (b'"run_id":"r"', b'"run_id":"r\\n"'),
        (b'"node_id":"ab', b'"node_id":"a/b'),
        (b'"clock_samples":0', b'"clock_samples":-1'),
    ],
)
def test_a_damaged_header_of_an_earlier_version_stops_nothing(
    tmp_path: Path, found: bytes, changed: bytes
) -> None:
    first = DiskSpool(tmp_path)
    first.put(record(1))
    first.put(record(2))
    path = tmp_path / "000000001-b1-events-000001+3.bin"
    path.write_bytes(without_header_sum(path.read_bytes()).replace(found, changed, 1))
    spool = DiskSpool(tmp_path)
    assert drained(spool) == [record(2)]
    assert spool.figures().lost(LossPlace.DAMAGED) == 1


def test_fc043_a_file_that_was_never_finished_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "000000001-b1-events-000001+3.bin.tmp").write_bytes(b"half")
    spool = DiskSpool(tmp_path)
    assert spool.peek() is None
    assert list(tmp_path.iterdir()) == []


def test_fc045_what_a_disk_does_not_take_waits_in_memory_and_nothing_is_raised(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    spool = DiskSpool(folder)
    folder.rmdir()
    folder.write_text("in the way")
    spool.put(record(1))
    spool.set_aside(record(2), "400")
    assert drained(spool) == [record(1)]
    assert spool.figures().losses == (
        Loss(boot_id="b1", where=LossPlace.REFUSED, what=RecordKind.EVENTS, records=1, events=3),
    )


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "node"
    spool = DiskSpool(folder)
    spool.put(record(1))
    shutil.rmtree(tmp_path / "run")
    spool.put(record(2))
    assert drained(DiskSpool(folder)) == [record(2)]
    spool.put(record(3))
    assert drained(spool) == [record(3)]
    assert spool.figures().lost(LossPlace.DAMAGED) == 2


def test_what_lies_above_is_not_made_again_and_the_record_waits_in_memory(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    spool = DiskSpool(root / "run" / "node")
    shutil.rmtree(root)
    spool.put(record(1))
    assert not root.exists()
    assert drained(spool) == [record(1)]


def test_without_a_free_handle_nothing_is_lost_and_later_all_is_on_the_disk(tmp_path: Path) -> None:
    boot = structs.replace(record(2), kind=RecordKind.BOOT, batch_id="b1-boot-000001")
    spool = DiskSpool(tmp_path)
    spool.put(record(1))
    with no_more_descriptors():
        spool.put(boot)
        spool.put(record(3))
        assert spool.peek() is None
        assert spool.peek(passing=[record(1).batch_id]) == boot  # which waits in memory
        assert spool.figures().records == 3
    spool.put(record(4))
    assert spool.figures().losses == ()
    assert drained(DiskSpool(tmp_path)) == [record(1), boot, record(3), record(4)]


def test_without_a_free_handle_the_second_record_cannot_be_seen_either(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path)
    spool.put(record(1))
    spool.put(record(2))
    with no_more_descriptors():
        assert spool.peek(passing=[record(1).batch_id]) is None
    assert spool.peek(passing=[record(1).batch_id]) == record(2)


def test_what_waits_in_memory_is_bounded_and_the_boot_record_stays(tmp_path: Path) -> None:
    def broken(path: Path, data: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    boot = structs.replace(record(1), kind=RecordKind.BOOT, batch_id="b1-boot-000001")
    spool = DiskSpool(tmp_path, bytes_max=5_000, write=broken)
    spool.put(boot)
    for number in range(2, 22):
        spool.put(record(number, size=500))
    assert spool.figures().bytes <= 5_000
    left = drained(spool)
    assert (left[0], left[-1]) == (boot, record(21, size=500))
    assert spool.figures().lost(LossPlace.SPOOL) == 21 - len(left) > 0


def test_a_full_disk_never_costs_the_boot_record_for_another(tmp_path: Path) -> None:
    boot = structs.replace(record(1), kind=RecordKind.BOOT, batch_id="b1-boot-000001")
    spool = DiskSpool(tmp_path, write=SmallDisk(tmp_path, room=1_000).write)
    spool.put(boot)
    spool.put(record(2, size=2_000))
    assert drained(spool) == [boot]
    assert spool.figures().lost(LossPlace.SPOOL) == 1


SET_ASIDE = """
import sys
from pathlib import Path
from swactor_diag.delivery.disk_spool import DiskSpool
from swactor_diag.schema.submission import Outgoing, RecordKind
one = Outgoing(kind=RecordKind.BOOT, run_id="r", node_id="n", batch_id="b1-boot-000001", body=b"{}")
DiskSpool(Path(sys.argv[1])).set_aside(one, "400: \\u2603 \\udcff")
"""


def test_a_reason_of_any_text_is_kept_in_any_locale(tmp_path: Path) -> None:
    environ = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", SET_ASIDE, str(tmp_path)], env=environ, check=True)
    reason = (tmp_path / "set-aside" / "b1-boot-000001.txt").read_bytes()
    assert reason.decode() == "400: \u2603 ?"


def test_what_is_set_aside_is_bounded_in_bytes_and_the_newest_stays(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path, set_aside_bytes_max=5_000)
    for number in range(1, 11):
        spool.put(record(number, size=1_000))
        refused = spool.peek()
        assert refused is not None
        spool.set_aside(refused, "413: too large")
    kept = {path.name: path.stat().st_size for path in (tmp_path / "set-aside").iterdir()}
    assert sum(kept.values()) <= 5_000
    assert {f"b1-events-{number:06d}.bin" for number in (8, 9, 10)} <= kept.keys()
    assert spool.figures().lost(LossPlace.REFUSED) == 10


class SmallDisk:
    """Writes files as long as those of ``folder`` together stay below ``room`` bytes."""

    def __init__(self, folder: Path, room: int) -> None:
        self.folder = folder
        self.room = room

    def write(self, path: Path, data: bytes) -> None:
        if sum(file.stat().st_size for file in self.folder.glob("*.*")) + len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_bytes(data)


def test_fc045_on_a_full_disk_the_oldest_go_and_are_counted(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path, write=SmallDisk(tmp_path, room=5_000).write)
    for number in range(1, 51):
        spool.put(record(number, size=500))
    left = [int(one.batch_id[-6:]) for one in drained(spool)]
    assert left == list(range(left[0], 51))
    assert len(left) >= 4
    assert spool.figures().lost(LossPlace.SPOOL) == 50 - len(left)
    again = DiskSpool(tmp_path)
    assert again.figures().losses == spool.figures().losses


def test_fc045_a_disk_without_room_for_anything_costs_the_new_record_only(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path, write=SmallDisk(tmp_path, room=0).write)
    spool.put(record(1))
    assert spool.peek() is None
    assert spool.figures().lost(LossPlace.SPOOL) == 1


class Killed:
    """Takes an image of ``folder`` before each file in it is opened, renamed or removed.

    Each is what a process that is killed there would leave.
    """

    def __init__(self, folder: Path, images: Path) -> None:
        self.folder = folder
        self.images = images
        self.put = self.sent = 0
        self.expected: dict[Path, int] = {}
        self._is_on = False
        sys.addaudithook(self._heard)  # for good, which is why it can be switched off

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._is_on = True
        yield
        self._is_on = False

    def image(self) -> None:
        was_on, self._is_on = self._is_on, False
        image = self.images / str(len(self.expected))
        shutil.copytree(self.folder, image)
        self.expected[image] = self.put - self.sent
        self._is_on = was_on

    def _heard(self, event: str, args: tuple[object, ...]) -> None:
        changes = event in {"open", "os.rename", "os.remove"} and str(args[0]).startswith(str(self.folder))
        if changes and self._is_on:
            self.image()


def test_fc052_whenever_the_process_is_killed_each_record_is_held_or_counted_once(tmp_path: Path) -> None:
    killed = Killed(tmp_path / "spool", tmp_path / "images")
    spool = DiskSpool(tmp_path / "spool", records_max=3)
    with killed.watching():
        for number in range(1, 13):
            spool.put(record(number))
            killed.put += 1
            if number % 4 == 0 and (oldest := spool.peek()) is not None:
                spool.pop(oldest.batch_id)
                killed.sent += 1
            killed.image()
    assert len(killed.expected) > 40
    for image, accounted in killed.expected.items():
        found = DiskSpool(image)
        held = [one.batch_id for one in drained(found)]
        assert held == sorted(set(held))
        assert len(held) + found.figures().lost(LossPlace.SPOOL) - accounted in {0, 1}, image  # 1: under way


def test_fc056_whenever_the_process_is_killed_a_refused_record_is_held_or_counted_once(
    tmp_path: Path,
) -> None:
    killed = Killed(tmp_path / "spool", tmp_path / "images")
    spool = DiskSpool(tmp_path / "spool")
    for number in range(1, 4):
        spool.put(record(number))
    killed.put = 3
    with killed.watching():
        while (oldest := spool.peek()) is not None:
            spool.set_aside(oldest, "400: not like this")
    assert len(killed.expected) > 5
    for image, accounted in killed.expected.items():
        found = DiskSpool(image)
        assert len(drained(found)) + found.figures().lost(LossPlace.REFUSED) == accounted, image
    assert len(list((tmp_path / "spool" / "set-aside").glob("*.bin"))) == 3


def test_whenever_the_process_is_killed_a_refused_record_behind_others_costs_none_of_them(
    tmp_path: Path,
) -> None:
    killed = Killed(tmp_path / "spool", tmp_path / "images")
    spool = DiskSpool(tmp_path / "spool")
    passing = [record(number).batch_id for number in (1, 2)]
    for number in range(1, 6):
        spool.put(record(number))
    killed.put = 5
    with killed.watching():
        while (refused := spool.peek(passing=passing)) is not None:
            spool.set_aside(refused, "400: not like this")
    assert len(killed.expected) > 5
    for image, accounted in killed.expected.items():
        found = DiskSpool(image)
        held = drained(found)
        assert {one.batch_id for one in held} >= set(passing), image
        assert len(held) + found.figures().lost(LossPlace.REFUSED) == accounted, image
    assert drained(DiskSpool(tmp_path / "spool")) == [record(1), record(2)]


def test_a_damaged_file_behind_a_record_that_waits_costs_only_itself(tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path)
    for number in range(1, 4):
        spool.put(record(number))
    (damaged,) = tmp_path.glob("*-b1-events-000002+*.bin")
    damaged.write_bytes(b"")
    assert spool.peek(passing=[record(1).batch_id]) == record(3)
    assert spool.figures().lost(LossPlace.DAMAGED) == 1
    assert drained(DiskSpool(tmp_path)) == [record(3), record(1)]


def test_what_was_dropped_is_still_known_after_a_restart(tmp_path: Path) -> None:
    first = DiskSpool(tmp_path, records_max=2)
    for number in range(1, 6):
        first.put(record(number))
    drained(first)
    second = DiskSpool(tmp_path, records_max=2)
    assert second.figures().losses == first.figures().losses
    second.put(record(6))
    third = DiskSpool(tmp_path)
    assert [one.batch_id for one in drained(third)] == ["b1-events-000006"]
    assert third.figures().lost(LossPlace.SPOOL) == 3


def test_a_boot_record_outlives_a_restart_of_a_full_spool(tmp_path: Path) -> None:
    first = DiskSpool(tmp_path, records_max=2)
    first.put(structs.replace(record(1), kind=RecordKind.BOOT, batch_id="b1-boot-000001"))
    for number in range(2, 9):
        first.put(record(number))
    kept = [one.batch_id for one in drained(DiskSpool(tmp_path))]
    assert kept == ["b1-boot-000001", "b1-events-000008"]


def test_a_ledger_that_cannot_be_read_costs_the_counts_and_no_record(tmp_path: Path) -> None:
    DiskSpool(tmp_path).put(record(1))
    (tmp_path / "ledger.json").write_bytes(b"{")
    spool = DiskSpool(tmp_path)
    assert (len(drained(spool)), spool.figures().losses) == (1, ())


def test_a_ledger_with_rows_of_a_newer_version_keeps_the_others_and_them(tmp_path: Path) -> None:
    first = DiskSpool(tmp_path, records_max=1)
    for number in range(1, 4):
        first.put(record(number))
    path = tmp_path / "ledger.json"
    ledger = json.loads(path.read_bytes())
    newer = {"boot_id": "zz", "where": "evicted", "what": "events", "records": 2, "events": 2}
    ledger["losses"].insert(0, newer)
    path.write_text(json.dumps(ledger))
    second = DiskSpool(tmp_path, records_max=1)
    assert second.figures().losses == first.figures().losses
    second.put(record(4))
    assert newer in json.loads(path.read_bytes())["losses"]
    assert DiskSpool(tmp_path).figures().lost(LossPlace.SPOOL) == 3


@pytest.mark.parametrize("number", ["999999999999", "4", "-1", '"x"', "null", "1" * 30])
def test_a_damaged_number_in_the_ledger_costs_no_record(tmp_path: Path, number: str) -> None:
    first = DiskSpool(tmp_path)
    for one in range(1, 4):
        first.put(record(one))
    (tmp_path / "ledger.json").write_text(f'{{"gone_through":{number},"losses":[]}}')
    second = DiskSpool(tmp_path)
    second.put(record(4))
    assert drained(DiskSpool(tmp_path)) == [record(one) for one in range(1, 5)]


def test_numbers_go_on_beyond_nine_digits(tmp_path: Path) -> None:
    DiskSpool(tmp_path).put(record(1))
    (path,) = tmp_path.glob("*.bin")
    path.rename(tmp_path / path.name.replace("000000001-", "999999999-"))
    DiskSpool(tmp_path).put(record(2))
    assert drained(DiskSpool(tmp_path)) == [record(1), record(2)]
