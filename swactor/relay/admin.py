"""What an administrator may do to a running relay over HTTP, for drills.

Owns: the routes below ``/admin``, each behind the admin token; without one configured they do not exist.
Not here: the actions themselves (see ``server``).

``POST /admin/sessions/{session_id}/close`` ends one session; the client may come back at once.
``POST /admin/pairs/{source}/{destination}/drop`` and ``.../restore``: drop one direction between two node
ids, or forward it again. Both tunnels stay up.
"""

from typing import Protocol

from aiohttp import web

from swactor import parse_node_id
from swactor.relay.protocol import authorized


class AdminActions(Protocol):
    """What the routes call; the relay server."""

    def close_session(self, session_id: int) -> bool:
        """End one session; False when there is none with this number."""
        ...

    def drop_pair(self, source: bytes, destination: bytes) -> None:
        """Drop every frame from one key to the other."""
        ...

    def restore_pair(self, source: bytes, destination: bytes) -> None:
        """Forward from one key to the other again."""
        ...


def admin_routes(actions: AdminActions, token: str) -> list[web.RouteDef]:
    """Return the routes of ``/admin``; each answers 401 without ``token``."""

    async def close_session(request: web.Request) -> web.Response:
        _require(request, token)
        found = actions.close_session(int(request.match_info["session_id"]))
        return web.Response(status=204 if found else 404)

    async def drop_pair(request: web.Request) -> web.Response:
        _require(request, token)
        actions.drop_pair(_key(request, "source"), _key(request, "destination"))
        return web.Response(status=204)

    async def restore_pair(request: web.Request) -> web.Response:
        _require(request, token)
        actions.restore_pair(_key(request, "source"), _key(request, "destination"))
        return web.Response(status=204)

    pair = "/admin/pairs/{source}/{destination}"
    return [
        web.post(r"/admin/sessions/{session_id:\d{1,12}}/close", close_session),
        web.post(f"{pair}/drop", drop_pair),
        web.post(f"{pair}/restore", restore_pair),
    ]


def _require(request: web.Request, token: str) -> None:
    if not authorized(request.headers.get("Authorization", ""), token):
        raise web.HTTPUnauthorized


def _key(request: web.Request, name: str) -> bytes:
    try:
        return bytes.fromhex(parse_node_id(request.match_info[name]))
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{name}: {error}") from error
