"""Which batches of a node are stored, small enough to know it of a hundred million.

Owns: telling a repeat from a new batch, and equal bytes from other ones, at four bytes a batch.
Pure. Not here: the bytes themselves (``staging``).
"""

import zlib
from array import array

from swactor_diag.schema.submission import split_batch_id

_NUMBERS_SKIPPED_MAX = 100_000
"""A number further ahead than this is remembered by its whole id: a liar must not cost us memory."""


def checksum(body: bytes) -> int:
    """Return what is remembered of a body; never 0."""
    return zlib.crc32(body) or 1


class SeenBatches:
    """The batches of one node and one kind."""

    def __init__(self) -> None:
        self._by_boot: dict[str, array[int]] = {}  # a boot's checksums by number, 0 where there is none
        self._others: dict[str, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, batch_id: str) -> int | None:
        """Return the checksum that was noted under ``batch_id``, or None."""
        return self._get(batch_id, *(split_batch_id(batch_id) or ("", 0)))

    def _get(self, batch_id: str, boot: str, number: int) -> int | None:
        row = self._by_boot.get(boot)
        if row is not None and 0 < number <= len(row) and row[number - 1]:
            return row[number - 1]
        return self._others.get(batch_id)

    def add(self, batch_id: str, sum_of_body: int) -> bool:
        """Note a batch; return whether it is a new one. One that is known keeps its first checksum."""
        boot, number = split_batch_id(batch_id) or ("", 0)
        if self._get(batch_id, boot, number) is not None:
            return False
        self._count += 1
        row = self._by_boot.setdefault(boot, array("I")) if number else array("I")
        skipped = number - 1 - len(row)
        if not number or skipped > _NUMBERS_SKIPPED_MAX:
            self._others[batch_id] = sum_of_body
            return True
        if skipped >= 0:
            row.extend([0] * (skipped + 1))
        row[number - 1] = sum_of_body
        return True
