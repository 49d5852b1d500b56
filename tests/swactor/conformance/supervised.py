"""What tests of supervisors share: children that end as they are told, and ways to reach and watch them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from swactor import (
    Actor,
    ActorRef,
    ActorSystem,
    Backoff,
    ChildSpec,
    Context,
    GetChild,
    RestartBudget,
    RestartKind,
    Supervisor,
)

if TYPE_CHECKING:
    from .conftest import Kind

SOON = Backoff(first_s=0.0, limit_s=0.0)
"""Restart at once."""
NEVER = Backoff(first_s=1e6, limit_s=1e6, jitter=0.0)
"""Restart so late that a test ends before."""
MANY = RestartBudget(restarts_max=10_000)


class Fragile:
    """Makes children that count messages, note their lives in ``log``, and end in the way they are told."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.log: list[str] = []

    def spec(self, name: str, restart: RestartKind = RestartKind.PERMANENT, **options: Any) -> ChildSpec:
        """Return the spec of one such child."""
        return ChildSpec(name, lambda: self.actor(name), restart=restart, **options)

    def actor(self, name: str) -> Actor[Any]:
        """Return one more life of the child ``name``."""
        self.log.append(f"start {name}")
        count = 0

        def handle(ctx: Context[Any], message: Any) -> object:
            nonlocal count
            count += 1
            if message == "fail":
                raise RuntimeError("asked to fail")
            if message == "stop":
                ctx.stop()
            return count

        return self.kind(handle, stop=lambda ctx, reason: self.log.append(f"stop {name}"))


async def supervise(system: ActorSystem, *children: ChildSpec, **options: Any) -> ActorRef[Any]:
    """Return a supervisor that restarts at once unless told otherwise."""
    return await system.spawn(Supervisor(children, **{"backoff": SOON, "budget": MANY, **options}))


async def child_of(supervisor: ActorRef[Any], name: str) -> ActorRef[Any]:
    """Return the address of a child."""
    ref: ActorRef[Any] = await supervisor.ask(GetChild(name))
    return ref


def is_down(system: ActorSystem, ref: ActorRef[Any]) -> bool:
    """Return whether a child has ended and waits for its restart."""
    serial = ref.actor_id.serial
    return any(actor.serial == serial and actor.state == "down" for actor in system.statistics().actors)


async def down(system: ActorSystem, ref: ActorRef[Any]) -> None:
    """Wait until a child is down; no time passes, so that its restart does not come."""
    with anyio.fail_after(20):
        while not is_down(system, ref):
            await anyio.lowlevel.checkpoint()
