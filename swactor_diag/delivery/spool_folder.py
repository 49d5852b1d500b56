"""The folder of one node's spool: its name, and that no two live processes use it.

Owns: the folders beside it that are used while it is locked, what they and the name of earlier versions left.
Not here: the lock (``folder_lock``), the files of a spool (``disk_spool``), where all spools lie (``ports``).
"""

import errno
import logging
from contextlib import suppress
from pathlib import Path

from swactor_diag.delivery.disk_spool import DiskSpool
from swactor_diag.delivery.folder_lock import FolderLock

log = logging.getLogger("swactor_diag")

FOLDERS_MAX = 8
"""Folders of one node id; that many processes may have it at the same time."""

EARLIER_NAME_LENGTH = 16
"""Earlier versions named the folder by the beginning of the node id only."""


def open_disk_spool(run: Path, node_id: str) -> DiskSpool:
    """Return the spool of a node in a folder of ``run`` that no other live process uses.

    Raises:
        OSError: no folder can be used.
    """
    _take_over_earlier(run, node_id)
    folders = [
        run / (node_id if number == 1 else f"{node_id}.{number}") for number in range(1, FOLDERS_MAX + 1)
    ]
    for at, folder in enumerate(folders):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = FolderLock(folder)
        except BlockingIOError:
            continue
        if at:
            log.warning("another live process uses the spool %s; this one uses %s", folders[0], folder)
        spool = DiskSpool(folder, lock=lock)
        for other in folders[at + 1 :]:
            _take_over(other, spool)
        return spool
    raise OSError(errno.EBUSY, "other live processes use all folders of this node id", str(folders[0]))


def _take_over_earlier(run: Path, node_id: str) -> None:
    """Give the folder of an earlier version its new name, once, with all that is in it."""
    earlier, folder = run / node_id[:EARLIER_NAME_LENGTH], run / node_id
    if folder.exists() or not earlier.is_dir():
        return
    with suppress(OSError):  # it is that of a live node whose whole id this is, or another was faster
        lock = FolderLock(earlier)
        try:
            earlier.rename(folder)
        finally:
            lock.release()


def _take_over(other: Path, spool: DiskSpool) -> None:
    """Move the records that a process left which had to use a folder beside; a kill here sends one twice."""
    if not other.is_dir():
        return
    with suppress(OSError):  # a live process uses it, or it cannot be read
        lock = FolderLock(other)
        left = DiskSpool(other, lock=lock)
        while (record := left.peek()) is not None:
            spool.put(record)
            left.pop(record.batch_id)
        left.close()
