"""The actors: each performs what its messages say, and reports to the world when its hooks and handlers run.

Five ways to write the same actor, and a supervisor that does the same beside its work.
"""

import asyncio
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from swactor import (
    Actor,
    ActorRef,
    Backoff,
    Context,
    Down,
    ExitReason,
    GetChild,
    NotAskedError,
    Reply,
    RestartBudget,
    Supervisor,
    SystemStoppingError,
)
from swactor.abc import Waiter

from .script import (
    Action,
    Answer,
    Ask,
    Complete,
    Crash,
    Defer,
    Kind,
    Later,
    Member,
    Node,
    Pause,
    Publish,
    Script,
    Send,
    Spawn,
    StopChild,
    Supervision,
    Tell,
    Tie,
)
from .world import Address, BoomError, Message, World, policy_of

LONG_S = 1e6
"""Period of a restart budget: no supervisor restarts for ever."""


class Body:
    """One life of an actor, whichever way its hooks are written."""

    def __init__(self, world: World, address: Address) -> None:
        self.world = world
        world.bodies.append(weakref.ref(self))
        self.life = world.new_life(address)
        self.node = address.tree if isinstance(address.tree, Node) else Node(Kind.SYNC)
        self.owed: deque[tuple[Reply[Any], int]] = deque()

    # -- what the world is told ---------------------------------------------------------------------------

    @contextmanager
    def inside(self, ctx: Context[Any], what: object) -> Iterator[None]:
        """A hook or handler of this life runs."""
        life, address, world = self.life, self.life.address, self.world
        if address.ref is None:
            address.ref = ctx.ref
        if life.is_stuck:
            world.violated(f"{address.name} was given up, and goes on with {what}")
        if not life.is_last or address.ended is not None:
            world.violated(f"{address.name} life {life.number} has ended, and goes on with {what}")
        if address.busy is not None:
            world.violated(f"{address.name} is busy, and goes on with {what}")
        address.busy = life
        try:
            yield
        finally:
            if address.busy is life:
                address.busy = None

    @contextmanager
    def stopping(self, reason: ExitReason) -> Iterator[None]:
        life, world = self.life, self.world
        if life.reason is not None:
            world.violated(f"{life.address.name} ran on_stop twice")
        life.reason = reason.kind.value
        life.note(reason)
        for child in life.children:
            if child.is_alive:
                world.violated(f"{life.address.name} ran on_stop while its child {child.name} lives")
        try:
            yield
        except BoomError:
            life.reason = "failed"
            raise

    def hear(self, ctx: Context[Any], message: object) -> Script:
        """Take note of a message; return what to do."""
        life, world = self.life, self.world
        if life.address.kind.has_hooks and not life.has_started:
            world.violated(f"{life.address.name} handles a message before it has started")
        if life.reason is not None:
            world.violated(f"{life.address.name} handles a message after on_stop")
        if isinstance(message, Down):
            world.heard_down(life, message)
            return ()
        assert isinstance(message, Message), message
        world.handled(life, message)
        if Defer() in message.then:
            self.defer(ctx, message)
        return message.then

    # -- what a script says -------------------------------------------------------------------------------

    def perform(self, ctx: Context[Any], action: Action) -> Any:
        """Do it; return what an asynchronous handler is to wait for, if anything."""
        world, life = self.world, self.life
        match action:
            case Crash():
                raise BoomError
            case Tell():
                world.tell(life.sender, action)
            case Publish():
                world.publish(life.sender, action)
            case Send():
                world.background(world.send(action))
            case Ask():
                return world.ask(life.sender, action)
            case Pause():
                return self.pause(ctx, action)
            case Complete():
                life.may_complete = True
                ctx.stop()
            case Later():
                message = world.new_message("", "timer", action.then)
                message.life = life
                ctx.send_after(action.delay_s, message, key=action.key)
            case Tie():
                self.tie(ctx, action)
            case Member():
                self.be_member(ctx, action)
            case StopChild():
                self.stop_child(ctx, action)
            case Spawn():
                self.spawn(ctx, action)
            case Defer():
                pass  # done before anything else, where the message is known
            case Answer():
                if self.owed:
                    reply, number = self.owed.popleft()
                    reply.send(number)
            case _:
                raise TypeError(action)
        return None

    def defer(self, ctx: Context[Any], message: Message) -> None:
        try:
            self.owed.append((ctx.defer(), message.number))
        except NotAskedError:
            if message.how == "ask":
                self.world.violated(f"{message} could not be deferred")

    def tie(self, ctx: Context[Any], action: Tie) -> None:
        other = self.world.pick(action.to)
        if other is None or other.ref is None or other is self.life.address:
            return
        match action.how:
            case "link":
                self.world.linked(self.life, other)
                ctx.link(other.ref)
            case "unlink":
                ctx.unlink(other.ref)
                self.world.unlinked(self.life, other)
            case "monitor":
                self.world.monitored(self.life, other)
                ctx.monitor(other.ref)
            case "demonitor":
                ctx.demonitor(other.ref)
                self.world.demonitored(self.life, other)

    def be_member(self, ctx: Context[Any], action: Member) -> None:
        if action.joins:
            ctx.join(action.group)
            self.world.joined(self.life, action.group)
        else:
            ctx.leave(action.group)
            self.world.left(self.life, action.group)

    def stop_child(self, ctx: Context[Any], action: StopChild) -> None:
        living = [child for child in self.life.children if child.is_alive and child.ref is not None]
        if living:
            child = living[action.which % len(living)]
            child.may_stop = True
            ctx.stop_child(child.ref, grace_s=action.grace_s)  # type: ignore[arg-type]  # not None, see above

    def spawn(self, ctx: Context[Any], action: Spawn) -> None:
        world, life = self.world, self.life
        if action.supervised and isinstance(life.address.tree, Supervision):
            world.background(world.adopt(life.address, action.tree))
            return
        address = world.new_address(action.tree, life)
        if address is not None:
            try:
                actor, policy = make(world, address), policy_of(action.tree)
                address.ref = ctx.spawn(actor, name=address.name, mailbox=policy)
            except SystemStoppingError:
                life.children.remove(address)

    async def pause(self, ctx: Context[Any], action: Pause) -> None:
        """Wait for the clock; a deaf pause goes on waiting when it is cancelled, until its time has come."""
        is_over = False
        while not is_over:
            waiter: Waiter[None] = ctx.loop.waiter()
            timer = ctx.loop.call_later(action.seconds, lambda: waiter.set(None))  # noqa: B023
            try:
                await waiter.wait()
                is_over = True
            except asyncio.CancelledError:
                if self.life.reason is not None:
                    self.life.reason = "killed"
                if not action.is_deaf:
                    raise
            finally:
                timer.cancel()

    # -- the hooks, one way and the other -----------------------------------------------------------------

    def run(self, ctx: Context[Any], script: Script) -> None:
        for action in script:
            pending = self.perform(ctx, action)
            if pending is not None:
                pending.close()

    async def run_async(self, ctx: Context[Any], script: Script) -> None:
        for action in script:
            pending = self.perform(ctx, action)
            if pending is not None:
                await pending
            if self.life.is_stuck:
                return  # it was given up; its address is no longer its own

    def on_start(self, ctx: Context[Any]) -> None:
        with self.inside(ctx, "on_start"):
            self.run(ctx, self.node.starts_with)
            self.life.has_started = True

    async def on_start_async(self, ctx: Context[Any]) -> None:
        with self.inside(ctx, "on_start"):
            await self.run_async(ctx, self.node.starts_with)
            self.life.has_started = True

    def on_message(self, ctx: Context[Any], message: object) -> object:
        with self.inside(ctx, message):
            self.run(ctx, self.hear(ctx, message))
        return message.number if isinstance(message, Message) else None

    async def on_message_async(self, ctx: Context[Any], message: object) -> object:
        with self.inside(ctx, message):
            await self.run_async(ctx, self.hear(ctx, message))
        return message.number if isinstance(message, Message) else None

    def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
        with self.inside(ctx, "on_stop"), self.stopping(reason):
            self.run(ctx, self.node.stops_with)

    async def on_stop_async(self, ctx: Context[Any], reason: ExitReason) -> None:
        with self.inside(ctx, "on_stop"), self.stopping(reason):
            await self.run_async(ctx, self.node.stops_with)


class BareSync(Actor[Any]):
    def __init__(self, world: World, address: Address) -> None:
        self.body = Body(world, address)

    def on_message(self, ctx: Context[Any], message: Any) -> object:
        return self.body.on_message(ctx, message)


class BareAsync(Actor[Any]):
    def __init__(self, world: World, address: Address) -> None:
        self.body = Body(world, address)

    async def on_message(self, ctx: Context[Any], message: Any) -> object:
        return await self.body.on_message_async(ctx, message)


class Sync(BareSync):
    def on_start(self, ctx: Context[Any]) -> None:
        self.body.on_start(ctx)

    def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
        self.body.on_stop(ctx, reason)


class Mixed(BareSync):
    async def on_start(self, ctx: Context[Any]) -> None:
        await self.body.on_start_async(ctx)

    async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
        await self.body.on_stop_async(ctx, reason)


class Async(BareAsync):
    async def on_start(self, ctx: Context[Any]) -> None:
        await self.body.on_start_async(ctx)

    async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
        await self.body.on_stop_async(ctx, reason)


class Boss(Supervisor):
    """A supervisor that performs scripts too."""

    def __init__(self, world: World, address: Address) -> None:
        assert isinstance(address.tree, Supervision)
        self.body = Body(world, address)
        trees = address.tree.children
        children = [world.new_address(tree, self.body.life, is_supervised=True) for tree in trees]
        self.firsts = [child for child in children if child is not None]
        super().__init__(
            [world.child_spec(child) for child in self.firsts],
            strategy=address.tree.strategy,
            budget=RestartBudget(restarts_max=address.tree.restarts_max, period_s=LONG_S),
            backoff=Backoff(first_s=address.tree.first_s, limit_s=10.0),
        )

    def on_start(self, ctx: Context[Any]) -> None:
        with self.body.inside(ctx, "on_start"):
            super().on_start(ctx)
            for child in self.firsts:
                ref = super().on_message(ctx, GetChild(child.name))
                assert isinstance(ref, ActorRef)
                child.ref = ref
            self.body.life.has_started = True

    def on_message(self, ctx: Context[Any], message: Any) -> object:
        if isinstance(message, Message | Down):
            return self.body.on_message(ctx, message)
        return super().on_message(ctx, message)

    def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
        self.body.on_stop(ctx, reason)


WAYS: dict[Kind, type[BareSync | BareAsync]] = {
    Kind.SYNC: Sync,
    Kind.ASYNC: Async,
    Kind.BARE_SYNC: BareSync,
    Kind.BARE_ASYNC: BareAsync,
    Kind.MIXED: Mixed,
}


def make(world: World, address: Address) -> Actor[Any]:
    """Return a fresh instance for ``address``: its next life."""
    if isinstance(address.tree, Supervision):
        return Boss(world, address)
    if len(address.lives) >= address.tree.made_max:
        world.new_life(address)
        raise BoomError
    return WAYS[address.kind](world, address)
