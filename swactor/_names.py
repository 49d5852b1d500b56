"""The names of living actors of one system.

Owns: name to reference and back; a name belongs to one living actor. Pure bookkeeping.
Not here: names across nodes (``swactor.cluster``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swactor._errors import NameTakenError

if TYPE_CHECKING:
    from swactor._ids import ActorId
    from swactor._ref import ActorRef


class Names:
    """A two-way table; a name is forgotten with its actor."""

    def __init__(self) -> None:
        self._by_name: dict[str, ActorRef[Any]] = {}
        self._by_actor: dict[ActorId, list[str]] = {}

    def register(self, name: str, ref: ActorRef[Any]) -> None:
        """Give ``ref`` a name.

        Raises:
            NameTakenError: another living actor has it. Registering the holder again does nothing.
        """
        if self._by_name.get(name) == ref:
            return
        self.require_free(name)
        self._by_name[name] = ref
        self._by_actor.setdefault(ref.actor_id, []).append(name)

    def require_free(self, name: str) -> None:
        """Raise `NameTakenError` when a living actor has the name."""
        holder = self._by_name.get(name)
        if holder is not None:
            raise NameTakenError(name, holder.actor_id)

    def whereis(self, name: str) -> ActorRef[Any] | None:
        """Return who has the name, or None."""
        return self._by_name.get(name)

    def forget(self, actor: ActorId) -> None:
        """Free every name of an actor that has ended."""
        for name in self._by_actor.pop(actor, ()):
            del self._by_name[name]

    def __len__(self) -> int:
        return len(self._by_name)
