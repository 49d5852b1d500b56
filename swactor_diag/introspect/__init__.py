"""What a node observes about itself: one file a surface, each an `Introspector`, none knowing another.

Here: what an introspector is made of. Each surface is a module: ``subprocesses``, ``process``, ``actors``,
``kernel_net`` with ``host``, ``dns``, ``probes``, ``rental``, ``transport``, ``swim``, ``registry``,
``relay_server``.
"""

from swactor_diag.introspect._base import (
    HUNG_AFTER_S,
    Closable,
    EventSource,
    HungError,
    IntrospectionError,
    Introspector,
    IntrospectorActor,
    IntrospectorFailedError,
    Listener,
    Observe,
    Observed,
    Stepwise,
    checked_name,
)
from swactor_diag.introspect._linux_proc import LinuxProc, kernel_units
from swactor_diag.introspect._native_proc import native_proc
from swactor_diag.introspect._procfs import (
    EmptyProc,
    ProcReadError,
    ProcRoot,
    ProcStat,
    ProcUnits,
    WatchedProcess,
    WatchesProcesses,
)
from swactor_diag.introspect._reach import Answer, Prober, Resolved, Resolver, Transmission, Tried

__all__ = [
    "HUNG_AFTER_S",
    "Answer",
    "Closable",
    "EmptyProc",
    "EventSource",
    "HungError",
    "IntrospectionError",
    "Introspector",
    "IntrospectorActor",
    "IntrospectorFailedError",
    "LinuxProc",
    "Listener",
    "Observe",
    "Observed",
    "Prober",
    "ProcReadError",
    "ProcRoot",
    "ProcStat",
    "ProcUnits",
    "Resolved",
    "Resolver",
    "Stepwise",
    "Transmission",
    "Tried",
    "WatchedProcess",
    "WatchesProcesses",
    "checked_name",
    "kernel_units",
    "native_proc",
]
