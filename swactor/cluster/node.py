"""A node's part of a cluster, from boot to goodbye: what a program holds.

Owns: `Cluster` and its config, the order of starting and stopping, one view of everything.
Not here: anything a node does between the two (`membership`, `registry`, `links`, `routing`).
"""

from contextlib import suppress
from typing import Any

import msgspec

from swactor import (
    ActorRef,
    ActorSystem,
    MailboxFullError,
    MailboxPolicy,
    NodeId,
    Overflow,
    SwactorError,
)
from swactor.cluster.events import MemberState
from swactor.cluster.handshake import TOKEN_BYTES_MIN
from swactor.cluster.link_messages import Flush, Wiring
from swactor.cluster.links import Inbound, Links, LinksMessage, SayFarewell, Wake
from swactor.cluster.members import SwimConfig
from swactor.cluster.membership import Membership, MembershipMessage, PeerLeft, SwimRead, swim_view
from swactor.cluster.names import Names
from swactor.cluster.outbox import Outbox, Outboxes
from swactor.cluster.paths import PathWatch
from swactor.cluster.registry import (
    Exposed,
    NamesRead,
    Register,
    Registry,
    RegistryMessage,
    Resolve,
    Withdraw,
)
from swactor.cluster.remote import RemoteRef
from swactor.cluster.routing import LocalTargets, Router
from swactor.cluster.session import CloseCode
from swactor.cluster.swim import Swim
from swactor.cluster.transport import Connection, PeerAddress, Transport
from swactor.cluster.views import LinksView, MemberView, NamesView, SwimView


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a node needs to know to take part.

    ``token`` is the secret all nodes of the cluster share; ``allowed``, where given, are the only node ids
    that may connect, and they need the token too. ``messages`` are the Struct types that may cross, the same
    everywhere. ``boot_id`` must grow from one life of a node to the next: the wall clock unless given.
    """

    token: bytes
    seeds: tuple[PeerAddress, ...] = ()
    messages: tuple[type[msgspec.Struct], ...] = ()
    allowed: frozenset[NodeId] | None = None
    swim: SwimConfig = SwimConfig()
    boot_id: int | None = None


class ClusterNotRunningError(SwactorError):
    """The cluster was not started, or was stopped. Start it before use."""


class _Parts(msgspec.Struct, frozen=True):
    """What a running cluster consists of."""

    swim: Swim
    names: Names
    router: Router
    links: Links
    links_ref: ActorRef[LinksMessage]
    registry: Registry
    registry_ref: ActorRef[RegistryMessage]
    membership_ref: ActorRef[MembershipMessage]
    watch_ref: ActorRef[Any]


class Cluster:
    """This node among others. Owns ``transport`` from `start` to `stop`.

    Raises:
        ValueError: the token is too short to be a secret.
    """

    def __init__(self, system: ActorSystem, transport: Transport, config: ClusterConfig) -> None:
        if len(config.token) < TOKEN_BYTES_MIN:
            raise ValueError(f"a cluster token has at least {TOKEN_BYTES_MIN} bytes")
        self._system = system
        self._transport = transport
        self._config = config
        self._parts: _Parts | None = None
        self._early: list[Connection] = []
        self._stopped = False

    @property
    def node_id(self) -> NodeId:
        """The id of this node."""
        return self._transport.node_id

    async def start(self) -> None:
        """Start the transport and join through the seeds. Returns before anybody has answered.

        Raises:
            ValueError: two of the config's ``messages`` have the same name.
            Exception: what the start of the transport raises.
        """
        system, transport, config = self._system, self._transport, self._config
        await transport.start(self._on_inbound)
        boot = system.clock.wall_ms() if config.boot_id is None else config.boot_id
        targets = LocalTargets(self.node_id, boot, lambda ref: registry_ref.tell(Exposed(ref)))
        outboxes = Outboxes(lambda outbox: self._wake(outbox, links_ref))
        router = Router(system, targets=targets, outboxes=outboxes, messages=config.messages)
        names = Names(self.node_id, boot=boot, random=system.random.stream("cluster", "names"))
        swim = Swim(
            transport.facts().local_address,
            boot=boot,
            seeds=config.seeds,
            config=config.swim,
            random=system.random.stream("cluster", "swim"),
        )
        wiring = Wiring(
            token=config.token,
            transport=transport,
            router=router,
            on_swim=lambda peer, body: membership_ref.tell(SwimRead(peer, body)),
            on_names=lambda peer, body: registry_ref.tell(NamesRead(peer, body)),
            on_left=lambda peer: membership_ref.tell(PeerLeft(peer)),
        )
        links = Links(wiring, outboxes, allowed=config.allowed)
        registry = Registry(names, router=router, outboxes=outboxes)
        registry_ref = await system.spawn(
            registry,
            name="cluster-registry",
            mailbox=_GOSSIP_MAILBOX,
        )
        links_ref = await system.spawn(links, name="cluster-links")
        membership_ref = await system.spawn(
            Membership(swim, router=router, outboxes=outboxes, links=links_ref, registry=registry_ref),
            name="cluster-membership",
            mailbox=_GOSSIP_MAILBOX,
        )
        watch_ref = await system.spawn(PathWatch(transport, membership_ref), name="cluster-paths")
        self._parts = _Parts(
            swim, names, router, links, links_ref, registry, registry_ref, membership_ref, watch_ref
        )
        early, self._early = self._early, []
        for connection in early:
            self._on_inbound(connection)

    def register(self, name: str, ref: ActorRef[Any]) -> None:
        """Let every node find ``ref``, an actor of this node, as ``name``. The name goes when the actor ends.

        A name that another node has is taken over everywhere (the later registration wins).

        Raises:
            TypeError: ``ref`` is an actor of another node.
            ClusterNotRunningError: the cluster is not running.
        """
        parts = self._running()
        if isinstance(ref, RemoteRef):
            raise TypeError(f"{ref!r} can only be registered on its own node")
        parts.router.targets.expose(ref)
        parts.registry_ref.tell(Register(name, ref))

    def withdraw(self, name: str, ref: ActorRef[Any]) -> None:
        """Take ``name`` from ``ref``; does nothing when it does not have it.

        Raises:
            ClusterNotRunningError: the cluster is not running.
        """
        self._running().registry_ref.tell(Withdraw(name, ref))

    def whereis(self, name: str) -> ActorRef[Any] | None:
        """Return the actor on a living node that has ``name``, as far as this node knows; else None.

        Raises:
            ClusterNotRunningError: the cluster is not running.
        """
        return self._running().registry.find(name)

    async def resolve(self, name: str, *, timeout_s: float = 10.0) -> ActorRef[Any]:
        """Return the actor that has ``name``, waiting until one on a living node has.

        Raises:
            AskTimeoutError: nobody has it within ``timeout_s``.
            ClusterNotRunningError: the cluster is not running.
        """
        return await self._running().registry_ref.ask(Resolve(name), timeout_s=timeout_s)

    def members(self) -> tuple[MemberView, ...]:
        """Return the other nodes that are not dead, sorted by id."""
        return tuple(m for m in self.swim_view().members if m.state is not MemberState.DEAD)

    def swim_view(self) -> SwimView:
        """Return what the failure detector believes right now.

        Raises:
            ClusterNotRunningError: the cluster is not running.
        """
        parts, clock = self._running(), self._system.clock
        return swim_view(parts.swim, now_ns=clock.monotonic_ns(), wall_ms=clock.wall_ms())

    def names_view(self) -> NamesView:
        """Return every name this node knows of right now.

        Raises:
            ClusterNotRunningError: the cluster is not running.
        """
        names = self._running().names
        return NamesView(tuple(entry for _, entry in sorted(names.entries.items())), names.clock)

    def links_view(self) -> LinksView:
        """Return how each peer is reached right now.

        Raises:
            ClusterNotRunningError: the cluster is not running.
        """
        parts = self._running()
        return LinksView(
            connections=parts.links.view(),
            transport=self._transport.facts(),
            refused=tuple(sorted((str(why), count) for why, count in parts.links.refused.items())),
            dropped=tuple(sorted(parts.router.dropped.items())),
        )

    async def stop(self) -> None:
        """Say goodbye to every peer and close the transport. Harmless the second time.

        What was told before is still sent; peers have about a second to read it.
        """
        parts = self._parts
        if parts is not None:
            with suppress(SwactorError):  # the actors may have been stopped already, or be very busy
                await parts.links_ref.ask(SayFarewell())
            self._stopped = True
            self._parts = None  # until here a peer that redials is still let in, to hear the rest
            for ref in (parts.watch_ref, parts.membership_ref, parts.registry_ref, parts.links_ref):
                await self._system.stop_actor(ref)
        await self._transport.close()

    def _running(self) -> _Parts:
        if self._parts is None:
            raise ClusterNotRunningError("the cluster is not running")
        return self._parts

    def _wake(self, outbox: Outbox, links: ActorRef[LinksMessage]) -> None:
        if self._stopped:
            return  # nobody sends any more
        if outbox.link is not None:
            outbox.link.tell(Flush())
        else:
            links.tell(Wake(outbox.peer))

    def _on_inbound(self, connection: Connection) -> None:
        if self._parts is None:
            self._early.append(connection)
            return
        try:
            self._parts.links_ref.tell(Inbound(connection))
        except MailboxFullError:
            connection.close(CloseCode.REFUSED, "busy")


_GOSSIP_MAILBOX = MailboxPolicy(capacity=10_000, overflow=Overflow.DROP_OLDEST)
