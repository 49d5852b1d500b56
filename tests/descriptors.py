"""What this process has open, and how it is to have no room for more."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def open_descriptors() -> set[str]:
    """Return the numbers of all that is open, that of this look too."""
    return {path.name for path in Path("/proc/self/fd").iterdir()}


ALWAYS_OPEN = 3
"""Input, output, errors. No limit below: with it, ``poll`` of another thread fails too (EINVAL, poll(2))."""


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """Have every attempt to open anything fail meanwhile (EMFILE)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (ALWAYS_OPEN, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
