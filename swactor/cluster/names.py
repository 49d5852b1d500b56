"""The cluster's name registry as a pure state machine: local changes and gossip in, frames to send out.

Answers: which actor on which node has a name, as far as this node has heard.
Owns: entries, tombstones, the merge rule, what is still to be told, and the comparison of whole tables.
Not here: sending (``registry``), whether the owner is alive (`Cluster.resolve` asks membership).

Merge rule: of two entries with one name the one with the greater `Entry.age` stays, whoever hears what first.
An owner asserts itself: when gossip replaces or resurrects an entry of a former life of this node, it answers
with a younger one. Of two nodes that claim one name the later claim wins everywhere.
"""

import hashlib
from typing import Annotated

import msgspec
from msgspec import Meta

from swactor import NodeId
from swactor.abc import RandomStream
from swactor.cluster.wire import WireError

NAME_LENGTH_MAX = 200
ENTRIES_PER_FRAME_MAX = 64
"""A frame stays below about 32 KiB; the rest of the news waits for the next one."""

_TOLD_TIMES_PER_DOUBLING = 3
_Counter = Annotated[int, Meta(ge=0)]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """``name`` belongs to the actor (``path``, ``serial``) of life ``boot`` of ``owner``.

    A tombstone says that it belonged to it. ``generation`` counts the registrations by that owner.
    """

    name: Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
    owner: Annotated[NodeId, Meta(pattern="^[0-9a-f]{64}$")]
    boot: _Counter
    path: Annotated[str, Meta(max_length=1024)]
    serial: _Counter
    generation: _Counter
    logical_time: _Counter
    is_tombstone: bool = False

    @property
    def age(self) -> tuple[int, NodeId, int, int, bool, str, int]:
        """What decides between two entries of one name; the greater is the younger and stays."""
        return (
            self.logical_time,
            self.owner,
            self.boot,
            self.generation,
            self.is_tombstone,
            self.path,
            self.serial,
        )


class NamesMessage(msgspec.Struct, frozen=True, array_like=True):
    """Body of a NAMES frame: news, and the digest of the sender's whole table when it wants to compare.

    ``is_answer`` ends the exchange: what differs still is sent, but no digest any more.
    """

    entries: Annotated[tuple[Entry, ...], Meta(max_length=ENTRIES_PER_FRAME_MAX)] = ()
    digest: int | None = None
    is_answer: bool = False


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(NamesMessage)


def encode_names(message: NamesMessage) -> bytes:
    """Return the body of a NAMES frame."""
    return _encoder.encode(message)


def decode_names(data: bytes) -> NamesMessage:
    """Return the message of a NAMES frame's body.

    Raises:
        WireError: it is none.
    """
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as exc:
        raise WireError(f"not a names message: {exc}") from exc


class SendNames(msgspec.Struct, frozen=True):
    """Effect: send ``message`` to ``peer``."""

    peer: NodeId
    message: NamesMessage


class Settled(msgspec.Struct, frozen=True):
    """Effect: the entry of a name is a new one; ``replaced`` is what stood there."""

    entry: Entry
    replaced: Entry | None


Effect = SendNames | Settled


class Names:
    """The registry as one node knows it."""

    def __init__(self, me: NodeId, *, boot: int, random: RandomStream) -> None:
        self.me = me
        self.boot = boot
        self.clock = 0
        self.entries: dict[str, Entry] = {}
        self._random = random
        self._mine: dict[str, tuple[str, int]] = {}  # name -> (path, serial) registered here and now
        self._news: dict[str, int] = {}  # name -> how often its entry was told
        self._digest = 0

    # --- local changes ------------------------------------------------------------------------------------

    def register(self, name: str, *, path: str, serial: int) -> list[Effect]:
        """Give ``name`` to an actor of this node, taking it from whoever has it.

        Raises:
            ValueError: ``name`` is empty or longer than `NAME_LENGTH_MAX`.
        """
        if not 1 <= len(name) <= NAME_LENGTH_MAX:
            raise ValueError(f"a name has 1 to {NAME_LENGTH_MAX} characters, not {len(name)}")
        self._mine[name] = (path, serial)
        return [self._assert(name)]

    def withdraw(self, name: str, *, serial: int) -> list[Effect]:
        """The actor ``serial`` of this node does not have ``name`` any more; does nothing if it had not."""
        held = self._mine.get(name)
        if held is None or held[1] != serial:
            return []
        del self._mine[name]
        entry = self.entries[name]
        return [self._assert(name)] if self._is_mine(entry) else []

    def held_by(self, serial: int) -> list[str]:
        """Return the names that actor ``serial`` of this node has registered."""
        return sorted(name for name, (_, holder) in self._mine.items() if holder == serial)

    # --- gossip -------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether anything is still to be told."""
        return bool(self._news)

    def news_for(self, peers: list[NodeId], *, fanout: int, members: int) -> list[Effect]:
        """Return frames that tell the news to up to ``fanout`` of ``peers``, chosen by chance."""
        times_max = _TOLD_TIMES_PER_DOUBLING * max(1, members.bit_length())
        effects: list[Effect] = []
        for peer in self._chosen(peers, fanout):
            entries = self._take_news(times_max)
            if entries:
                effects.append(SendNames(peer, NamesMessage(entries)))
        return effects

    def comparison_for(self, peers: list[NodeId]) -> list[Effect]:
        """Return a frame that asks one of ``peers`` whether its whole table is the same."""
        return [SendNames(peer, NamesMessage((), self._digest)) for peer in self._chosen(peers, 1)]

    def whole_table_for(self, peer: NodeId) -> list[Effect]:
        """Return frames with everything known, for a peer that is new or differs."""
        entries = sorted(self.entries.values(), key=lambda entry: entry.name)
        return [
            SendNames(peer, NamesMessage(tuple(entries[at : at + ENTRIES_PER_FRAME_MAX])))
            for at in range(0, len(entries), ENTRIES_PER_FRAME_MAX)
        ]

    def receive(self, peer: NodeId, message: NamesMessage) -> list[Effect]:
        """Take in what ``peer`` has sent; answer with the whole table if the tables differ."""
        effects: list[Effect] = []
        for entry in message.entries:
            effects.extend(self._merge(entry))
        if message.digest is not None and message.digest != self._digest:
            effects.extend(self.whole_table_for(peer))
            if not message.is_answer:
                effects.append(SendNames(peer, NamesMessage((), self._digest, is_answer=True)))
        return effects

    def begin_life(self, boot: int) -> list[Effect]:
        """This node's life is known as ``boot`` from now on: assert everything registered under it."""
        self.boot = boot
        return [self._assert(name) for name in sorted(self._mine)]

    # --- the table ----------------------------------------------------------------------------------------

    def _merge(self, entry: Entry) -> list[Effect]:
        self.clock = max(self.clock, entry.logical_time)
        known = self.entries.get(entry.name)
        if known is not None and entry.age <= known.age:
            return []
        settled = self._put(entry)
        stale = entry.owner == self.me and entry.boot != self.boot and not entry.is_tombstone
        lost = entry.owner == self.me and entry.name in self._mine
        if stale or lost:
            # a former life of this node speaks: what holds now is what this life has registered
            return [settled, self._assert(entry.name)]
        if entry.owner != self.me and not entry.is_tombstone:
            self._mine.pop(entry.name, None)
        return [settled]

    def _assert(self, name: str) -> Settled:
        """Put this node's own view of ``name`` above everything heard so far."""
        self.clock += 1
        known = self.entries.get(name)
        generation = known.generation if known is not None and self._is_mine(known) else 0
        held = self._mine.get(name)
        if held is not None:
            path, serial = held
            generation += 1
        else:
            path, serial = (known.path, known.serial) if known is not None else ("", 0)
        return self._put(
            Entry(name, self.me, self.boot, path, serial, generation, self.clock, is_tombstone=held is None)
        )

    def _put(self, entry: Entry) -> Settled:
        replaced = self.entries.get(entry.name)
        if replaced is not None:
            self._digest ^= _hash(replaced)
        self._digest ^= _hash(entry)
        self.entries[entry.name] = entry
        self._news[entry.name] = 0
        return Settled(entry, replaced)

    def _is_mine(self, entry: Entry) -> bool:
        return entry.owner == self.me and entry.boot == self.boot

    def _take_news(self, times_max: int) -> tuple[Entry, ...]:
        chosen = sorted(self._news.items(), key=lambda item: item[1])[:ENTRIES_PER_FRAME_MAX]
        for name, times in chosen:
            if times + 1 >= times_max:
                del self._news[name]
            else:
                self._news[name] = times + 1
        return tuple(self.entries[name] for name, _ in chosen)

    def _chosen(self, peers: list[NodeId], count: int) -> list[NodeId]:
        left = list(peers)
        chosen: list[NodeId] = []
        while left and len(chosen) < count:
            chosen.append(left.pop(self._random.below(len(left))))
        return chosen


def _hash(entry: Entry) -> int:
    digest = hashlib.blake2b(_encoder.encode(entry), digest_size=7)
    return int.from_bytes(digest.digest(), "big")
