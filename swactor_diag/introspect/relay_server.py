"""The relay of this process: snapshot block ``relay_server``. Emits no events (the relay does).

The report is the relay's own record and goes into the snapshot as it is.
"""

from collections.abc import Callable

from swactor.relay.report import RelayReport


class RelayServerIntrospector:
    """Asks the relay's session book for its report."""

    name = "relay_server"
    record = RelayReport

    def __init__(self, report: Callable[[], RelayReport]) -> None:
        self._report = report

    def observe(self) -> RelayReport:
        """Return the totals and the open sessions."""
        return self._report()
