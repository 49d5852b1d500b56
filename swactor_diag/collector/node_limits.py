"""How much one node may send: a steady rate, and a burst of ten seconds' worth for after an outage.

Owns: the accounts of the nodes, as pure arithmetic. Times are monotonic seconds.
"""

BURST_S = 10.0
NODES_MAX = 10_000
"""Accounts that are kept; the one unused for longest is closed, which is in favour of its node."""


class _Account:
    def __init__(self, *, now_s: float) -> None:
        self.spent = 0.0
        self.at_s = now_s


class RateLimit:
    """Lets each node spend ``per_s`` a second; 0 is no limit."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._accounts: dict[str, _Account] = {}

    def spend(self, node_id: str, amount: float, *, now_s: float) -> float:
        """Take ``amount`` from what the node may spend; return 0, or the seconds after which to try again.

        A node that may not spend is not charged. One amount above the whole burst is let through alone.
        """
        if not self._per_s:
            return 0.0
        account = self._accounts.pop(node_id, None) or _Account(now_s=now_s)
        self._accounts[node_id] = account  # last: used most recently
        if len(self._accounts) > NODES_MAX:
            del self._accounts[next(iter(self._accounts))]
        account.spent = max(0.0, account.spent - self._per_s * (now_s - account.at_s))
        account.at_s = now_s
        allowed = max(self._per_s * BURST_S, amount)
        if account.spent + amount > allowed:
            return (account.spent + amount - allowed) / self._per_s
        account.spent += amount
        return 0.0
