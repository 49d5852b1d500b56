"""What a relay answers over plain HTTP: probes of endpoints, and its report to whoever may read it.

Owns: the routes beside ``/relay`` and ``/admin``, and that a connection's deadline rests
while its request is answered. Not here: the report itself (see ``report``).
"""

import re
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from aiohttp import web

from swactor.addresses import is_loopback
from swactor.relay._metrics import CONTENT_TYPE, metrics_text
from swactor.relay._tap import Tap
from swactor.relay.protocol import authorized
from swactor.relay.report import RelayReport

# What endpoints send; nothing else is sent back in a header.
_CHALLENGE = re.compile(r"[A-Za-z0-9._-]{1,64}")


class ReportSource(Protocol):
    """What the routes ask; the relay server."""

    def report(self) -> RelayReport:
        """Return the report as of now."""
        ...

    def is_leaving(self) -> bool:
        """Whether new sessions are refused as the relay drains or stops."""
        ...


def public_routes(source: ReportSource, *, read_token: str | None) -> list[web.RouteDef]:
    """Return the routes; ``/sessions`` and ``/metrics`` want the token, or loopback when there is none."""

    async def healthz(_request: web.Request) -> web.Response:
        leaving = source.is_leaving()
        return web.json_response({"status": "stopping" if leaving else "ok"}, status=503 if leaving else 200)

    async def sessions(request: web.Request) -> web.Response:
        _check_reader(request, read_token)
        return web.Response(body=msgspec.json.encode(source.report()), content_type="application/json")

    async def metrics(request: web.Request) -> web.Response:
        _check_reader(request, read_token)
        return web.Response(body=metrics_text(source.report()), headers={"Content-Type": CONTENT_TYPE})

    return [
        web.get("/ping", _ping),
        web.get("/generate_204", _generate_204),
        web.get("/healthz", healthz),
        web.get("/sessions", sessions),
        web.get("/metrics", metrics),
    ]


@web.middleware
async def within_deadline(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Stop the clock of the connection while its request is answered."""
    transport = request.transport
    if transport is None:
        return await handler(request)
    tap = Tap.of(transport)
    tap.request_came()
    try:
        return await handler(request)
    finally:
        if not tap.lost.is_set():
            tap.await_request()


async def _ping(_request: web.Request) -> web.Response:
    # A client measures its latency to each relay by this and takes no home relay without an answer.
    return web.Response(text="ok", headers={"Access-Control-Allow-Origin": "*"})


async def _generate_204(request: web.Request) -> web.Response:
    challenge = request.headers.get("X-Iroh-Challenge", "")
    headers = {"X-Iroh-Response": f"response {challenge}"} if _CHALLENGE.fullmatch(challenge) else {}
    return web.Response(status=204, headers=headers)


def _check_reader(request: web.Request, token: str | None) -> None:
    if token is None and not is_loopback(request.remote or ""):
        raise web.HTTPForbidden(text="from this machine only, or with a read token")
    if token is not None and not authorized(request.headers.get("Authorization", ""), token):
        raise web.HTTPUnauthorized
