"""Owns operating-system processes from actors: one actor, one process, every fate told exactly once.

``spawn_process(ctx, ProcessSpec(...), spawner=...)`` in the owning actor; then handle the notifications.
"""

from swactor_process._children_file import ChildrenFileError
from swactor_process._errors import InvalidSpecError, ProcessError
from swactor_process.driver import ProcessActor, spawn_process
from swactor_process.events import SubprocessLeftBehind
from swactor_process.kept import ProcessFailedError, process_child
from swactor_process.limits import Cgroup, CgroupPlace, Limits
from swactor_process.linux import LinuxSpawner
from swactor_process.messages import (
    CloseStdin,
    MarkReady,
    ProcessChunk,
    ProcessCommand,
    ProcessExited,
    ProcessFileFailed,
    ProcessGivenUp,
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
    OomEvidence,
    Spawner,
    SpawnError,
    SpawnRole,
    WriteOutcome,
)
from swactor_process.spec import (
    Chunks,
    Inherit,
    Lines,
    Null,
    Output,
    ProcessSpec,
    Readiness,
    ReadyOnFile,
    ReadyOnLine,
    ReadyOnMessage,
    ReadyOnPort,
    Stream,
    TailOnly,
    ToFile,
    WhenFull,
)
from swactor_process.surroundings import OutputFile, Surroundings

__all__ = [
    "Cgroup",
    "CgroupPlace",
    "Child",
    "ChildListener",
    "ChildrenFileError",
    "Chunks",
    "CloseStdin",
    "ExitStatus",
    "Inherit",
    "InvalidSpecError",
    "Limits",
    "LinePart",
    "Lines",
    "LinuxSpawner",
    "MarkReady",
    "Null",
    "OomEvidence",
    "Output",
    "OutputFile",
    "PortableSpawner",
    "ProcessActor",
    "ProcessChunk",
    "ProcessCommand",
    "ProcessError",
    "ProcessExited",
    "ProcessFailedError",
    "ProcessFileFailed",
    "ProcessGivenUp",
    "ProcessNotification",
    "ProcessOutput",
    "ProcessReady",
    "ProcessReadyOverdue",
    "ProcessSpec",
    "ProcessStarted",
    "ProcessStillAlive",
    "Readiness",
    "ReadyOnFile",
    "ReadyOnLine",
    "ReadyOnMessage",
    "ReadyOnPort",
    "SendSignal",
    "SpawnError",
    "SpawnFailed",
    "SpawnRole",
    "Spawner",
    "Stop",
    "StopResult",
    "Stream",
    "SubprocessLeftBehind",
    "Surroundings",
    "TailOnly",
    "ToFile",
    "WhenFull",
    "WriteOutcome",
    "WriteStdin",
    "default_spawner",
    "process_child",
    "spawn_process",
]
