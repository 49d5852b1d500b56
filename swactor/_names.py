"""Where actors of one system are found: by a name, which one of them has, or as members of a group.

Owns: both tables; what has ended is forgotten. Pure bookkeeping.
Not here: names across nodes (``swactor.cluster``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swactor._errors import NameTakenError

if TYPE_CHECKING:
    from swactor._ref import ActorRef


class _Entry:
    """The names of one actor, and the groups that it is a member of."""

    __slots__ = ("groups", "names")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.groups: dict[str, None] = {}


class Names:
    """Names and groups of living actors. They belong to an address, so a restart changes nothing."""

    def __init__(self) -> None:
        self.listed: dict[ActorRef[Any], _Entry] = {}
        """Who has a name or was ever a member of a group."""
        self._by_name: dict[str, ActorRef[Any]] = {}
        self._members: dict[str, dict[ActorRef[Any], None]] = {}

    def _entry(self, ref: ActorRef[Any]) -> _Entry:
        return self.listed.setdefault(ref, _Entry())

    def register(self, name: str, ref: ActorRef[Any]) -> None:
        """Give ``ref`` a name.

        Raises:
            NameTakenError: another living actor has it. Registering the holder again does nothing.
        """
        if self._by_name.get(name) == ref:
            return
        self.require_free(name)
        self._by_name[name] = ref
        self._entry(ref).names.append(name)

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
        self._entry(ref).groups[group] = None

    def leave(self, group: str, ref: ActorRef[Any]) -> None:
        """Make ``ref`` no member of ``group`` any more; a group without members is forgotten."""
        members = self._members.get(group, {})
        if ref in members:
            del members[ref], self.listed[ref].groups[group]
            if not members:
                del self._members[group]

    def members(self, group: str) -> tuple[ActorRef[Any], ...]:
        """Return the members of ``group`` in the order in which they joined."""
        return tuple(self._members.get(group, ()))

    def forget(self, ref: ActorRef[Any]) -> None:
        """Free every name of an actor that has ended, and take it out of every group."""
        entry = self.listed.get(ref, _Entry())
        for name in entry.names:
            del self._by_name[name]
        for group in tuple(entry.groups):
            self.leave(group, ref)
        self.listed.pop(ref, None)

    def __len__(self) -> int:
        return len(self._by_name)
