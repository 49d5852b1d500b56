"""The tree of capture actors of one node, and the one object through which a node uses it.

Owns: which actors there are, their order (the shipper first, so that it stops last and ships what the others
still say), how long each may take to stop. Not here: what any of them does.

``DiagnosticsSupervisor`` is a plain `Supervisor` with ONE_FOR_ONE: an introspector that crashes is started
again, more and more slowly, and nobody else notices.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, Self

from swactor import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorSystem,
    AskTimeoutError,
    Backoff,
    ChildSpec,
    Event,
    GetChild,
    RestartBudget,
    Strategy,
    Supervisor,
)
from swactor.abc import Clock
from swactor.cluster.transport import Transport
from swactor_diag.delivery.batches import BatchMaker
from swactor_diag.delivery.figures import ShipperFigures
from swactor_diag.delivery.shipper import DELIVERY, FinalizeRun, Shipper, ShipSnapshot
from swactor_diag.delivery.sink import Sink
from swactor_diag.delivery.spool import MemorySpool, Spool
from swactor_diag.identity import identity_from_env, new_boot_id
from swactor_diag.introspect import EmptyProc, Introspector, IntrospectorActor, checked_name
from swactor_diag.introspect.actors import ActorsIntrospector
from swactor_diag.introspect.cluster import ClusterSurfaces
from swactor_diag.introspect.dns import DnsIntrospector
from swactor_diag.introspect.host import AddressingReader
from swactor_diag.introspect.kernel_net import KernelNetIntrospector
from swactor_diag.introspect.probes import ProbesIntrospector, targets_from_env
from swactor_diag.introspect.process import LoopLag, ProcessIntrospector
from swactor_diag.introspect.registry import RegistryIntrospector
from swactor_diag.introspect.rental import RentalIntrospector
from swactor_diag.introspect.subprocesses import SubprocessIntrospector
from swactor_diag.introspect.swim import SwimIntrospector
from swactor_diag.introspect.transport import TransportIntrospector
from swactor_diag.ports import Ports, open_spool, production_ports
from swactor_diag.recorder import EVENTS_WAITING_MAX, Recorder
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.reading import Snapshot, read_snapshot
from swactor_diag.snapshot_writer import OWN_KEYS, SnapshotWriter
from swactor_diag.snapshotter import Snapshotter, SnapshotWanted, TakeSnapshot

SHIPPER = "shipper"
SNAPSHOTTER = "snapshotter"

BACKOFF = Backoff(first_s=0.1, limit_s=30.0)
BUDGET = RestartBudget(restarts_max=2_000, period_s=600.0)
"""Never spent with this backoff: a child has at most 50 restarts in the period. One that fails for ever is
tried every 15 to 30 s, since giving up would take the others down with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosticsConfig:
    """Rhythms, limits and budgets of one node's diagnostics.

    Raises:
        ValueError: a time is not finite, a flush budget is negative, or anything else is not above 0.
    """

    snapshot_period_s: float = 5.0
    introspection_deadline_s: float = 1.0
    batch_interval_s: float = 1.0
    events_waiting_max: int = EVENTS_WAITING_MAX
    flush_budget_s: float = 4.0
    """For the last flush. The whole stop stays below 5 s, the grace a system gives by default."""
    finalize_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            may_be_0 = field.name == "flush_budget_s"  # then all that is left is spooled
            if not (0 < value < math.inf or (may_be_0 and value == 0)):
                rule = "finite and not negative" if may_be_0 else "finite and above 0"
                raise ValueError(f"{field.name} must be {rule}, not {value}")


def standard(system: ActorSystem, ports: Ports) -> tuple[Introspector[object], ...]:
    """Return the introspectors that every process can run; add your own to the tuple."""
    clock, loop = ports.clock, system.loop
    resolver = None if ports.resolver is None else ports.resolver(loop)
    prober = None if ports.prober is None else ports.prober(loop)
    found: list[Introspector[object]] = [
        SubprocessIntrospector(proc=ports.proc, clock=clock, units=ports.units),
        ProcessIntrospector(
            proc=ports.proc,
            clock=clock,
            pid=ports.pid,
            units=ports.units,
            interpreter=ports.interpreter,
            lag=LoopLag(loop),
        ),
        ActorsIntrospector(system.statistics, clock=clock),
        KernelNetIntrospector(
            proc=ports.proc,
            clock=clock,
            addressing=AddressingReader(proc=ports.proc, links=ports.links, clock=clock),
            nameservers=tuple if resolver is None else resolver.nameservers,
        ),
        RentalIntrospector(ports.environ, clock=clock, hostname=ports.machine.hostname),
    ]
    if resolver is not None:
        found.append(DnsIntrospector(clock=clock, scheduler=loop, resolver=resolver, urls=ports.known_urls))
        if prober is not None:
            found.append(
                ProbesIntrospector(
                    clock=clock,
                    scheduler=loop,
                    resolver=resolver,
                    prober=prober,
                    targets=targets_from_env(ports.environ),
                    relay_urls=ports.relay_urls,
                )
            )
    return tuple(found)


def of_cluster(cluster: ClusterSurfaces, *, clock: Clock) -> tuple[Introspector[object], ...]:
    """Return the introspectors of a node that is part of ``cluster``."""
    return (
        TransportIntrospector(cluster, clock=clock),
        SwimIntrospector(cluster, clock=clock),
        RegistryIntrospector(cluster, clock=clock),
    )


class Diagnostics:
    """The diagnostics of one node, running. Made by `start`; everything else happens by itself."""

    def __init__(
        self, system: ActorSystem, recorder: Recorder, *, config: DiagnosticsConfig, ships: bool
    ) -> None:
        self._system = system
        self._recorder = recorder
        self._config = config
        self._ships = ships
        self._supervisor: ActorRef[Any]
        self._refs: dict[str, ActorRef[object]] = {}
        """The actors of the tree by their ids; none before all of them are known."""
        self._early: list[tuple[str, object]] = []
        """What one of them had to tell another before."""

    @classmethod
    async def start(
        cls,
        system: ActorSystem,
        identity: Identity,
        *,
        sink: Sink | None = None,
        introspectors: Sequence[Introspector[object]] = (),
        spool: Spool | None = None,
        config: DiagnosticsConfig | None = None,
    ) -> Self:
        """Start the tree and begin to observe ``system``.

        Without a ``sink`` nothing is shipped and no snapshot taken unless asked for; the rest works alike.
        ``subprocesses`` exists in any case: without one in the list, it has no /proc to read.

        Raises:
            TypeError: what is to be installed is no introspector.
            ValueError: two introspectors have the same name, or one has none.
            NameTakenError: ``system`` has diagnostics already.
        """
        config = config or DiagnosticsConfig()
        ships = sink is not None
        recorder = Recorder(clock=system.clock, waiting_max=config.events_waiting_max, retain=ships)
        self = cls(system, recorder, config=config, ships=ships)
        installed = _with_subprocesses(introspectors, system=system)
        specs = self._introspector_specs(installed)
        if sink is not None:
            specs.insert(0, self._shipper_spec(identity, sink, spool or MemorySpool()))
        specs.append(self._snapshotter_spec(identity, [introspector.name for introspector in installed]))
        system.attach(recorder)
        try:
            self._supervisor = await system.spawn(
                Supervisor(specs, strategy=Strategy.ONE_FOR_ONE, budget=BUDGET, backoff=BACKOFF),
                name="diagnostics",
            )
        except BaseException:  # nobody would ever fetch from the recorder
            system.detach(recorder)
            raise
        self._refs = {spec.id: await self._supervisor.ask(GetChild(spec.id)) for spec in specs}
        for name, message in self._early:
            self._tell(name, message)
        return self

    @classmethod
    async def from_ports(
        cls,
        system: ActorSystem,
        identity: Identity,
        *,
        ports: Ports,
        introspectors: Sequence[Introspector[object]] = (),
        config: DiagnosticsConfig | None = None,
    ) -> Self:
        """Start with the standard introspectors, those given, and the sink and spool of ``ports``."""
        return await cls.start(
            system,
            identity,
            sink=ports.sink,
            introspectors=(*standard(system, ports), *introspectors),
            spool=None if ports.sink is None else open_spool(ports.spool_root, identity),
            config=config,
        )

    @classmethod
    async def from_env(
        cls,
        system: ActorSystem,
        *,
        environ: Mapping[str, str] = os.environ,
        node_id: str | None = None,
        role: str | None = None,
        transport: Transport | None = None,
        introspectors: Sequence[Introspector[object]] = (),
        token: str | None = None,
        config: DiagnosticsConfig | None = None,
    ) -> Self:
        """Start as the environment says: identity, collector and spool from ``SWACTOR_DIAG_*`` variables.

        Args:
            system: that is observed.
            environ: the variables; without ``SWACTOR_DIAG_COLLECTOR_URL`` nothing is shipped.
            node_id: by default that of the ``transport``, else a new one.
            role: wins over ``SWACTOR_DIAG_NODE_ROLE``.
            transport: to the other nodes, if there are any; it says what it is linked with.
            introspectors: besides the standard ones.
            token: that the collector wants to see.
            config: rhythms and limits.

        Raises:
            SinkAddressError: the collector's address is none.
            IdError: the run id or the node id cannot be used in paths.
            StageError: stage index and count are not both numbers, or only one of them is there.
        """
        ports = production_ports(environ, transport=transport, token=token)
        random = system.random.stream("diagnostics", "identity")
        if node_id is None:
            node_id = random.token(32).hex() if transport is None else transport.node_id
        identity = identity_from_env(
            environ,
            node_id,
            clock=system.clock,
            boot_id=new_boot_id(random),
            role=role,
            machine=ports.machine,
            iroh_version=None if transport is None else dict(transport.facts().versions).get("iroh"),
        )
        return await cls.from_ports(system, identity, ports=ports, introspectors=introspectors, config=config)

    @property
    def subprocesses(self) -> ActorRef[object]:
        """Where an actor forwards `ProcessStarted` and `ProcessExited`."""
        return self._refs["subprocess"]

    def introspector(self, name: str) -> ActorRef[object]:
        """Return the actor of an installed introspector, for those that are told things."""
        return self._refs[name]

    def emit(self, event: Event) -> None:
        """Record ``event``. Never raises, never waits.

        Only the loop's thread may call it. Another one says ``anyio.from_thread.run_sync(diag.emit, event)``
        or, if it is no thread of anyio, ``system.loop.call_from_thread(partial(diag.emit, event))``.
        """
        self._system.emit(event)

    async def snapshot(self) -> Snapshot:
        """Take a snapshot now, ship it if there is a sink, and return it as a reader sees it.

        Raises:
            AskTimeoutError: something held the event loop too long; it is shipped all the same.
        """
        timeout_s = 2 * self._config.introspection_deadline_s + 1.0  # the round under way, then ours
        return read_snapshot(await self._refs[SNAPSHOTTER].ask(TakeSnapshot(), timeout_s=timeout_s))

    async def finalize(self, reason: str) -> str | None:
        """End the run: a last snapshot, all events, then the finalize record.

        Returns where the collector put the bundle; None when nothing is shipped, or when the collector
        did not take the record in time (it is then sent later, or spooled).
        """
        if not self._ships:
            return None
        with suppress(AskTimeoutError, ActorDeadError):
            await self.snapshot()
        try:
            return await self._refs[SHIPPER].ask(
                FinalizeRun(reason), timeout_s=self._config.finalize_timeout_s
            )
        except (AskTimeoutError, ActorDeadError):
            return None

    async def stop(self) -> None:
        """Stop the tree, newest actor first; what is left is sent within the budget, else spooled.

        Not needed before a system's shutdown, which does the same.
        """
        await self._system.stop_actor(self._supervisor, grace_s=self._config.flush_budget_s + 1.0)
        self._system.detach(self._recorder)

    # -- the tree -------------------------------------------------------------------------------------------

    def _introspector_specs(self, introspectors: Sequence[Introspector[object]]) -> list[ChildSpec]:
        return [
            ChildSpec(id=introspector.name, factory=_factory(introspector), shutdown_grace_s=0.5)
            for introspector in introspectors
        ]

    def _shipper_spec(self, identity: Identity, sink: Sink, spool: Spool) -> ChildSpec:
        boot_id = identity.boot_id or new_boot_id(self._system.random.stream("diagnostics", "boot"))
        batches = BatchMaker(identity, boot_id=boot_id)
        figures = ShipperFigures()

        def make() -> Shipper:
            return Shipper(
                sink=sink,
                spool=spool,
                recorder=self._recorder,
                batches=batches,
                figures=figures,
                request_snapshot=lambda: self._tell(SNAPSHOTTER, SnapshotWanted()),
                batch_interval_s=self._config.batch_interval_s,
                flush_budget_s=self._config.flush_budget_s,
            )

        return ChildSpec(id=SHIPPER, factory=make, shutdown_grace_s=self._config.flush_budget_s + 1.0)

    def _snapshotter_spec(self, identity: Identity, names: Sequence[str]) -> ChildSpec:
        writer = SnapshotWriter(identity)
        # The shipper answers for its own block, as an introspector would.
        actors = [(name, name) for name in names] + ([(DELIVERY, SHIPPER)] if self._ships else [])

        def make() -> Snapshotter:
            return Snapshotter(
                writer=writer,
                recorder=self._recorder,
                targets=[(name, self._finder(actor)) for name, actor in actors],
                ship=self._ship_snapshot,
                period_s=self._config.snapshot_period_s if self._ships else None,
                deadline_s=self._config.introspection_deadline_s,
            )

        return ChildSpec(id=SNAPSHOTTER, factory=make, shutdown_grace_s=0.5)

    def _finder(self, name: str) -> Callable[[], ActorRef[object] | None]:
        return lambda: self._refs.get(name)

    def _ship_snapshot(self, body: bytes) -> None:
        if self._ships:
            self._tell(SHIPPER, ShipSnapshot(body))

    def _tell(self, name: str, message: object) -> None:
        """Tell one actor of the tree what another says; they run before `start` knows all of them."""
        if self._refs:
            self._refs[name].tell(message)
        else:
            self._early.append((name, message))


def _factory(introspector: Introspector[object]) -> Callable[[], Actor[Any]]:
    # The introspector outlives its actor: after a crash the table of children is still there.
    return lambda: IntrospectorActor(introspector)


def _with_subprocesses(
    introspectors: Sequence[Introspector[object]], *, system: ActorSystem
) -> tuple[Introspector[object], ...]:
    names = [checked_name(introspector) for introspector in introspectors]
    taken = {
        SHIPPER,
        SNAPSHOTTER,
        DELIVERY,
        *OWN_KEYS,
        *(name.partition(".")[0] for name in names if "." in name),
    }
    twice = sorted({name for name in names if names.count(name) > 1 or name in taken})
    if twice:
        raise ValueError(f"introspector names must be unique and free: {', '.join(twice)}")
    if "subprocess" in names:
        return tuple(introspectors)
    return (SubprocessIntrospector(proc=EmptyProc(), clock=system.clock), *introspectors)
