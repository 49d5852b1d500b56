"""Records of one length in a file, one for each key: written over in place, and struck out.

Owns: which place of the file is whose. Not here: what a record says (`guardian`, ``_children_file``).

Each change is one write, so a reader finds the records of before or of after it, also when the writer was
killed. The file is as long as the most keys that there were at the same time.
"""

import os
from collections.abc import Hashable


class Slots:
    """The records of one open file, which is somebody else's to close."""

    def __init__(self, descriptor: int, record_bytes: int) -> None:
        self.descriptor = descriptor
        self._record_bytes = record_bytes
        self._blank = b"\n".rjust(record_bytes)
        self._places: dict[Hashable, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._places)

    def put(self, key: Hashable, record: bytes) -> None:
        """Write ``record``, filled up in front, over that of ``key``, or into a place of its own.

        Raises:
            OSError: it could not be written; what there was of ``key`` is still its own.
        """
        place = self._places.get(key)
        if place is None:
            place = self._free[-1] if self._free else len(self._places)
        os.pwrite(self.descriptor, record.rjust(self._record_bytes), place * self._record_bytes)
        if self._free and self._free[-1] == place:
            self._free.pop()
        self._places[key] = place

    def strike(self, key: Hashable) -> None:
        """Strike the record of ``key`` out, if there is one."""
        place = self._places.pop(key, None)
        if place is not None:
            self._free.append(place)
            os.pwrite(self.descriptor, self._blank, place * self._record_bytes)
