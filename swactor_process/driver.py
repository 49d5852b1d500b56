"""The actor that owns one child process: commands in, notifications out.

Owns: `spawn_process`, what each command does, what the end of the actor means for the child.
Not here: any decision about the child's life (``session``), performing it (``_life``), how processes are
made (``spawner``).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeAlias, TypeVar, cast

from msgspec import Struct

from swactor import Actor, ActorRef, Context, ExitReason, Reply
from swactor_process._life import Life
from swactor_process.host import HostSurroundings
from swactor_process.messages import CloseStdin, MarkReady, ProcessCommand, SendSignal, Stop, WriteStdin
from swactor_process.spawner import Spawner
from swactor_process.spec import ProcessSpec
from swactor_process.surroundings import Surroundings

M = TypeVar("M")


def spawn_process(
    ctx: Context[M],
    spec: ProcessSpec,
    *,
    spawner: Spawner,
    owner: ActorRef[Any] | None = None,
    watchers: tuple[ActorRef[Any], ...] = (),
    surroundings: Surroundings | None = None,
) -> ActorRef[ProcessCommand]:
    """Have ``spec`` started as a child of the calling actor; return the address that takes commands.

    The start itself comes in a later turn of the event loop; commands until then wait for it.

    ``owner`` (the caller, unless given) hears every `ProcessNotification`. ``watchers`` hear
    `ProcessStarted` and `ProcessExited` only, exactly once too: for whoever must know of the exit even
    when the owner is gone by then. The process ends with the actor that called this.

    ``surroundings`` are those of this machine unless given, or brought along by the spawner (scripted
    children have their own).
    """
    actor = ProcessActor(
        spec,
        spawner=spawner,
        owner=ctx.ref if owner is None else owner,
        watchers=watchers,
        surroundings=surroundings,
    )
    return cast("ActorRef[ProcessCommand]", ctx.spawn(actor))


class Forwarded(Struct, frozen=True):
    """A command that somebody else was told, or asked: then it is answered with ``reply``."""

    command: ProcessCommand
    reply: Reply[Any] | None


class _Broken(Struct, frozen=True):
    """To itself: performing an effect raised. The actor fails with this error, the child is killed."""

    error: Exception


_Message: TypeAlias = ProcessCommand | Forwarded | _Broken


class ProcessActor(Actor[_Message]):
    """Owns one operating-system process. Completes with its last notification; see `spawn_process`."""

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        spawner: Spawner,
        owner: ActorRef[Any],
        watchers: tuple[ActorRef[Any], ...] = (),
        surroundings: Surroundings | None = None,
    ) -> None:
        self._spec = spec
        self._spawner = spawner
        self._owner, self._watchers = owner, watchers
        self._surroundings = surroundings

    def on_start(self, ctx: Context[_Message]) -> None:
        """Start the child, or report why that is not possible."""
        self._life = Life(
            ctx,
            self._spec,
            self._spawner,
            self._surroundings or self._spawners_surroundings(ctx),
            owner=self._owner,
            watchers=self._watchers,
            on_broken=lambda error: ctx.ref.tell(_Broken(error)),
        )
        self._life.start()

    def _spawners_surroundings(self, ctx: Context[_Message]) -> Surroundings:
        # To ask with isinstance whether it is `Surrounded` takes as long as to start an actor.
        own: Surroundings | None = getattr(self._spawner, "surroundings", None)
        return HostSurroundings(ctx.loop) if own is None else own

    def on_message(self, ctx: Context[_Message], message: _Message) -> None:
        """Perform a command. A child that has ended makes it a no-op with a typed answer."""
        match message:
            case Forwarded():
                self._perform(message.command, message.reply)
            case _Broken():
                raise message.error
            case _:
                self._perform(message, reply_of(ctx))

    def _perform(self, command: ProcessCommand, reply: Reply[Any] | None) -> None:
        match command:
            case Stop():
                self._life.stop(command, reply)
            case WriteStdin():
                self._life.write(command.data, reply)
            case SendSignal():
                self._life.signal(command.number)
            case CloseStdin():
                self._life.close_stdin()
            case MarkReady():
                self._life.mark_ready()

    def on_stop(
        self,
        ctx: Context[_Message],  # noqa: ARG002 - the hook's signature
        reason: ExitReason,  # noqa: ARG002 - the child ends whatever the reason
    ) -> Awaitable[None] | None:
        """End the child if it has not ended yet."""
        return self._life.end()


def reply_of(ctx: Context[Any]) -> Reply[Any] | None:
    """Take over the reply to the current message; None when it was told."""
    return ctx.defer() if ctx.is_asked else None
