"""The words the runtime itself speaks: why an actor ended, who is told, what it says to itself.

Owns: `ExitReason`, `Down`, `Request`, the signals of the system lane, what else the runtime enqueues.
Not here: any behaviour; `_cell` acts on these.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    from swactor._cell import Cell
    from swactor._ref import ActorRef

R_co = TypeVar("R_co", covariant=True)


class Request(Generic[R_co]):
    """Marks a message that is asked; ``R_co`` is the type of the reply.

    ``class GetTotal(msgspec.Struct, Request[int], frozen=True)`` makes ``await ref.ask(GetTotal())`` an
    ``int`` for the type checker. Has no fields and no behaviour.
    """

    __slots__ = ()


class ExitKind(enum.Enum):
    """How an actor ended."""

    COMPLETED = "completed"
    """It stopped itself, perhaps with a value."""
    STOPPED = "stopped"
    """Its parent or the system asked it to stop, and it did."""
    FAILED = "failed"
    """A hook or a handler raised."""
    KILLED = "killed"
    """It did not stop within its grace and was cancelled."""
    NODE_DOWN = "node_down"
    """Its node was declared dead; what became of the actor itself is not known."""


COMPLETED: Final = ExitKind.COMPLETED
STOPPED: Final = ExitKind.STOPPED
FAILED: Final = ExitKind.FAILED
KILLED: Final = ExitKind.KILLED


class ExitReason(msgspec.Struct, frozen=True):
    """Why an actor ended: the kind, the exception of a failure, the value of a completion."""

    kind: ExitKind
    error: BaseException | None = None
    value: object = None

    @property
    def abnormal(self) -> bool:
        """Whether a `TRANSIENT` child is restarted after this, and links and parents fail with it."""
        return self.kind is not COMPLETED and self.kind is not STOPPED

    def __str__(self) -> str:
        if self.error is None:
            return self.kind.value
        return f"{self.kind.value}: {type(self.error).__name__}: {error_text(self.error)}"

    def and_then(self, error: BaseException) -> ExitReason:
        """Return this reason after one more thing went wrong on the way to the end: both are told."""
        kind = self.kind if self.abnormal else FAILED
        if self.error is None:
            return ExitReason(kind, error)
        both = BaseExceptionGroup("an actor failed, and failed again while it ended", [self.error, error])
        return ExitReason(kind, both)


ASKED_TO_STOP: Final = ExitReason(STOPPED)
"""Why an actor ends that somebody else wants to end."""


def error_text(error: BaseException) -> str:
    """Return what ``error`` says, also when it cannot say it."""
    try:
        return str(error)
    except Exception as unprintable:  # noqa: BLE001 - an exception's own code runs here
        return f"<no text: its __str__ raised {type(unprintable).__name__}>"


class Down(msgspec.Struct, frozen=True):
    """``ref`` has ended; told exactly once to each actor that monitors it, ahead of user messages."""

    ref: ActorRef[Any]
    reason: ExitReason


class WithReceipt:
    """A user message, and what its sender wants to know: that it is in the mailbox no more.

    Told or sent like the message itself, of which alone the handler knows. ``left`` is called once, when the
    message is about to be handled, has become a dead letter or was dropped as the newest, and must not raise.
    So a sender can bound what it has under way by more than a number of messages. Never dropped to make room;
    only within one system.
    """

    __slots__ = ("left", "message")

    def __init__(self, message: object, left: Callable[[], None]) -> None:
        self.message = message
        self.left = left


class TimerFired:
    """A keyed timer came due. Ignored when its generation is no longer the current one of its key."""

    __slots__ = ("generation", "key", "message")

    def __init__(self, key: object, generation: int, message: object) -> None:
        self.key = key
        self.generation = generation
        self.message = message


class Stop:
    """Stop after the current message; what is left in the mailbox goes to dead letters.

    ``for_good``: a supervisor does not start the actor again, not even when it is down already.
    """

    __slots__ = ("for_good", "grace_s", "reason")

    def __init__(self, reason: ExitReason, grace_s: float, *, for_good: bool = False) -> None:
        self.reason = reason
        self.grace_s = grace_s
        self.for_good = for_good


class Drained:
    """Stands at the end of a mailbox that is being drained: stop when it is reached."""

    __slots__ = ("grace_s",)

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s


class ChildDown:
    """To the parent: this child has come to its end; ``watched`` when the parent monitors it anyway."""

    __slots__ = ("cell", "reason", "watched")

    def __init__(self, cell: Cell, reason: ExitReason, *, watched: bool) -> None:
        self.cell = cell
        self.reason = reason
        self.watched = watched


class LinkDown:
    """The other end of a link has come to an abnormal end."""

    __slots__ = ("reason", "ref")

    def __init__(self, ref: ActorRef[Any], reason: ExitReason) -> None:
        self.ref = ref
        self.reason = reason


NOTHING: Final = object()
"""What is left of an envelope that needs no handling."""


class Interrupt:
    """Stands at the head of a user lane: look up from the messages, something else has happened."""

    __slots__ = ()


class HookDone:
    """An asynchronous ``on_start`` or ``on_stop`` has returned, or raised ``error``."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


Signal: TypeAlias = Stop | ChildDown | HookDone | Down | LinkDown
"""What travels in the system lane."""
