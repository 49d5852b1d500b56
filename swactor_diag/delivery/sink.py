"""The seam between a node and wherever its records are kept.

Owns: the `Sink` protocol and what a sink may answer instead of an `Answer`: not now, never, or not like this.
Not here: sinks (``delivery.http``, ``collector.local_sink``), what is done about an error (``shipper``).
"""

from typing import Protocol

from swactor_diag.readable import readable_url
from swactor_diag.schema.submission import Answer, Outgoing


class SinkError(Exception):
    """The record was not stored, as far as this side knows."""


class SinkUnavailableError(SinkError):
    """Not now: no connection, no answer, or the other side is busy. Repeat, not before ``retry_after_s``."""

    def __init__(self, text: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class RecordRefusedError(SinkError):
    """Never: the same bytes will be refused again. Other records are not affected."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class SinkMisconfiguredError(SinkError):
    """Not like this: wrong address, wrong token. Somebody has to act; repeat slowly."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class SinkAddressError(ValueError):
    """What should name a collector is no address. Nothing was sent; somebody has to write it right."""

    def __init__(self, url: str) -> None:
        shown = readable_url(url)
        super().__init__(f"the collector's address must be http://host:port or https://host, not {shown!r}")
        self.url = url


class Sink(Protocol):
    """Stores records for good."""

    async def post(self, record: Outgoing) -> Answer:
        """Store ``record`` and return once it is stored. Equal batch ids are stored once.

        Raises:
            SinkError: one of its three kinds. Anything else counts as unavailable.
        """
        ...

    async def close(self) -> None:
        """Release what is held open; nothing is posted afterwards."""
        ...
