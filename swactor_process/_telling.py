"""What one start tells about itself: the records, with names and wall times, on their way to who hears them.

Owns: the spawn id, the notifications to the owner and the watchers, the event of a start that was refused.
Not here: when anything is told (``session``), the queue in front of a full mailbox (``_outbox``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from swactor import ActorRef, Context
from swactor_process._effects import (
    AnnounceChunks,
    AnnounceExited,
    AnnounceLines,
    AnnouncePiece,
    AnnounceReady,
)
from swactor_process._files import errno_name
from swactor_process._outbox import Outbox
from swactor_process.events import SubprocessSpawnFailed
from swactor_process.messages import (
    ProcessChunk,
    ProcessExited,
    ProcessFileFailed,
    ProcessLines,
    ProcessOutput,
    ProcessReady,
    ProcessReadyOverdue,
    ProcessStarted,
    ProcessStillAlive,
    SpawnFailed,
)
from swactor_process.spawner import Child, SpawnError
from swactor_process.spec import Lines, ProcessSpec, Stream, pauses


class Telling:
    """Tells the owner, and who else watches, about one start. Methods return what they told."""

    def __init__(
        self,
        ctx: Context[Any],
        spec: ProcessSpec,
        *,
        owner: ActorRef[Any],
        watchers: tuple[ActorRef[Any], ...],
        on_level: Callable[[bool], None],
    ) -> None:
        self._ctx, self._spec = ctx, spec
        # The serial is unique within the system; the token tells restarts and boots apart.
        spawn_id = f"{ctx.actor_id.serial}-{ctx.random.token(6).hex()}"
        self._name: _Name = {"process": ctx.ref, "spawn_id": spawn_id, "label": spec.label}
        self._owner = Outbox(
            ctx.loop,
            owner,
            mailbox_bytes=spec.mailbox_bytes,
            backlog_bytes=spec.backlog_bytes,
            on_level=on_level,
        )
        self._watchers = [Outbox(ctx.loop, watcher) for watcher in watchers]

    def started(self, child: Child) -> None:
        """Tell that ``child`` runs."""
        self._tell_all(
            ProcessStarted(
                **self._name,
                pid=child.pid,
                parent_pid=child.parent_pid,
                start_time=child.start_time,
                command=self._spec.command,
                started_at_ms=self._ctx.clock.wall_ms(),
                guarded=child.guarded,
                cgroup=child.cgroup,
            )
        )

    def lines(self, effect: AnnounceLines) -> None:
        """Tell lines of the child, as the policy of the stream says when the owner has no room."""
        process, spawn_id, stream = self._name["process"], self._name["spawn_id"], effect.stream
        policy = self._spec.policy(stream)
        if isinstance(policy, Lines) and policy.batched:
            self._giver(stream)(ProcessLines(process, spawn_id, stream, effect.data), len(effect.data))
        else:
            lines = effect.data[:-1].split(b"\n")
            outputs = [ProcessOutput(process, spawn_id, stream, line) for line in lines]
            self._give(stream, outputs, list(map(len, lines)))

    def piece(self, effect: AnnouncePiece) -> None:
        """Tell a piece of a line of the child, likewise."""
        process, spawn_id, piece = self._name["process"], self._name["spawn_id"], effect.piece
        output = ProcessOutput(process, spawn_id, effect.stream, piece.data, piece.part, piece.terminated)
        self._giver(effect.stream)(output, len(piece.data))

    def chunks(self, effect: AnnounceChunks) -> None:
        """Tell bytes of the child, as the policy of the stream says when the owner has no room."""
        process, spawn_id, stream = self._name["process"], self._name["spawn_id"], effect.stream
        chunks = [ProcessChunk(process, spawn_id, stream, data) for data in effect.chunks]
        self._give(stream, chunks, [len(data) for data in effect.chunks])

    def _give(self, stream: Stream, outputs: list[Any], sizes: list[int]) -> None:
        done = self._owner.pour(outputs, sizes)
        if done == len(outputs):
            return
        give = self._giver(stream)
        for output, n_bytes in zip(outputs[done:], sizes[done:], strict=True):
            give(output, n_bytes)

    def _giver(self, stream: Stream) -> Callable[[object, int], None]:
        return self._owner.hold if pauses(self._spec.policy(stream)) else self._owner.offer

    def bound(self) -> None:
        """Output is read whatever happens from now on, so it may be dropped."""
        self._owner.bound()

    def file_failed(self, stream: Stream, path: str, error: OSError) -> None:
        """Tell that output is being lost."""
        self._owner.tell(
            ProcessFileFailed(
                **self._name,
                stream=stream,
                path=path,
                errno_name=errno_name(error),
                message=error.strerror or str(error),
            )
        )

    def ready(self, effect: AnnounceReady) -> None:
        """Tell that the child is ready, or not in time."""
        kind = ProcessReadyOverdue if effect.overdue else ProcessReady
        self._owner.tell(kind(**self._name, after_ms=round(effect.after_s * 1e3)))

    def still_alive(self, child: Child) -> ProcessStillAlive:
        """Tell that the stop reached its deadline."""
        alive = ProcessStillAlive(**self._name, pid=child.pid, kernel_state=child.state())
        self._owner.tell(alive)
        return alive

    def failed(self, error: SpawnError) -> SpawnFailed:
        """Tell that nothing was started."""
        failed = SpawnFailed(
            **self._name,
            command=self._spec.command,
            errno_name=error.errno_name,
            role=error.role,
            path=error.path,
            message=str(error),
        )
        self._owner.tell(failed)
        self._report(failed)
        return failed

    def exited(
        self,
        child: Child,
        effect: AnnounceExited,
        *,
        exited_at_ms: int,
        lost_stdin_bytes: int,
        lost_file_bytes: int,
    ) -> ProcessExited:
        """Tell how ``child`` ended."""
        exited = ProcessExited(
            **self._name,
            pid=child.pid,
            start_time=child.start_time,
            command=self._spec.command,
            exit_code=effect.status.exit_code,
            signal=effect.status.signal,
            status_lost=effect.status.status_lost,
            asked_for=effect.asked_for,
            escalated=effect.escalated,
            external=effect.external,
            oom=effect.status.oom if effect.external else None,
            uptime_ms=round(effect.uptime_s * 1e3),
            exited_at_ms=exited_at_ms,
            stderr_tail=effect.stderr_tail,
            eof_reached=effect.eof_reached,
            survivors=effect.survivors,
            dropped_lines=self._owner.dropped,
            dropped_bytes=self._owner.dropped_bytes,
            lost_stdin_bytes=lost_stdin_bytes,
            lost_file_bytes=lost_file_bytes,
        )
        self._tell_all(exited)
        return exited

    def _tell_all(self, notification: ProcessStarted | ProcessExited) -> None:
        self._owner.tell(notification)
        for watcher in self._watchers:
            watcher.tell(notification)

    def _report(self, failed: SpawnFailed) -> None:
        """Nobody forwards a start that did not happen, so the driver says it; arguments may be secret."""
        self._ctx.emit(
            SubprocessSpawnFailed(
                label=failed.label,
                command=self._spec.program,
                spawn_id=failed.spawn_id,
                errno_name=failed.errno_name,
                role=failed.role.value,
                path=failed.path,
                message=failed.message,
            )
        )


class _Name(TypedDict):
    """What all notifications of one start have in common."""

    process: ActorRef[Any]
    spawn_id: str
    label: str
