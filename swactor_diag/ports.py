"""What a node is built from: one value that production and simulation fill differently.

Owns: `Ports`, the production ones, and where a node's spool lies. Not here: the node that is built from them
(a boot function).
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from swactor import SystemClock, SystemRandom, ThreadWatchdog
from swactor.abc import Clock, Loop, Random, Watchdog
from swactor.cluster.transport import Transport
from swactor_diag.delivery.sink import Sink
from swactor_diag.delivery.spool import MemorySpool, Spool
from swactor_diag.delivery.spool_folder import open_disk_spool
from swactor_diag.identity import MachineFacts, machine_facts
from swactor_diag.introspect import (
    EmptyProc,
    Prober,
    ProcRoot,
    ProcUnits,
    Resolver,
    native_proc,
)
from swactor_diag.introspect.host import Links, NoLinks
from swactor_diag.introspect.process import python_facts
from swactor_diag.readable import readable_variables
from swactor_diag.schema.blocks import PythonFacts
from swactor_diag.schema.boot import Identity
from swactor_process import ChildrenFileError, Spawner, default_spawner

log = logging.getLogger("swactor_diag")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The outside world of one node.

    ``spawner``, ``resolver`` and ``prober`` are made on the loop they work for. Without ``transport`` there
    is no cluster, without ``sink`` nothing is shipped, without ``spool_root`` what cannot be sent waits in
    memory, without ``resolver`` or ``prober`` nothing is looked up or tried.
    """

    clock: Clock
    random: Random
    spawner: Callable[[Loop], Spawner]
    proc: ProcRoot = field(default_factory=EmptyProc)
    units: ProcUnits = field(default_factory=ProcUnits)
    links: Links = field(default_factory=NoLinks)
    resolver: Callable[[Loop], Resolver] | None = None
    prober: Callable[[Loop], Prober] | None = None
    watchdog: Watchdog | None = None
    transport: Transport | None = None
    sink: Sink | None = None
    spool_root: Path | None = None
    interpreter: Callable[[], PythonFacts] | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)  # there may be secrets in it
    machine: MachineFacts = field(default_factory=MachineFacts)

    @property
    def pid(self) -> int:
        """This process, as the ``proc`` port numbers it; 0 when nobody said."""
        return self.machine.pid or 0

    def relay_urls(self) -> tuple[str, ...]:
        """Return the relays that this node has been told of so far: by its environment, by its transport."""
        urls = [self.environ.get("SWACTOR_IROH_RELAY_URL", "").strip()]
        if self.transport is not None:
            facts = self.transport.facts()
            urls += [facts.home_relay_url or "", facts.local_address.relay_url or ""]
        return tuple(dict.fromkeys(url for url in urls if url))

    def known_urls(self) -> tuple[str, ...]:
        """Return the relays, and the collector."""
        collector = self.environ.get("SWACTOR_DIAG_COLLECTOR_URL", "").strip()
        return (*self.relay_urls(), collector) if collector else self.relay_urls()


def production_ports(
    environ: Mapping[str, str],
    *,
    pid: int | None = None,
    transport: Transport | None = None,
    token: str | None = None,
    distribution: str = "swactor",
) -> Ports:
    """Return the ports of a real node: the machine's clock, /proc, children, and the collector it is told of.

    Args:
        environ: ``SWACTOR_DIAG_COLLECTOR_URL`` names the collector; without it nothing is shipped.
            ``SWACTOR_DIAG_SPOOL_DIR`` names the folder of the spool, ``SWACTOR_CHILDREN_FILE`` the file where
            child processes are written down for the next boot. Both may be called as no text can be; in
            all other variables, bytes that are no text are replaced.
        pid: of this process, which it is by default.
        transport: to the other nodes, if there are any.
        token: that the collector wants to see.
        distribution: whose commit is the program's.

    Raises:
        SinkAddressError: ``SWACTOR_DIAG_COLLECTOR_URL`` is no address.
    """
    from swactor_diag.delivery.http import HttpSink  # here: a simulation must not load HTTP
    from swactor_diag.introspect.links import SocketLinks
    from swactor_diag.introspect.sockets import SocketProber, ThreadResolver

    clock = SystemClock()
    variables = readable_variables(environ)
    url = variables.get("SWACTOR_DIAG_COLLECTOR_URL", "").strip()
    spool = environ.get("SWACTOR_DIAG_SPOOL_DIR", "").strip()
    children = environ.get("SWACTOR_CHILDREN_FILE", "").strip()
    proc, units = native_proc()
    return Ports(
        clock=clock,
        random=SystemRandom(),
        spawner=partial(_spawner, children_file=Path(children) if children else None),
        proc=proc,
        units=units,
        links=SocketLinks(),
        resolver=ThreadResolver,
        prober=SocketProber,
        watchdog=ThreadWatchdog(),
        transport=transport,
        sink=HttpSink(url, clock=clock, token=token) if url else None,
        spool_root=Path(spool) if spool else None,
        interpreter=python_facts,
        environ=variables,
        machine=machine_facts(pid=os.getpid() if pid is None else pid, distribution=distribution),
    )


def _spawner(loop: Loop, *, children_file: Path | None) -> Spawner:
    """Return the best spawner there is; a file that cannot be used does not keep a node from starting."""
    try:
        return default_spawner(loop, children_file=children_file)
    except ChildrenFileError as error:
        log.warning("%s; the next boot will not know the children of this one", error)
        return default_spawner(loop)


def open_spool(root: Path | None, identity: Identity) -> Spool:
    """Return the spool of one node of one run below ``root``, with what an earlier boot left there.

    A folder that cannot be used is no reason for a node not to start: the spool is then in memory.
    """
    if root is None:
        return MemorySpool()
    try:
        return open_disk_spool(root / identity.run_id, identity.node_id_hex)
    except OSError as error:
        log.warning("the spool below %s cannot be used (%s); records will wait in memory", root, error)
        return MemorySpool()
