"""What an administrator may do to a running relay over HTTP, for drills and for maintenance.

Owns: the routes below ``/admin``, each behind the admin token; without one configured they do not exist.
Not here: the actions themselves (see ``server``).

All are ``POST``. Without anything to say the answer is 204; 400, 404 and 409 say what was wrong.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from aiohttp import web

from swactor import parse_node_id
from swactor.relay.protocol import authorized
from swactor.relay.report import RelayReport
from swactor.relay.sessions import TooManyDrillsError

DRAIN_S_MAX = 3600.0
BYTES_PER_S_MAX = 1_000_000_000_000

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AdminActions(Protocol):
    """What the routes call; the relay server. Keys are public keys, 32 bytes."""

    def close_session(self, session_id: int) -> bool:
        """End one session; False when there is none with this number."""
        ...

    def drop_pair(self, source: bytes, destination: bytes) -> None:
        """Drop every frame from one key to the other."""
        ...

    def restore_pair(self, source: bytes, destination: bytes) -> None:
        """Forward from one key to the other again."""
        ...

    def refuse_id(self, peer: bytes) -> None:
        """End the sessions of a key and deny it new ones."""
        ...

    def admit_id(self, peer: bytes) -> None:
        """Undo `refuse_id`."""
        ...

    def pause_id(self, peer: bytes) -> None:
        """Read nothing from the sessions of a key."""
        ...

    def resume_id(self, peer: bytes) -> None:
        """Undo `pause_id`."""
        ...

    def limit_id(self, peer: bytes, bytes_per_s: int) -> None:
        """Read no more than so much a second from each session of a key."""
        ...

    def unlimit_id(self, peer: bytes) -> None:
        """Undo `limit_id`."""
        ...

    async def drain(self, over_s: float) -> RelayReport:
        """Refuse new sessions and close the open ones evenly over so long; return the report after it."""
        ...


def admin_routes(actions: AdminActions, token: str) -> list[web.RouteDef]:
    """Return the routes of ``/admin``; each answers 401 without ``token``."""

    async def close_session(request: web.Request) -> web.Response:
        found = actions.close_session(int(request.match_info["session_id"]))
        return web.Response(status=204 if found else 404)

    async def limit(request: web.Request) -> web.Response:
        bytes_per_s = _number(request, "bytes_per_s", least=1, most=BYTES_PER_S_MAX)
        actions.limit_id(_key(request, "id"), int(bytes_per_s))
        return web.Response(status=204)

    async def drain(request: web.Request) -> web.Response:
        report = await actions.drain(_number(request, "over_s", least=0, most=DRAIN_S_MAX, absent=10.0))
        return web.Response(body=msgspec.json.encode(report), content_type="application/json")

    handlers: list[tuple[str, _Handler]] = [
        (r"sessions/{session_id:\d{1,12}}/close", close_session),
        ("pairs/{source}/{destination}/drop", _on_pair(actions.drop_pair)),
        ("pairs/{source}/{destination}/restore", _on_pair(actions.restore_pair)),
        ("ids/{id}/refuse", _on_id(actions.refuse_id)),
        ("ids/{id}/admit", _on_id(actions.admit_id)),
        ("ids/{id}/pause", _on_id(actions.pause_id)),
        ("ids/{id}/resume", _on_id(actions.resume_id)),
        ("ids/{id}/limit", limit),
        ("ids/{id}/unlimit", _on_id(actions.unlimit_id)),
        ("drain", drain),
    ]
    return [web.post(f"/admin/{path}", _guarded(handler, token)) for path, handler in handlers]


def _guarded(handler: _Handler, token: str) -> _Handler:
    async def guarded(request: web.Request) -> web.StreamResponse:
        if not authorized(request.headers.get("Authorization", ""), token):
            raise web.HTTPUnauthorized
        try:
            return await handler(request)
        except TooManyDrillsError as error:
            raise web.HTTPConflict(text=str(error)) from error

    return guarded


def _on_id(action: Callable[[bytes], None]) -> _Handler:
    async def handler(request: web.Request) -> web.Response:
        action(_key(request, "id"))
        return web.Response(status=204)

    return handler


def _on_pair(action: Callable[[bytes, bytes], None]) -> _Handler:
    async def handler(request: web.Request) -> web.Response:
        action(_key(request, "source"), _key(request, "destination"))
        return web.Response(status=204)

    return handler


def _key(request: web.Request, name: str) -> bytes:
    try:
        return bytes.fromhex(parse_node_id(request.match_info[name]))
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{name}: {error}") from error


def _number(
    request: web.Request, name: str, *, least: float, most: float, absent: float | None = None
) -> float:
    text = request.query.get(name, "" if absent is None else str(absent))
    try:
        value = float(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise web.HTTPBadRequest(text=f"{name}: a number from {least:g} to {most:g}, not {text[:40]!r}")
    return value
