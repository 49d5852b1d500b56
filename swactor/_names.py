"""Where actors of one system are found: by a name, which one of them has, or as members of a group.

Owns: both tables; what has ended is forgotten. Pure bookkeeping.
Not here: names across nodes (``swactor.cluster``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swactor._errors import NameTakenError

if TYPE_CHECKING:
    from swactor._ref import ActorRef


class Names:
    """Names and groups of living actors. They belong to an address, so a restart changes nothing."""

    def __init__(self) -> None:
        self.listed: set[ActorRef[Any]] = set()
        """Who has a name or was ever a member of a group."""
        self._by_name: dict[str, ActorRef[Any]] = {}
        self._names: dict[ActorRef[Any], list[str]] = {}
        self._members: dict[str, dict[ActorRef[Any], None]] = {}
        self._groups: dict[ActorRef[Any], dict[str, None]] = {}

    def register(self, name: str, ref: ActorRef[Any]) -> None:
        """Give ``ref`` a name.

        Raises:
            NameTakenError: another living actor has it. Registering the holder again does nothing.
        """
        if self._by_name.get(name) == ref:
            return
        self.require_free(name)
        self._by_name[name] = ref
        self._names.setdefault(ref, []).append(name)
        self.listed.add(ref)

    def require_free(self, name: str) -> None:
        """Raise `NameTakenError` when a living actor has the name."""
        holder = self._by_name.get(name)
        if holder is not None:
            raise NameTakenError(name, holder.actor_id)

    def whereis(self, name: str) -> ActorRef[Any] | None:
        """Return who has the name, or None."""
        return self._by_name.get(name)

    def join(self, group: str, ref: ActorRef[Any]) -> None:
        """Make ``ref`` a member of ``group``; it is one once, however often it joins."""
        self._members.setdefault(group, {})[ref] = None
        self._groups.setdefault(ref, {})[group] = None
        self.listed.add(ref)

    def leave(self, group: str, ref: ActorRef[Any]) -> None:
        """Make ``ref`` no member of ``group`` any more; a group without members is forgotten."""
        members = self._members.get(group, {})
        members.pop(ref, None)
        if not members:
            self._members.pop(group, None)
        self._groups.get(ref, {}).pop(group, None)

    def members(self, group: str) -> tuple[ActorRef[Any], ...]:
        """Return the members of ``group`` in the order in which they joined."""
        return tuple(self._members.get(group, ()))

    def forget(self, ref: ActorRef[Any]) -> None:
        """Free every name of an actor that has ended, and take it out of every group."""
        for name in self._names.pop(ref, ()):
            del self._by_name[name]
        for group in tuple(self._groups.get(ref, ())):
            self.leave(group, ref)
        self._groups.pop(ref, None)
        self.listed.discard(ref)

    def __len__(self) -> int:
        return len(self._by_name)
