"""The base class of actors: three hooks, nothing else.

Owns: what an author overrides, and what can be told of a class of actors once for all of them.
Not here: anything an actor may *do* (`_context`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from swactor._context import Context
    from swactor._messages import ExitReason

M = TypeVar("M")


class Actor(Generic[M]):
    """State, and what to do with a message of type ``M``.

    Each hook may be written ``def``: it then runs to completion on the system's run queue, the cheapest way
    there is. Or ``async def``: the actor then owns a task and may await; while it waits it handles nothing
    else. Both look the same from outside. A hook that raises ends the actor with that exception as reason.
    The hooks are looked up in the class, like special methods.
    """

    def on_start(self, ctx: Context[M]) -> Awaitable[None] | None:
        """Prepare; runs before the first message, and again in the fresh instance after a restart."""

    def on_message(self, ctx: Context[M], message: M) -> object:
        """Handle one message. What is returned is the reply when the message was asked, else ignored."""
        raise NotImplementedError(f"{type(self).__qualname__} does not say what to do with messages")

    def on_stop(self, ctx: Context[M], reason: ExitReason) -> Awaitable[None] | None:
        """Tidy up; runs once, after the children have ended, whatever the reason, unless it is KILLED."""


@dataclass(frozen=True, slots=True)
class ActorKind:
    """What the runtime needs to know of a class of actors."""

    name: str
    waits: bool
    """Whether ``on_message`` is ``async def``."""
    starts: bool
    """Whether there is an ``on_start`` to run."""
    stops: bool
    """Whether there is an ``on_stop`` to run."""

    @classmethod
    def of(cls, actor_type: type[Actor[Any]]) -> Self:
        """Look at ``actor_type``."""
        return cls(
            name=actor_type.__qualname__,
            waits=inspect.iscoroutinefunction(actor_type.on_message),
            starts=actor_type.on_start is not Actor.on_start,
            stops=actor_type.on_stop is not Actor.on_stop,
        )
