"""What a node is built from: one value that production and simulation fill differently.

Owns: `Ports`, the production ones, and where a node's spool lies. Not here: the node that is built from them
(a boot function).
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from swactor import SystemClock, SystemRandom, ThreadWatchdog
from swactor.abc import Clock, Loop, Random, Watchdog
from swactor.cluster.transport import Transport
from swactor_diag.delivery.sink import Sink
from swactor_diag.delivery.spool import DiskSpool, MemorySpool, Spool
from swactor_diag.identity import MachineFacts, machine_facts
from swactor_diag.introspect import EmptyProc, LinuxProc, ProcRoot, ProcUnits, kernel_units
from swactor_diag.introspect.process import python_facts
from swactor_diag.schema.blocks import PythonFacts
from swactor_diag.schema.boot import Identity
from swactor_process import Spawner, default_spawner

log = logging.getLogger("swactor_diag")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The outside world of one node.

    ``spawner`` is made on the loop it works for. Without ``transport`` there is no cluster, without ``sink``
    nothing is shipped, without ``spool_root`` what cannot be sent waits in memory.
    """

    clock: Clock
    random: Random
    spawner: Callable[[Loop], Spawner]
    proc: ProcRoot = field(default_factory=EmptyProc)
    units: ProcUnits = field(default_factory=ProcUnits)
    watchdog: Watchdog | None = None
    transport: Transport | None = None
    sink: Sink | None = None
    spool_root: Path | None = None
    interpreter: Callable[[], PythonFacts] | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    machine: MachineFacts = field(default_factory=MachineFacts)

    @property
    def pid(self) -> int:
        """This process, as the ``proc`` port numbers it; 0 when nobody said."""
        return self.machine.pid or 0


def production_ports(
    environ: Mapping[str, str], *, pid: int, transport: Transport | None = None, token: str | None = None
) -> Ports:
    """Return the ports of a real node: the machine's clock, /proc, children, and the collector it is told of.

    Args:
        environ: ``SWACTOR_DIAG_COLLECTOR_URL`` names the collector; without it nothing is shipped.
            ``SWACTOR_DIAG_SPOOL_DIR`` names the folder of the spool.
        pid: of this process.
        transport: to the other nodes, if there are any.
        token: that the collector wants to see.
    """
    from swactor_diag.delivery.http import HttpSink  # here: a simulation must not load HTTP

    clock = SystemClock()
    url = environ.get("SWACTOR_DIAG_COLLECTOR_URL", "").strip()
    spool = environ.get("SWACTOR_DIAG_SPOOL_DIR", "").strip()
    return Ports(
        clock=clock,
        random=SystemRandom(),
        spawner=default_spawner,
        proc=LinuxProc(),
        units=kernel_units(),
        watchdog=ThreadWatchdog(),
        transport=transport,
        sink=HttpSink(url, clock=clock, token=token) if url else None,
        spool_root=Path(spool) if spool else None,
        interpreter=python_facts,
        environ=environ,
        machine=machine_facts(pid=pid),
    )


def open_spool(root: Path | None, identity: Identity) -> Spool:
    """Return the spool of one node of one run below ``root``, with what an earlier boot left there.

    A folder that cannot be used is no reason for a node not to start: the spool is then in memory.
    """
    if root is None:
        return MemorySpool()
    try:
        return DiskSpool(root / identity.run_id / identity.node_id_hex[:16])
    except OSError as error:
        log.warning("the spool below %s cannot be used (%s); records will wait in memory", root, error)
        return MemorySpool()
