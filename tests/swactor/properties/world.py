"""A system of actors that perform scripts, and a record of all that an outsider can see of it.

Owns: sending and its accounting, which address had which lives, what must never happen at any moment.
Not here: what must hold once everything is at rest (`checks`), how an actor is written (`nodes`).
"""

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from swactor import (
    Actor,
    ActorDeadError,
    ActorFailed,
    ActorRef,
    ActorRestarted,
    ActorSpawned,
    ActorStopped,
    ActorStuck,
    ActorSystem,
    AskCircleError,
    AskTimeoutError,
    ChildFailedError,
    ChildSpec,
    Down,
    Event,
    ExitReason,
    LinkedActorFailedError,
    MailboxFullError,
    MailboxPolicy,
    NameTakenError,
    StartChild,
    Strategy,
    SystemStoppingError,
)
from swactor.testing import ManualClock

from .script import Ask, Kind, Node, Publish, Register, Script, Send, Spawn, Stop, Supervision, Tell, Tree

ONE_FOR_ONE = Strategy.ONE_FOR_ONE
ADDRESSES_MAX = 40
"""Actors that one run has at most, supervised children included."""
PLACES_LIVING = 32
"""From here on a place may mean one that has ended."""


class BoomError(Exception):
    """What a script raises."""


@dataclass(eq=False)
class Message:
    """One message and what became of it."""

    number: int
    sender: str
    how: str
    then: Script
    accepted: int = 0
    """By how many mailboxes."""
    handled_by: list[int] = field(default_factory=list)
    outcome: str | None = None
    """Of an ask."""
    life: "Life | None" = None
    """Whose timer it is."""

    def __repr__(self) -> str:
        return f"<{self.how} {self.number} by {self.sender}>"


@dataclass(eq=False)
class Watching:
    """How often one life is told of the end of one address."""

    due: int = 0
    """So often it must be."""
    allowed: int = 0
    """So often it may be: what is on its way already may be taken back too late."""


@dataclass(eq=False)
class Life:
    """One instance of an actor."""

    address: "Address"
    number: int
    has_started: bool = False
    failed: str | None = None
    """Type of the error, as the event said."""
    reason: str | None = None
    """The kind of its end, as ``on_stop`` was told, or made it."""
    errors: list[tuple[str, int | None]] = field(default_factory=list)
    """What went wrong, and the address that the error names."""
    may_complete: bool = False
    """Whether it stopped itself."""
    is_stuck: bool = False
    watching: dict[int, Watching] = field(default_factory=dict)
    children: list["Address"] = field(default_factory=list)

    @property
    def sender(self) -> str:
        return f"{self.address.name} life {self.number}"

    @property
    def is_last(self) -> bool:
        return self.address.lives[-1] is self

    @property
    def is_over(self) -> bool:
        """Whether it has begun to end, as far as one can tell."""
        return not self.is_last or bool(self.failed or self.reason or self.address.ended)

    @property
    def end(self) -> str | None:
        """How it ended: the kind of the reason, None while that is not known."""
        if self.is_last and self.address.ended is not None:
            return self.address.ended
        if self.reason is not None:
            return self.reason
        if self.failed is not None:
            return "failed"
        if not self.is_last and self.address.kind.has_hooks:
            return "killed"  # else it would have said how
        return None

    @property
    def is_abnormal(self) -> bool:
        return self.end in {"failed", "killed"}

    def note(self, reason: ExitReason) -> None:
        """It ended for this reason."""
        self.errors = [(type(error).__name__, _culprit(error)) for error in _leaves(reason.error)]


@dataclass(eq=False)
class Address:
    """One actor, as long as it is the same to the outside."""

    index: int
    tree: Tree
    parent: Life | None
    is_supervised: bool
    ref: ActorRef[Any] | None = None
    lives: list[Life] = field(default_factory=list)
    is_spawned: bool = False
    ended: str | None = None
    may_stop: bool = False
    """Whether somebody asked for its end."""
    busy: object = None
    """The life that is inside a hook or handler."""
    last_from: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"n{self.index}"

    @property
    def kind(self) -> Kind:
        return self.tree.kind if isinstance(self.tree, Node) else Kind.SYNC

    @property
    def life(self) -> Life:
        return self.lives[-1]

    @property
    def is_alive(self) -> bool:
        return self.is_spawned and self.ended is None


class World:
    """The system, on a clock that stands still, and the record. Implements `swactor.abc.Observer`."""

    def __init__(self, make: Callable[["World", Address], Actor[Any]]) -> None:
        self._make = make
        self.clock = ManualClock(settle_limit_s=60.0)
        self.system = ActorSystem(clock=self.clock, loop=self.clock.loop)
        self.system.attach(self)
        self.addresses: list[Address] = []
        self.messages: list[Message] = []
        self.links: dict[tuple[Life, Life], bool] = {}
        """Which are held; False once one was taken back, which may have been too late."""
        self.names: dict[str, Address] = {}
        self.groups: dict[str, dict[int, None]] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.dead_publications = 0
        self.is_over = False
        self.bodies: list[weakref.ref[object]] = []
        """All instances of actors there ever were."""
        self.violations: list[str] = []

    def violated(self, what: str) -> None:
        self.violations.append(what)

    # -- addresses ----------------------------------------------------------------------------------------

    def new_address(
        self, tree: Tree, parent: Life | None = None, *, is_supervised: bool = False
    ) -> Address | None:
        """Return a fresh address, unless there are enough."""
        if len(self.addresses) >= ADDRESSES_MAX:
            return None
        address = Address(len(self.addresses), tree, parent, is_supervised)
        self.addresses.append(address)
        if parent is not None:
            parent.children.append(address)
        return address

    def new_life(self, address: Address) -> Life:
        life = Life(address, len(address.lives))
        address.lives.append(life)
        return life

    def pick(self, place: int) -> Address | None:
        """Return the address that a script means by ``place``: mostly one that lives."""
        known = [address for address in self.addresses if address.ref is not None]
        living = [address for address in known if address.ended is None]
        among = living if living and place < PLACES_LIVING else known
        return among[place % len(among)] if among else None

    def at(self, path: str) -> Address:
        return self.addresses[index_of(path)]

    # -- moments ------------------------------------------------------------------------------------------

    def observe(self, event: Event) -> None:
        match event:
            case ActorSpawned():
                address = self.at(event.actor)
                if address.is_spawned:
                    self.violated(f"{event.actor} was spawned twice")
                address.is_spawned = True
            case ActorStopped():
                self._stopped(event)
            case ActorFailed():
                life = self.at(event.actor).life
                life.failed = event.error_type
            case ActorRestarted():
                self._nobody_lives_below(self.at(event.actor), "was restarted")
            case ActorStuck():
                address = self.at(event.actor)
                address.busy = None
                address.life.is_stuck = True
                address.life.reason = "killed"

    def _stopped(self, event: ActorStopped) -> None:
        address = self.at(event.actor)
        if not address.is_alive:
            self.violated(f"{event.actor} stopped, and was not alive")
        self._nobody_lives_below(address, "stopped")
        address.ended = event.reason
        for names in [name for name, holder in self.names.items() if holder is address]:
            del self.names[names]
        for group in self.groups.values():
            group.pop(address.index, None)
        if event.reason == "stopped" and not address.may_stop and address.parent is not None:
            self._newest_first(address)

    def _nobody_lives_below(self, address: Address, what: str) -> None:
        for life in address.lives:
            for child in life.children:
                if child.is_alive:
                    self.violated(f"{address.name} {what} while its child {child.name} lives")

    def _newest_first(self, address: Address) -> None:
        """Its parent stopped it; a supervisor may have done so in order to restart it with others."""
        parent = address.parent
        if parent is None:
            return
        tree = parent.address.tree
        if address.is_supervised and isinstance(tree, Supervision) and tree.strategy is not ONE_FOR_ONE:
            return
        for sibling in parent.children[parent.children.index(address) + 1 :]:
            is_down = sibling.is_supervised and sibling.life.is_over  # it only is not let go yet
            if sibling.is_alive and not is_down:
                self.violated(f"{address.name} was stopped before its newer sibling {sibling.name}")

    # -- messages -----------------------------------------------------------------------------------------

    def new_message(self, sender: str, how: str, then: Script) -> Message:
        message = Message(len(self.messages), sender, how, then)
        self.messages.append(message)
        return message

    def tell(self, sender: str, action: Tell) -> None:
        address = self.pick(action.to)
        if address is not None and address.ref is not None:
            message = self.new_message(sender, "tell", action.then)
            try:
                address.ref.tell(message)
            except MailboxFullError:
                return
            message.accepted = 1

    def publish(self, sender: str, action: Publish) -> None:
        message = self.new_message(sender, "publication", action.then)
        members = self.system.members(action.group)
        taken = self.system.publish(action.group, message)
        message.accepted = taken
        self.dead_publications += len(members) - taken

    async def send(self, action: Send) -> None:
        address = self.pick(action.to)
        if address is not None and address.ref is not None:
            message = self.new_message("", "send", action.then)
            await address.ref.send(message)
            message.accepted = 1

    async def ask(self, sender: str, action: Ask) -> None:
        address = self.pick(action.to)
        if address is None or address.ref is None:
            return
        message = self.new_message(sender, "ask", action.then)
        message.outcome = "cancelled"
        try:
            answer = await address.ref.ask(message, timeout_s=action.timeout_s)
            message.outcome = "answered"
            if answer != message.number:
                self.violated(f"{message} was answered {answer!r}")
            if len(message.handled_by) != 1:
                self.violated(f"{message} was answered, and handled by {message.handled_by}")
        except (ActorDeadError, AskTimeoutError, AskCircleError, MailboxFullError, BoomError) as error:
            message.outcome = type(error).__name__
            if message.handled_by and isinstance(error, AskCircleError | MailboxFullError):
                self.violated(f"{message} was refused, and handled")

    def handled(self, life: Life, message: Message) -> None:
        """``life`` has begun to handle ``message``."""
        address = life.address
        if address.index in message.handled_by:
            self.violated(f"{message} was handled twice by {address.name}")
        message.handled_by.append(address.index)
        if message.life not in {None, life}:
            self.violated(f"{message} was handled by another life than that which set it")
        if message.sender:
            if address.last_from.get(message.sender, -1) >= message.number:
                self.violated(f"{message} was handled by {address.name} after a later one")
            address.last_from[message.sender] = message.number

    # -- ties ---------------------------------------------------------------------------------------------

    def linked(self, life: Life, other: Address) -> None:
        self.links[life, other.life] = True

    def unlinked(self, life: Life, other: Address) -> None:
        for one, two in self.links:
            if (one is life and two.address is other) or (two is life and one.address is other):
                self.links[one, two] = False

    def monitored(self, life: Life, other: Address) -> None:
        watching = life.watching.setdefault(other.index, Watching())
        if other.ended is None:
            watching.due = watching.allowed = 1
        else:
            watching.due += 1
            watching.allowed += 1

    def demonitored(self, life: Life, other: Address) -> None:
        watching = life.watching.setdefault(other.index, Watching())
        watching.due = 0
        if other.ended is None:
            watching.allowed = 0

    def heard_down(self, life: Life, down: Down) -> None:
        other = self.at(down.ref.actor_id.path)
        watching = life.watching.setdefault(other.index, Watching())
        if other.ended is None:
            self.violated(f"{life.sender} is told of the end of {other.name}, which lives")
        if not watching.allowed:
            self.violated(f"{life.sender} is told of the end of {other.name} once too often")
        watching.due = max(0, watching.due - 1)
        watching.allowed -= 1
        if down.reason.kind.value != other.ended:
            self.violated(f"{life.sender} is told {down.reason.kind} of {other.name}: {other.ended}")
        other.life.note(down.reason)

    def joined(self, life: Life, group: str) -> None:
        self.groups.setdefault(group, {})[life.address.index] = None

    def left(self, life: Life, group: str) -> None:
        self.groups.setdefault(group, {}).pop(life.address.index, None)

    # -- what the world outside does ----------------------------------------------------------------------

    def perform(self, action: object) -> None:
        """Do it now; what waits goes on in a task of its own."""
        match action:
            case Tell():
                self.tell("outside", action)
            case Publish():
                self.publish("outside", action)
            case Send():
                self.background(self.send(action))
            case Ask():
                self.background(self.ask("outside", action))
            case Spawn():
                self.background(self.spawn(action.tree))
            case Stop():
                self.background(self.stop(action))
            case Register():
                self.register(action)
            case _:
                raise TypeError(action)

    def background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(coroutine))

    async def spawn(self, tree: Tree) -> None:
        address = self.new_address(tree)
        if address is None:
            return
        name = address.name
        policy = policy_of(tree)
        try:
            ref: ActorRef[Any] = await self.system.spawn(self._make(self, address), name=name, mailbox=policy)
            address.ref = ref
        except SystemStoppingError:
            if not self.is_over:
                self.violated("spawn was refused though nobody asked for the end")
        except (BoomError, ActorDeadError, ExceptionGroup):
            if address.is_spawned and not address.life.is_over:
                self.violated(f"{name} lives, and spawn said that it failed")

    def child_spec(self, address: Address) -> ChildSpec:
        return ChildSpec(
            address.name,
            lambda: self._make(self, address),
            restart=address.tree.restart,
            mailbox=policy_of(address.tree),
        )

    async def adopt(self, supervisor: Address, tree: Tree) -> None:
        """Ask a supervisor for one more child."""
        address = self.new_address(tree, is_supervised=True)
        if address is None or supervisor.ref is None:
            return

        def first_or_next() -> Actor[Any]:
            if address.parent is None:
                address.parent = supervisor.life
                supervisor.life.children.append(address)
            return self._make(self, address)

        spec = replace(self.child_spec(address), factory=first_or_next)
        try:
            address.ref = await supervisor.ref.ask(StartChild(spec))
        except (ActorDeadError, AskTimeoutError, MailboxFullError, SystemStoppingError, BoomError):
            return  # nobody knows its address unless it has begun to speak

    async def stop(self, action: Stop) -> None:
        address = self.pick(action.to)
        if address is None or address.ref is None:
            return
        address.may_stop = True
        await self.system.stop_actor(address.ref, grace_s=action.grace_s, drain=action.drain)
        if address.ended is None:
            self.violated(f"{address.name} was stopped, and has not ended")

    def register(self, action: Register) -> None:
        address = self.pick(action.to)
        if address is None or address.ref is None:
            return
        holder = self.names.get(action.name)
        try:
            self.system.register(action.name, address.ref)
        except ActorDeadError:
            if address.ended is None:
                self.violated(f"{address.name} was said to be dead")
        except NameTakenError:
            if holder is None or holder is address:
                self.violated(f"{action.name} was said to be taken")
        else:
            if address.ended is not None or holder not in {None, address}:
                self.violated(f"{action.name} was given to the dead, or to two")
            self.names[action.name] = address

    async def shut_down(self) -> None:
        self.is_over = True
        await self.system.shutdown()


def policy_of(tree: Tree) -> MailboxPolicy:
    return MailboxPolicy(capacity=tree.capacity) if isinstance(tree, Node) else MailboxPolicy()


def _leaves(error: BaseException | None) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    elif error is not None:
        yield error


def _culprit(error: BaseException) -> int | None:
    """The index of the address that the error names."""
    match error:
        case ChildFailedError():
            return index_of(error.child.path)
        case LinkedActorFailedError():
            return index_of(error.actor.path)
    return None


def index_of(path: str) -> int:
    return int(path.rpartition("/n")[2])
