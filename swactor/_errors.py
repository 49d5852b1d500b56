"""Every exception of the runtime. Each says what the caller can do and carries what it names as fields.

``...FullError`` and ``...TimeoutError`` are worth a retry, ``...DeadError`` and ``...StoppingError`` are not.
"""

from swactor._ids import ActorId


class SwactorError(Exception):
    """Base of every error that this package raises."""


class MailboxFullError(SwactorError):
    """The mailbox is at capacity. The message was not enqueued; retrying later is safe."""

    def __init__(self, actor: ActorId, capacity: int) -> None:
        super().__init__(f"mailbox of {actor} is full ({capacity} messages)")
        self.actor, self.capacity = actor, capacity


class ActorDeadError(SwactorError):
    """The actor ended before it replied; the message may or may not have been handled."""

    def __init__(self, actor: ActorId, why: str) -> None:
        super().__init__(f"{actor} has ended: {why}")
        self.actor, self.why = actor, why


class AskTimeoutError(SwactorError):
    """No reply came in time. The message may still be handled; a late reply is dropped."""

    def __init__(self, actor: ActorId, message_type: str, timeout_s: float) -> None:
        super().__init__(f"{actor} did not answer {message_type} within {timeout_s:g} s")
        self.actor, self.message_type, self.timeout_s = actor, message_type, timeout_s


class AskCircleError(SwactorError):
    """The ask could never be answered: the actors named wait for each other, or one for itself."""

    def __init__(self, chain: tuple[ActorId, ...]) -> None:
        super().__init__("ask would wait for itself: " + " -> ".join(str(actor) for actor in chain))
        self.chain = chain


class NameTakenError(SwactorError):
    """Another living actor has this name. Choose another name, or stop that actor first."""

    def __init__(self, name: str, holder: ActorId) -> None:
        super().__init__(f"the name {name!r} is taken by {holder}")
        self.name, self.holder = name, holder


class SystemStoppingError(SwactorError):
    """The system is shutting down (or not started yet); nothing new is spawned."""


class ChildFailedError(SwactorError):
    """A child that nobody supervises or monitors failed, so its parent fails too; ``__cause__`` says why.

    ``why`` is the reason of the actor that failed first, however many failed because of it in between.
    """

    def __init__(self, child: ActorId, why: str) -> None:
        super().__init__(f"child {child} failed: {why}")
        self.child, self.why = child, why


class LinkedActorFailedError(SwactorError):
    """An actor that this one is linked to failed, so this one fails too; ``__cause__`` says why.

    ``why`` is the reason of the actor that failed first, however many failed because of it in between.
    """

    def __init__(self, actor: ActorId, why: str) -> None:
        super().__init__(f"linked actor {actor} failed: {why}")
        self.actor, self.why = actor, why


class RestartBudgetSpentError(SwactorError):
    """A supervisor restarted too often within a period and gives up; ``__cause__`` tells all the failures."""

    def __init__(self, child_id: str, restarts_max: int, period_s: float) -> None:
        super().__init__(
            f"child {child_id!r} failed again after {restarts_max} restarts within {period_s:g} s"
        )
        self.child_id, self.restarts_max, self.period_s = child_id, restarts_max, period_s


class NotAskedError(SwactorError):
    """``ctx.defer()`` was called while handling a message that nobody asked."""

    def __init__(self, actor: ActorId) -> None:
        super().__init__(f"{actor} deferred a reply, but the current message was told, not asked")
        self.actor = actor


def raise_if_for_the_process(error: BaseException) -> None:
    """Raise ``error`` once more when it is meant for the whole process, not for the actor that it hit."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error


def tellable(error: BaseException, actor: ActorId) -> Exception:
    """Return what may be raised where somebody waits for ``actor``: nothing that is meant for the process."""
    return error if isinstance(error, Exception) else ActorDeadError(actor, repr(error))
