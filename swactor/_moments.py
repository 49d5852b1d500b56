"""What the runtime reports to its Observers: moments in the life of actors that somebody may need to know.

Owns: the event types of the core. Not here: values such as depth or number of messages (`statistics()`).
"""

from msgspec import UNSET, UnsetType

from swactor._events import Event


class ActorSpawned(Event, frozen=True, kw_only=True):
    """An actor was made and its ``on_start`` is about to run. Exactly one `ActorStopped` follows."""

    actor: str
    actor_type: str


class ActorStopped(Event, frozen=True, kw_only=True):
    """An actor has ended for good; a restart is not the end."""

    actor: str
    actor_type: str
    reason: str
    """``completed``, ``stopped``, ``failed`` or ``killed``, as in `ExitKind`."""


class ActorFailed(Event, frozen=True, kw_only=True):
    """A hook or handler of an actor raised, or a child or an actor it is linked to failed."""

    actor: str
    actor_type: str
    error_type: str
    error: str
    message_type: str | UnsetType = UNSET


class ActorRestarted(Event, frozen=True, kw_only=True):
    """A supervisor has started a child again, under its old address."""

    actor: str
    actor_type: str
    restarts: int
    delay_ms: int


class ActorStuck(Event, frozen=True, kw_only=True):
    """An actor ignored both its stop and its cancellation; the system went on without it."""

    actor: str
    actor_type: str


class DeadLetters(Event, frozen=True, kw_only=True):
    """Messages reached an actor that had ended; reported at the 1st, 2nd, 4th, 8th ... of the system."""

    actor: str
    message_type: str
    total: int


class HandlerBlocked(Event, frozen=True, kw_only=True):
    """Something held the event loop longer than the watchdog's bound; nothing else ran meanwhile."""

    actor: str | UnsetType = UNSET
    """Whose handler it was; absent when no actor was found on the stack."""
    actor_type: str | UnsetType = UNSET
    message_type: str | UnsetType = UNSET
    held_ms: int
    stack: str
    """Where it was when it was found, outermost call first."""
