"""What may happen to a tree of actors, as values that hypothesis draws, shrinks and prints.

An actor performs the script that a message carries; the world outside performs the same actions. Addresses
are numbers: the n-th that is known by then, modulo how many there are.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from hypothesis import strategies as st

from swactor import MailboxPolicy, RestartKind, Strategy

GROUPS = ("red", "blue")
NAMES = ("door", "window")


class Kind(Enum):
    """How the hooks of an actor are written."""

    SYNC = "def, with hooks"
    ASYNC = "async def, with hooks"
    BARE_SYNC = "def, no hooks"
    BARE_ASYNC = "async def, no hooks"
    MIXED = "def, with async hooks"

    @property
    def has_hooks(self) -> bool:
        return self not in {Kind.BARE_SYNC, Kind.BARE_ASYNC}


@dataclass(frozen=True)
class Tell:
    to: int
    then: "Script" = ()


@dataclass(frozen=True)
class Ask:
    """From outside or an asynchronous handler; nothing elsewhere."""

    to: int
    timeout_s: float
    then: "Script" = ()


@dataclass(frozen=True)
class Send:
    """`ActorRef.send`, which waits for room; nobody waits for it here."""

    to: int
    then: "Script" = ()


@dataclass(frozen=True)
class Publish:
    group: str
    then: "Script" = ()


@dataclass(frozen=True)
class Later:
    delay_s: float
    key: str
    then: "Script" = ()


@dataclass(frozen=True)
class Crash:
    pass


@dataclass(frozen=True)
class Complete:
    pass


@dataclass(frozen=True)
class Defer:
    """Take over the reply; a later `Answer` sends it, if one comes."""


@dataclass(frozen=True)
class Answer:
    pass


@dataclass(frozen=True)
class Pause:
    """Wait, in virtual time; nothing in a synchronous handler. A deaf one ignores its cancellation."""

    seconds: float
    is_deaf: bool = False


@dataclass(frozen=True)
class Tie:
    """What one actor does to its relation with another: link, unlink, monitor or demonitor."""

    how: str
    to: int


@dataclass(frozen=True)
class Member:
    group: str
    joins: bool


@dataclass(frozen=True)
class Register:
    name: str
    to: int


@dataclass(frozen=True)
class Stop:
    """From outside: `ActorSystem.stop_actor`."""

    to: int
    grace_s: float
    drain: bool


@dataclass(frozen=True)
class StopChild:
    which: int
    grace_s: float


@dataclass(frozen=True)
class Spawn:
    """Start a child; a supervisor may start it as one that it supervises."""

    tree: "Tree"
    supervised: bool = False


@dataclass(frozen=True)
class Node:
    kind: Kind
    capacity: int = MailboxPolicy().capacity
    starts_with: "Script" = ()
    stops_with: "Script" = ()
    restart: RestartKind = RestartKind.PERMANENT
    """If it is supervised."""
    made_max: int = 9
    """How often its factory succeeds."""


@dataclass(frozen=True)
class Supervision:
    strategy: Strategy
    restarts_max: int
    first_s: float
    children: "tuple[Tree, ...]" = field(default=())
    restart: RestartKind = RestartKind.PERMANENT


Tree: TypeAlias = Node | Supervision
Action: TypeAlias = (
    Tell
    | Ask
    | Send
    | Publish
    | Later
    | Crash
    | Complete
    | Defer
    | Answer
    | Pause
    | Tie
    | Member
    | Register
    | Stop
    | StopChild
    | Spawn
)
Script: TypeAlias = tuple[Action, ...]

# -- drawing ----------------------------------------------------------------------------------------------

places = st.integers(0, 40)
delays = st.sampled_from([0.0, 0.5, 1.0, 7.0])
graces = st.sampled_from([0.0, 0.5, 5.0])
pauses = st.builds(Pause, st.sampled_from([0.0, 0.5, 3.0, 60.0]), st.sampled_from([False, False, True]))
ties = st.builds(Tie, st.sampled_from(["link", "monitor", "link", "monitor", "unlink", "demonitor"]), places)
members = st.builds(Member, st.sampled_from(GROUPS), st.booleans())
names = st.builds(Register, st.sampled_from(NAMES), places)
stops = st.builds(Stop, places, graces, st.booleans())
restarts = st.sampled_from(RestartKind)


def _messages(then: st.SearchStrategy[Script]) -> st.SearchStrategy[Action]:
    return st.one_of(
        st.builds(Tell, places, then),
        st.builds(Ask, places, st.sampled_from([0.5, 5.0]), then),
        st.builds(Send, places, then),
        st.builds(Publish, st.sampled_from(GROUPS), then),
    )


def _scripts(depth: int) -> st.SearchStrategy[Script]:
    """What a handler does; a message in it carries a shorter script."""
    own = st.one_of(
        st.builds(Crash),
        ties,
        pauses,
        st.builds(Complete),
        st.sampled_from([Defer(), Answer()]),
        members,
        st.builds(StopChild, places, graces),
    )
    if depth == 0:
        return st.lists(own, max_size=2).map(tuple)
    then = _scripts(depth - 1)
    acting = st.one_of(
        own,
        own,
        _messages(then),
        st.builds(Later, delays, st.sampled_from("ab"), then),
        st.builds(Spawn, trees(depth - 1), st.booleans()),
    )
    return st.lists(acting, max_size=4).map(tuple)


def nodes(depth: int) -> st.SearchStrategy[Tree]:
    """A single actor; what it does in its hooks is rarely much."""
    hooks = st.one_of(st.just(()), st.just(()), _scripts(depth))
    capacity = st.sampled_from([MailboxPolicy().capacity, MailboxPolicy().capacity, 1, 2])
    return st.builds(
        Node, st.sampled_from(Kind), capacity, hooks, hooks, restarts, st.sampled_from([9, 9, 1])
    )


def trees(depth: int) -> st.SearchStrategy[Tree]:
    """An actor, or a supervisor with children that may be supervisors themselves."""
    if depth == 0:
        return nodes(0)
    children = st.lists(trees(depth - 1), max_size=3).map(tuple)
    supervision = st.builds(
        Supervision,
        st.sampled_from(Strategy),
        st.integers(0, 4),
        st.sampled_from([0.0, 0.5]),
        children,
        restarts,
    )
    return st.one_of(nodes(depth - 1), supervision)


from_outside = st.one_of(
    _messages(_scripts(2)),
    _messages(_scripts(2)),
    st.builds(Spawn, trees(2)),
    names,
    stops,
)
