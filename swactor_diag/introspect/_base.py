"""The protocol of an introspector, and the actor that runs one.

Owns: what an introspector must offer, and that whatever it does costs at most its own block: the call is
timed; an exception, also one that is meant to end a process, and a value of the wrong type become an outcome
with a reason. Only KeyboardInterrupt, which is the user's, and a cancellation go on.
Not here: which introspectors run (``supervisor``), when they are asked and for how long (``snapshotter``), a
value that cannot be written (``snapshot_writer``).
"""

import inspect
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import anyio
import anyio.lowlevel
from msgspec import structs

from swactor import Actor, ActorRef, Context, Event, ExitReason
from swactor_diag.readable import readable
from swactor_diag.schema.blocks import IntrospectionOutcome, IntrospectorEntry

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

REASON_CHARS_MAX = 200
HUNG_AFTER_S = 30.0
"""So long ``observe`` may wait, long after the snapshot has gone on without it; then it is cancelled."""


class IntrospectionError(Exception):
    """The surface is there but says something that cannot be read; the text becomes the outcome's reason."""


class HungError(Exception):
    """An introspector did not return; its actor ends with this, and is started again."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the introspector {name} has not answered for {HUNG_AFTER_S:g} s")
        self.name = name


class IntrospectorFailedError(Exception):
    """What an introspector raised would have ended more than its actor; the actor ends with this instead."""

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__(f"the introspector {name} raised {_told(error)}")
        self.name = name


class Introspector(Protocol[R_co]):
    """Observes one surface. Any object with these three members can be installed.

    ``name`` is the key in the snapshot body. With a dot (``host.network``) the record lies inside another
    block, beside what other introspectors put there. ``observe`` may be ``async``, or return something to
    await; if not, it must not block: it holds the event loop. It returns None when the surface does not exist
    here, and raises when it exists but cannot be read. What it returned must not change any more: it is
    written down a moment later.
    """

    @property
    def name(self) -> str:
        """Key of the block in the snapshot body."""
        ...

    @property
    def record(self) -> type[R_co]:
        """Type of what ``observe`` returns."""
        ...

    def observe(self) -> R_co | Awaitable[R_co | None] | None:
        """Return the current values."""
        ...


def checked_name(introspector: object) -> str:
    """Return the name, and refuse at once what would fail at each snapshot, and could not say why.

    Raises:
        TypeError: it is no object with the members of an `Introspector`.
        ValueError: its name is none.
    """
    name, record = getattr(introspector, "name", None), getattr(introspector, "record", None)
    if isinstance(introspector, type) or not callable(getattr(introspector, "observe", None)):
        raise TypeError(f"{introspector!r} is no introspector: an object with name, record and observe() is")
    if not isinstance(name, str) or not all(name.split(".")):
        raise ValueError(f"the name of {introspector!r} must be a text without blank parts, not {name!r}")
    if not isinstance(record, type):
        raise TypeError(f"the record of introspector {name} must be a class, not {record!r}")
    return name


@runtime_checkable
class EventSource(Protocol):
    """An introspector that knows moments, too: what it learns of while observing is emitted."""

    def take_events(self) -> Sequence[Event]:
        """Return, once, the events that became known since the last call."""
        ...


@runtime_checkable
class Listener(EventSource, Protocol):
    """An introspector that is told things between observations; its events are emitted then as well."""

    def hear(self, message: object) -> None:
        """Take note of a message that was told to the introspector's actor."""
        ...


@runtime_checkable
class Closable(Protocol):
    """An introspector that holds something open between observations."""

    def close(self) -> None:
        """Let go of it; whatever is observed afterwards opens it again. Harmless the second time."""
        ...


@runtime_checkable
class Stepwise(Protocol):
    """An introspector that may have very much to look at: other actors have their turns in between."""

    def observe_in_steps(self) -> Iterator[object]:
        """Observe as ``observe`` does; yield None after each step, and what ``observe`` returns at last."""
        ...


@dataclass(frozen=True, slots=True)
class Observed:
    """The answer of one introspector in one round: what to say of it, and its block when that is OK."""

    round: int
    entry: IntrospectorEntry
    block: object = None

    @property
    def name(self) -> str:
        """Of the introspector."""
        return self.entry.name

    def failed(self, reason: str) -> "Observed":
        """Return what this answer is once its block turns out to be good for nothing."""
        reason = readable(reason[:REASON_CHARS_MAX])  # a file name may be no text
        entry = structs.replace(self.entry, outcome=IntrospectionOutcome.FAILED, reason=reason)
        return Observed(self.round, entry)


@dataclass(frozen=True, slots=True)
class Observe:
    """Asks an introspector actor for one `Observed`, told to ``reply_to``."""

    round: int
    reply_to: ActorRef[Observed]


class IntrospectorActor(Actor[object]):
    """Runs one introspector. Late answers are for the asker to drop.

    One that hangs ends its actor: whatever it waited for is let go of (`Closable`) before it is asked again.
    """

    def __init__(self, introspector: Introspector[object]) -> None:
        self._introspector = introspector
        self._listener = introspector if isinstance(introspector, Listener) else None
        self._source = introspector if isinstance(introspector, EventSource) else None
        self._stepwise = introspector if isinstance(introspector, Stepwise) else None

    async def on_message(self, ctx: Context[object], message: object) -> None:
        """Answer an `Observe`; anything else is for the introspector to hear."""
        if not isinstance(message, Observe):
            self._hear(ctx, message)
            return
        started_ns = ctx.clock.monotonic_ns()
        try:
            value: object = (
                self._introspector.observe() if self._stepwise is None else _step_by_step(self._stepwise)
            )
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it costs this block only
            value = error
        if inspect.isawaitable(value):
            try:
                value = await self._awaited(value)
            except anyio.get_cancelled_exc_class() as error:
                is_ours = anyio.current_effective_deadline() == -math.inf
                if not is_ours:  # nobody cancelled us, but what it waited for
                    self._answer(ctx, message, error, started_ns=started_ns)
                raise
        self._answer(ctx, message, value, started_ns=started_ns)

    async def _awaited(self, pending: Awaitable[object]) -> object:
        """Return what was waited for, or raised meanwhile."""
        task = _running_task()
        with anyio.move_on_after(HUNG_AFTER_S):
            try:
                return await pending
            except BaseException as error:
                if _is_for_us(error, task):
                    raise
                return error
        raise HungError(self._introspector.name)

    def on_stop(self, ctx: Context[object], reason: ExitReason) -> None:  # noqa: ARG002 - the hook's signature
        """Let go of what the introspector holds open."""
        if isinstance(self._introspector, Closable):
            self._called(self._introspector.close)

    def _answer(self, ctx: Context[object], asked: Observe, value: object, *, started_ns: int) -> None:
        """Tell whoever asked what became of it: ``value`` is what was returned, or raised."""
        entry = IntrospectorEntry(
            name=self._introspector.name,
            outcome=IntrospectionOutcome.NO_DATA if value is None else IntrospectionOutcome.OK,
            duration_us=(ctx.clock.monotonic_ns() - started_ns) // 1000,
        )
        answer = Observed(asked.round, entry, value)
        record = self._introspector.record
        if isinstance(value, BaseException):
            answer = answer.failed(_told(value))
        elif value is not None and not isinstance(value, record):
            answer = answer.failed(f"observe() returned {type(value).__name__}, not {record.__name__}")
        try:
            events = self._events()
        except Exception as error:  # noqa: BLE001 - whatever it is, it costs this block only
            events = ()
            answer = answer.failed(_told(error))
        asked.reply_to.tell(answer)
        for event in events:
            ctx.emit(event)

    def _hear(self, ctx: Context[object], message: object) -> None:
        if self._listener is not None:
            listener = self._listener
            self._called(lambda: listener.hear(message))
            for event in self._events():
                ctx.emit(event)

    def _events(self) -> Sequence[Event]:
        source = self._source
        return () if source is None else self._called(lambda: tuple(source.take_events()))

    def _called(self, call: Callable[[], T]) -> T:
        """Call the introspector, which has no say about more than its own actor."""
        try:
            return call()
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise IntrospectorFailedError(self._introspector.name, error) from error


async def _step_by_step(introspector: Stepwise) -> object:
    value: object = None
    for value in introspector.observe_in_steps():
        if value is None:
            await anyio.lowlevel.checkpoint()
    return value


def _told(error: BaseException) -> str:
    """Return type and text of ``error``, or of what it stands for; also when it cannot say it."""
    if isinstance(error, IntrospectorFailedError) and error.__cause__ is not None:
        error = error.__cause__
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as unprintable:  # noqa: BLE001 - an exception's own code runs here
        text = f"<no text: its __str__ raised {type(unprintable).__name__}>"
    return f"{type(error).__name__}: {text}"


def _is_for_us(error: BaseException, task: int | None) -> bool:
    """Whether ``error`` ends the awaiting itself, or the process: not just raised by what is awaited."""
    if isinstance(error, GeneratorExit):
        return _running_task() != task  # closed from outside, not by the task that awaits
    return isinstance(error, (KeyboardInterrupt, anyio.get_cancelled_exc_class()))


def _running_task() -> int | None:
    try:
        return anyio.get_current_task().id
    except anyio.NoEventLoopError:
        return None
