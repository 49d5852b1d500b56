"""The lock on the folder of a spool, which no two live processes may use.

Owns: `FolderLock`, and what becomes of it when the folder is removed while it is held.
Not here: which folder is used while another is locked (``spool_folder``).
"""

import errno
import fcntl
import logging
import os
import weakref
from pathlib import Path

log = logging.getLogger("swactor_diag")

LOCK_NAME = "lock"


class FolderLock:
    """A lock on a folder. It ends with `release`, with the process, or when nobody refers to it any more.

    On a file system without locks it locks nothing.
    """

    def __init__(self, folder: Path) -> None:
        """Take it.

        Raises:
            BlockingIOError: another process, or another spool of this one, has it.
            OSError: the lock file cannot be opened.
        """
        self._path = folder / LOCK_NAME
        self._is_lost = False
        self._take(os.O_CREAT)

    def renew(self) -> None:
        """Take it again if its file is gone, as when the folder was removed.

        Raises:
            FileNotFoundError: there is no folder.
            BlockingIOError: another process has made the folder again: what is in there is its own.
            OSError: the lock file cannot be opened, or looked at.
        """
        try:
            there = self._path.stat()
        except FileNotFoundError:
            close_before = self._close
            self._take(os.O_CREAT | os.O_EXCL)
            close_before()
            self._is_lost = False
            return
        if not os.path.samestat(there, os.fstat(self._descriptor)):
            if not self._is_lost:
                self._is_lost = True
                log.warning("%s is another process's by now; records wait in memory", self._path.parent)
            raise BlockingIOError(errno.EAGAIN, "another process has made it again", str(self._path.parent))

    def release(self) -> None:
        """Let another have the folder."""
        self._close()

    def _take(self, flags: int) -> None:
        descriptor = os.open(self._path, os.O_RDWR | flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise
        except OSError as error:
            log.warning("%s cannot be locked: %s", self._path, error)
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)
