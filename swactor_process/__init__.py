"""Owns operating-system processes from actors: one actor, one process, every fate told exactly once.

``spawn_process(ctx, ProcessSpec(...), spawner=...)`` in the owning actor; then handle the notifications.
"""

from swactor_process.driver import ProcessActor, spawn_process
from swactor_process.linux import LinuxSpawner
from swactor_process.messages import (
    CloseStdin,
    ProcessChunk,
    ProcessCommand,
    ProcessExited,
    ProcessFileFailed,
    ProcessNotification,
    ProcessOutput,
    ProcessReady,
    ProcessReadyOverdue,
    ProcessStarted,
    ProcessStillAlive,
    SendSignal,
    SpawnFailed,
    Stop,
    StopResult,
    WriteStdin,
)
from swactor_process.output import LinePart
from swactor_process.portable import PortableSpawner, default_spawner
from swactor_process.spawner import (
    Child,
    ChildListener,
    ExitStatus,
    Spawner,
    SpawnError,
    SpawnRole,
    WriteOutcome,
)
from swactor_process.spec import (
    Chunks,
    Inherit,
    InvalidSpecError,
    Lines,
    Null,
    Output,
    ProcessError,
    ProcessSpec,
    ReadyOnLine,
    Stream,
    TailOnly,
    ToFile,
    WhenFull,
)
from swactor_process.surroundings import OutputFile, Surroundings

__all__ = [
    "Child",
    "ChildListener",
    "Chunks",
    "CloseStdin",
    "ExitStatus",
    "Inherit",
    "InvalidSpecError",
    "LinePart",
    "Lines",
    "LinuxSpawner",
    "Null",
    "Output",
    "OutputFile",
    "PortableSpawner",
    "ProcessActor",
    "ProcessChunk",
    "ProcessCommand",
    "ProcessError",
    "ProcessExited",
    "ProcessFileFailed",
    "ProcessNotification",
    "ProcessOutput",
    "ProcessReady",
    "ProcessReadyOverdue",
    "ProcessSpec",
    "ProcessStarted",
    "ProcessStillAlive",
    "ReadyOnLine",
    "SendSignal",
    "SpawnError",
    "SpawnFailed",
    "SpawnRole",
    "Spawner",
    "Stop",
    "StopResult",
    "Stream",
    "Surroundings",
    "TailOnly",
    "ToFile",
    "WhenFull",
    "WriteOutcome",
    "WriteStdin",
    "default_spawner",
    "spawn_process",
]
