"""Who of a run still owes a last look after a finalize, as pure bookkeeping.

Owns: the one-shot ``snapshot_now`` hint of every node, and whether the snapshot it asked for has come.
Not here: waiting (see ``finalize``) and which nodes are alive (see ``staging``).
"""

import enum
from collections.abc import Iterable


class HintState(enum.Enum):
    """How far one node's hint has come; a node without a state owes nothing."""

    QUEUED = "queued"
    GIVEN = "given"


class Hints:
    """The hints of one run. A node takes its hint with its next record, whatever that is, exactly once."""

    def __init__(self) -> None:
        self._states: dict[str, HintState] = {}
        self._awaited: set[str] = set()

    def queue(self, nodes: Iterable[str], *, awaited: Iterable[str]) -> None:
        """Give every one of ``nodes`` a hint; `outstanding` then lists ``awaited`` until they have answered.

        A second finalize starts over: nodes that had a hint get another one.
        """
        self._states.update(dict.fromkeys(sorted(nodes), HintState.QUEUED))
        self._awaited.update(awaited)

    def take(self, node_id: str) -> bool:
        """Return whether ``node_id`` is to be told now; true once per queued hint."""
        if self._states.get(node_id) is not HintState.QUEUED:
            return False
        self._states[node_id] = HintState.GIVEN
        return True

    def snapshot_arrived(self, node_id: str) -> None:
        """Note an on-demand snapshot; one that was under way before the hint was taken does not count."""
        if self._states.get(node_id) is HintState.GIVEN:
            del self._states[node_id]
            self._awaited.discard(node_id)

    def gone(self, node_id: str) -> None:
        """Note that ``node_id`` has said its last word: nobody waits for it any longer."""
        self._awaited.discard(node_id)

    def outstanding(self) -> tuple[str, ...]:
        """Return the awaited nodes whose snapshot has not come, sorted."""
        return tuple(sorted(self._awaited))
