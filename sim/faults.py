"""What a scenario does to its world, and when.

Owns: applying each kind of fault, taking it back after its time, and the log of what was done.
Not here: the kinds and their rules (`sim.scenario`).
"""

from typing import TYPE_CHECKING, assert_never

import msgspec

from sim.scenario import (
    COLLECTOR,
    ChildKill,
    ClockJump,
    Cut,
    Fault,
    HostDown,
    NodeKill,
    PeerPathDown,
    TunnelClose,
)

if TYPE_CHECKING:
    from sim.world import World

NS_PER_S = 1_000_000_000


class Applied(msgspec.Struct, frozen=True):
    """One thing that was done to the world."""

    at_ns: int
    what: str
    fault: Fault


def schedule(world: "World", faults: tuple[Fault, ...]) -> list[Applied]:
    """Schedule ``faults``; return the log, which grows as they are applied."""
    log: list[Applied] = []
    for fault in faults:
        at_ns = round(fault.at_s * NS_PER_S)
        world.loop.call_at_ns(at_ns, _apply, world, fault, log)
        if isinstance(fault, HostDown | Cut | PeerPathDown) and fault.for_s is not None:
            end_ns = at_ns + round(fault.for_s * NS_PER_S)
            world.loop.call_at_ns(end_ns, _take_back, world, fault, log)
    return log


def _apply(world: "World", fault: Fault, log: list[Applied]) -> None:
    log.append(Applied(world.loop.now_ns, "applied", fault))
    match fault:
        case NodeKill(node=name) if name == COLLECTOR:
            world.collector.is_up = False
        case NodeKill():
            world.node(fault.node).kill()
        case HostDown():
            world.network.set_up(fault.host, is_up=False)
        case ClockJump():
            world.node(fault.node).parts.clock.set_offset(fault.offset_ms)
        case ChildKill():
            world.node(fault.node).parts.processes.kill(fault.program, fault.signal)
        case TunnelClose():
            session = world.relay.book.active(bytes.fromhex(world.node(fault.node).node_id))
            if session is not None:
                world.relay.end(session, fault.reason)
        case Cut():
            for source, target in _pairs(fault):
                world.network.cut(source, target)
        case PeerPathDown():
            for source, target in _pairs(fault):
                world.relay.book.drop_pair(_key(world, source), _key(world, target))
        case _:
            assert_never(fault)


def _take_back(world: "World", fault: HostDown | Cut | PeerPathDown, log: list[Applied]) -> None:
    log.append(Applied(world.loop.now_ns, "taken back", fault))
    if isinstance(fault, HostDown):
        world.network.set_up(fault.host, is_up=True)
        return
    for source, target in _pairs(fault):
        if isinstance(fault, Cut):
            world.network.heal(source, target)
        else:
            world.relay.book.restore_pair(_key(world, source), _key(world, target))


def _pairs(fault: Cut | PeerPathDown) -> tuple[tuple[str, str], ...]:
    there, back = (fault.source, fault.target), (fault.target, fault.source)
    return (there,) if fault.one_way else (there, back)


def _key(world: "World", name: str) -> bytes:
    return bytes.fromhex(world.node(name).node_id)
