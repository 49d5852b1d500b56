"""A reference to an actor of another node: looks like any `ActorRef`.

Owns: `RemoteRef` and what an ask across nodes can raise besides the usual.
Not here: how a message gets there (``routing``).
"""

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from swactor import ActorId, ActorRef, Down, NodeId, SwactorError
from swactor.cluster.wire import ActorAddress

if TYPE_CHECKING:
    from swactor.cluster.routing import Router

M_contra = TypeVar("M_contra", contravariant=True)


class LinkLostError(SwactorError):
    """The link was lost during an ask, which may have been handled: asking again may do it twice."""

    def __init__(self, actor: ActorAddress, why: str) -> None:
        super().__init__(f"lost the link to {actor.node} while asking {actor.path}: {why}")
        self.actor, self.why = actor, why


class RemoteHandlerError(SwactorError):
    """The handler at the other node raised; ``error`` is the name of the exception there."""

    def __init__(self, actor: ActorAddress, error: str, text: str) -> None:
        super().__init__(f"{actor.path} at {actor.node} raised {error}: {text}")
        self.actor, self.error, self.text = actor, error, text


class RemoteRef(ActorRef[M_contra]):
    """An actor of one life of another node.

    Messages are encoded at once, so that what cannot cross raises here (`UnknownMessageTypeError`,
    `MessageTooLargeError`). They arrive in order and at most once; after a lost link some may be missing.
    When the outbox of the node is full, ``tell`` raises `MailboxFullError`.
    """

    __slots__ = ("_router", "address")

    def __init__(self, address: ActorAddress, router: "Router") -> None:
        self.address = address
        self._router = router

    @property
    def actor_id(self) -> ActorId:
        """Which actor this is, within the other node's system."""
        return ActorId(self.address.path, self.address.serial)

    @property
    def node_id(self) -> NodeId:
        """The node it lives on."""
        return self.address.node

    def tell(self, message: M_contra) -> None:
        """Queue ``message`` for the other node."""
        self._router.tell(self.address, message)

    async def ask(self, message: Any, *, timeout_s: float = 5.0) -> Any:
        """Send ``message`` and return the reply, a declared message or a plain value.

        Raises:
            ActorDeadError: the actor had ended, ended before it replied, or its node was declared dead.
            AskTimeoutError: no reply within ``timeout_s`` seconds; a late one is dropped.
            LinkLostError: the link was lost; whether the message was handled is not known.
            RemoteHandlerError: the handler raised, or the mailbox there was full.
            MailboxFullError: the outbox of the node is full.
            UnknownMessageTypeError: the message is of no type that can cross, or holds what cannot.
            MessageTooLargeError: it does not fit into a frame.
            ValueError: ``timeout_s`` is no number.
        """
        return await self._router.ask(self.address, message, timeout_s=timeout_s)

    async def send(self, message: M_contra) -> None:
        """Queue ``message`` as soon as the outbox of the node has room."""
        await self._router.send(self.address, message)

    def add_watcher(self, watcher: ActorRef[Any]) -> None:
        """Tell ``watcher`` `Down` when the actor ends, or when its node is declared dead (NODE_DOWN)."""
        self._router.watches.add(self, watcher)

    def remove_watcher(self, watcher: ActorRef[Any]) -> None:
        """Do not tell ``watcher`` after all."""
        self._router.watches.remove(self, watcher)

    def notify_down(self, down: Down) -> None:
        """A remote actor watches through its own node, never through its reference here."""
        _cannot(self, down)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteRef) and other.address == self.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __repr__(self) -> str:
        return f"<ref {self.address.path}#{self.address.serial} at {self.address.node[:8]}>"


class RemoteWatcher(ActorRef[Any]):
    """Stands for the watchers of one local actor at one peer: hears of its end and passes that on."""

    __slots__ = ("_router", "_watched", "peer", "watch_id")

    def __init__(self, router: "Router", watched: ActorRef[Any], peer: NodeId, watch_id: int) -> None:
        self._router = router
        self._watched = watched
        self.peer = peer
        self.watch_id = watch_id

    @property
    def actor_id(self) -> ActorId:
        """The watched actor's own id: a watcher has none here."""
        return self._watched.actor_id

    def notify_down(self, down: Down) -> None:
        """Tell the peer."""
        self._router.watched.ended(self, down)

    def cancel(self) -> None:
        """Do not listen any more."""
        self._watched.remove_watcher(self)

    def tell(self, message: Any) -> None:
        """Never called: a watcher only hears of an end."""
        _cannot(self, message)

    async def ask(self, message: Any, *, timeout_s: float = 5.0) -> Any:
        """Never called: a watcher only hears of an end."""
        _cannot(self, (message, timeout_s))

    async def send(self, message: Any) -> None:
        """Never called: a watcher only hears of an end."""
        _cannot(self, message)

    def add_watcher(self, watcher: ActorRef[Any]) -> None:
        """Never called: a watcher only hears of an end."""
        _cannot(self, watcher)

    def remove_watcher(self, watcher: ActorRef[Any]) -> None:
        """Never called: a watcher only hears of an end."""
        _cannot(self, watcher)


def _cannot(ref: ActorRef[Any], what: object) -> NoReturn:
    raise TypeError(f"{type(ref).__name__} cannot take {type(what).__name__}")
