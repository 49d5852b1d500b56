"""Monitors across nodes: who here watches actors elsewhere, and who elsewhere watches actors here.

Owns: `Watches` (outgoing) and `Watched` (incoming), and that `Down` comes exactly once.
Not here: the frames' way (``routing``). A watch is told again whenever the link comes up, so it survives a
lost link: an actor that ended meanwhile is reported then.
"""

from collections.abc import Callable
from typing import Any

from swactor import ActorDeadError, ActorRef, Down, ExitKind, ExitReason, NodeId
from swactor.cluster.remote import RemoteRef, RemoteWatcher
from swactor.cluster.wire import ActorAddress, DownBody, FrameKind, encode_body, encode_frame

Post = Callable[[NodeId, bytes], bool]
"""Queues a frame for a peer."""


class Watches:
    """Local actors that watch remote ones: one watch a remote actor, however many watch it."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._next_id = 0
        self._by_id: dict[int, tuple[RemoteRef[Any], list[ActorRef[Any]]]] = {}
        self._ids: dict[ActorAddress, int] = {}

    def add(self, ref: RemoteRef[Any], watcher: ActorRef[Any]) -> None:
        """Tell ``watcher`` when ``ref`` ends."""
        watch_id = self._ids.get(ref.address)
        if watch_id is None:
            self._next_id += 1
            watch_id = self._ids[ref.address] = self._next_id
            self._by_id[watch_id] = (ref, [])
            self._tell(watch_id, ref)
        watchers = self._by_id[watch_id][1]
        if watcher not in watchers:
            watchers.append(watcher)

    def remove(self, ref: RemoteRef[Any], watcher: ActorRef[Any]) -> None:
        """Do not tell ``watcher``; does nothing when it does not watch."""
        watch_id = self._ids.get(ref.address)
        if watch_id is None:
            return
        watchers = self._by_id[watch_id][1]
        if watcher in watchers:
            watchers.remove(watcher)
        if not watchers:
            self._forget(watch_id)
            self._post(ref.node_id, encode_frame(FrameKind.UNWATCH, watch_id))

    def link_up(self, peer: NodeId) -> None:
        """Tell ``peer`` again what is watched there: it may have missed or forgotten it."""
        for watch_id, (ref, _) in list(self._by_id.items()):
            if ref.node_id == peer:
                self._tell(watch_id, ref)

    def node_down(self, peer: NodeId, boot: int) -> None:
        """Life ``boot`` of ``peer``, and every older one, is declared dead."""
        for watch_id, (ref, _) in list(self._by_id.items()):
            if ref.node_id == peer and ref.address.boot <= boot:
                self._fire(watch_id, ExitReason(ExitKind.NODE_DOWN))

    def down(self, peer: NodeId, watch_id: int, body: DownBody) -> None:
        """``peer`` reports that a watched actor has ended."""
        watch = self._by_id.get(watch_id)
        if watch is None or watch[0].node_id != peer:
            return
        kind = next((kind for kind in ExitKind if kind.value == body.kind), ExitKind.STOPPED)
        error = ActorDeadError(watch[0].actor_id, body.text) if body.text else None
        self._fire(watch_id, ExitReason(kind, error=error))

    def _tell(self, watch_id: int, ref: RemoteRef[Any]) -> None:
        self._post(ref.node_id, encode_frame(FrameKind.WATCH, watch_id, encode_body(ref.address)))

    def _fire(self, watch_id: int, reason: ExitReason) -> None:
        ref, watchers = self._by_id[watch_id]
        self._forget(watch_id)
        for watcher in watchers:
            watcher.notify_down(Down(ref, reason))

    def _forget(self, watch_id: int) -> None:
        ref, _ = self._by_id.pop(watch_id)
        del self._ids[ref.address]


class Watched:
    """Local actors that are watched from other nodes."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._watchers: dict[tuple[NodeId, int], RemoteWatcher] = {}

    def add(self, watcher: RemoteWatcher, watched: ActorRef[Any]) -> None:
        """Listen for the end of ``watched`` on behalf of a peer; a repeated watch changes nothing."""
        key = (watcher.peer, watcher.watch_id)
        if key not in self._watchers:
            self._watchers[key] = watcher
            watched.add_watcher(watcher)

    def remove(self, peer: NodeId, watch_id: int) -> None:
        """The peer does not care any more."""
        watcher = self._watchers.pop((peer, watch_id), None)
        if watcher is not None:
            watcher.cancel()

    def link_lost(self, peer: NodeId) -> None:
        """Forget what ``peer`` watches; it tells again when it is back."""
        for key in [key for key in self._watchers if key[0] == peer]:
            self._watchers.pop(key).cancel()

    def ended(self, watcher: RemoteWatcher, down: Down) -> None:
        """A watched actor has ended: tell the peer."""
        if self._watchers.pop((watcher.peer, watcher.watch_id), None) is not None:
            error = down.reason.error
            text = "" if error is None else f"{type(error).__name__}: {error}"[:2000]
            self.report(watcher.peer, watcher.watch_id, DownBody(down.reason.kind.value, text))

    def report(self, peer: NodeId, watch_id: int, body: DownBody) -> None:
        """Report an end to a peer."""
        self._post(peer, encode_frame(FrameKind.DOWN, watch_id, encode_body(body)))
