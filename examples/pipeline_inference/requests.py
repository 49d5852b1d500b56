"""The requests of an orchestrator: which wait, which are under way, and what has come of each.

Owns: their limits and their order. Pure: nothing here tells anybody anything.
"""

import codecs
from collections.abc import Iterator

from examples.pipeline_inference.messages import Generate, Response
from swactor import Reply

UNDER_WAY_MAX = 8
"""Requests that the stages work on at the same time; each of them holds a cache in every worker."""
WAITING_MAX = 64
"""Requests that wait for one of these to end; one more is refused at once."""


class Ticket:
    """One request: who asked, and what has come so far."""

    def __init__(self, asked: Generate, reply: Reply[Response], *, began_ns: int) -> None:
        self.asked = asked
        self.reply = reply
        self.began_ns = began_ns
        self.tokens: list[int] = []
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def request_id(self) -> str:
        """Its name."""
        return self.asked.request_id

    @property
    def is_complete(self) -> bool:
        """Whether it has as many tokens as were asked for."""
        return len(self.tokens) >= self.asked.tokens_max

    def take(self, token: int, piece: bytes) -> str:
        """Add a token; return the text that it completes, which may be none yet."""
        self.tokens.append(token)
        text = self._decoder.decode(piece)
        self.text += text
        return text

    def response(self) -> Response:
        """Return the answer as it is, what is left of an incomplete character included."""
        text = self.text + self._decoder.decode(b"", final=True)
        return Response(self.request_id, text, tuple(self.tokens))


class Requests:
    """All that have not ended, oldest first."""

    def __init__(self, *, under_way_max: int = UNDER_WAY_MAX, waiting_max: int = WAITING_MAX) -> None:
        self._under_way_max, self._waiting_max = under_way_max, waiting_max
        self._waiting: dict[str, Ticket] = {}
        self._under_way: dict[str, Ticket] = {}

    def __contains__(self, request_id: str) -> bool:
        """Whether a request of this name has not ended."""
        return request_id in self._waiting or request_id in self._under_way

    def __len__(self) -> int:
        """How many there are."""
        return len(self._waiting) + len(self._under_way)

    @property
    def is_full(self) -> bool:
        """Whether one more would be too many."""
        return len(self._waiting) >= self._waiting_max

    def add(self, ticket: Ticket) -> None:
        """Let a new request wait."""
        self._waiting[ticket.request_id] = ticket

    def start_next(self) -> Ticket | None:
        """Move the oldest one that waits to those under way, if there is room; return it."""
        if not self._waiting or len(self._under_way) >= self._under_way_max:
            return None
        request_id = next(iter(self._waiting))
        ticket = self._under_way[request_id] = self._waiting.pop(request_id)
        return ticket

    def under_way(self, request_id: str) -> Ticket | None:
        """Return the request if the stages work on it."""
        return self._under_way.get(request_id)

    def waiting(self, request_id: str) -> Ticket | None:
        """Return the request if it waits."""
        return self._waiting.get(request_id)

    def all_under_way(self) -> tuple[Ticket, ...]:
        """Return those that the stages work on."""
        return tuple(self._under_way.values())

    def all(self) -> Iterator[Ticket]:
        """Return all, those under way first."""
        return iter((*self._under_way.values(), *self._waiting.values()))

    def remove(self, request_id: str) -> None:
        """Let go of a request; nothing if it has ended already."""
        self._under_way.pop(request_id, None)
        self._waiting.pop(request_id, None)
