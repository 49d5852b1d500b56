"""Replies that are owed to askers.

Owns: that one which was answered, or whose asker gave up, is let go of wherever it stands among those that
wait. Not here: the answers (``_life``, ``kept``).
"""

from typing import Generic, TypeVar

from swactor import Reply

R = TypeVar("R")
W = TypeVar("W")


class Owed(Generic[R, W]):
    """Replies of one kind, each with what it is for. As more come, those that are answered are swept out."""

    def __init__(self) -> None:
        self._replies: list[tuple[Reply[R], W]] = []
        self._sweep_at = 1

    def add(self, reply: Reply[R], what: W) -> None:
        """Keep ``reply`` until it is answered."""
        if len(self._replies) >= self._sweep_at:
            self._replies = [owed for owed in self._replies if not owed[0].done]
            self._sweep_at = 2 * len(self._replies) + 1  # no more than that: a write has bytes
        self._replies.append((reply, what))

    def take(self) -> list[tuple[Reply[R], W]]:
        """Return all of them, the oldest first; they are the caller's now."""
        taken, self._replies, self._sweep_at = self._replies, [], 1
        return taken
