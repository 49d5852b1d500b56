"""How many connections the process can afford: each takes a descriptor, and so do files.

Owns: the process's limit of open files. Not here: counting connections (``connections``).
"""

import resource
from contextlib import suppress

DESCRIPTORS_KEPT = 200
"""For segments, downloads, the listening sockets and libraries."""


def raise_descriptor_limit() -> None:
    """Let this process open as many files as it may; shells start processes with much less, often 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # a hard limit that is none may still be more than the kernel gives
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_affordable(count_max: int) -> int:
    """Return how many of ``count_max`` connections (0: any number) the limit of open files allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return count_max
    affordable = max(1, soft - DESCRIPTORS_KEPT)
    return min(count_max, affordable) if count_max else affordable
