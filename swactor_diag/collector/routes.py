"""The HTTP face of a collector: paths, headers, statuses.

Owns: translating requests into records and answers into JSON, and an error in JSON for whatever goes wrong:
``{"error": text, "code": word}``. Not here: what is accepted (``ingest``), body limits (``body_limits``),
sockets (``server``).
"""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Iterator

import msgspec
from aiohttp import web

from swactor.abc import Clock
from swactor_diag.collector.body_limits import BodyCollector, BodyError
from swactor_diag.collector.bundle import Bundle, BundleError
from swactor_diag.collector.canonical import store_bundle
from swactor_diag.collector.config import CollectorConfig
from swactor_diag.collector.ingest import Ingest, RefusedError, unnamed_batch_id
from swactor_diag.collector.storage import StorageError, StorageFullError
from swactor_diag.schema.ids import IdError, check_id
from swactor_diag.schema.submission import Answer, Outgoing, RecordKind

_LOG = logging.getLogger(__name__)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_RETRY_AFTER_S = "30"
_SEND_MS_DIGITS_MAX = 15


class Routes:
    """The handlers of one collector."""

    def __init__(self, ingest: Ingest, *, config: CollectorConfig, clock: Clock, token: bytes | None) -> None:
        self._ingest = ingest
        self._config = config
        self._clock = clock
        self._token = token
        self._set_aside: dict[str, int] = {}

    def application(self) -> web.Application:
        """Return the application to serve."""
        # The size limit is enforced while reading (see `BodyCollector`), also for compressed bodies.
        app = web.Application(middlewares=[self._errors_in_json, self._access], client_max_size=0)
        app.router.add_post("/diag/{kind}", self._submit)
        app.router.add_get("/diag/bundle/{run_id}", self._bundle, allow_head=False)
        app.router.add_get("/diag/runs", self._runs, allow_head=False)
        app.router.add_get("/healthz", self._health, allow_head=False)
        return app

    @web.middleware
    async def _errors_in_json(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except (web.HTTPException, BodyError, RefusedError, StorageError) as exc:
            return _answer_to(exc)
        except Exception:  # noqa: BLE001 - one failed request must not look like a failed collector
            _LOG.exception("request failed: %s %s", request.method, request.rel_url.raw_path)
            return _error(500, code="internal", message="the collector failed to handle this request")

    @web.middleware
    async def _access(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if self._token is not None and request.path.startswith("/diag"):
            given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(given, b"Bearer " + self._token):
                challenge = {"WWW-Authenticate": "Bearer"}
                return _error(401, code="unauthorized", message="a valid token is needed", headers=challenge)
        return await handler(request)

    async def _submit(self, request: web.Request) -> web.StreamResponse:
        recv_ms = self._clock.wall_ms()
        try:
            kind = RecordKind(request.match_info["kind"])
        except ValueError:
            return _error(404, code="unknown_kind", message="kind is boot, events, snapshot or finalize")
        body = await self._read_body(request)
        record = Outgoing(
            kind=kind,
            run_id=_header(request, "x-run-id"),
            node_id=_header(request, "x-node-id"),
            batch_id=request.headers.get("x-batch-id") or unnamed_batch_id(body),
            body=body,
        )
        answer = self._ingest.accept(record, recv_ms, send_ms=_send_ms(request))
        path = await self._finish(record.run_id) if kind is RecordKind.FINALIZE else None
        return _json(_encode_answer(answer, send_ms=max(self._clock.wall_ms(), recv_ms), bundle_path=path))

    async def _read_body(self, request: web.Request) -> bytes:
        collector = BodyCollector(
            bytes_max=self._config.body_bytes_max,
            encoding=request.headers.get("Content-Encoding", ""),
            length=request.content_length,
        )
        deadline_s = self._config.body_deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                async for chunk in request.content.iter_any():
                    collector.add(chunk)
        except TimeoutError as exc:
            message = f"the body did not arrive within {deadline_s:g} s"
            raise BodyError(408, code="body_timeout", message=message) from exc
        except (web.RequestPayloadError, ConnectionError) as exc:
            raise BodyError(400, code="body_incomplete", message="the body ended early") from exc
        return collector.finish()

    async def _finish(self, run_id: str) -> str:
        settled = asyncio.Event()
        self._ingest.when_settled(run_id, settled.set)
        try:
            async with asyncio.timeout(self._config.finalize_wait_s):
                await settled.wait()
        except TimeoutError:
            # Bounded on purpose: a node that is gone must not keep the run from its bundle.
            pass
        return await asyncio.to_thread(store_bundle, self._ingest.staging, run_id)

    async def _bundle(self, request: web.Request) -> web.StreamResponse:
        try:
            run_id = check_id(request.match_info["run_id"], what="run id")
        except IdError as exc:
            raise RefusedError("invalid_id", str(exc)) from exc
        try:
            bundle = await asyncio.to_thread(Bundle, self._ingest.staging, run_id)
        except BundleError as exc:
            return _error(404, code="unknown_run", message=str(exc))
        self._set_aside[run_id] = len(bundle.manifest.set_aside or ())
        name = f"{run_id}.tar.gz"
        headers = {
            "Content-Type": "application/gzip",
            "Content-Disposition": f'attachment; filename="{name}"',
        }
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        try:
            await _send_pieces(response, bundle.stream())
        except (StorageError, ValueError) as exc:
            # The status is sent already: a broken connection is all that can tell the reader.
            _LOG.warning("bundle of %s broken off: %s", run_id, exc)
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _runs(self, _request: web.Request) -> web.StreamResponse:
        return _json(msgspec.json.encode(self._ingest.runs()))

    async def _health(self, _request: web.Request) -> web.StreamResponse:
        aside = sum(self._set_aside.values())
        status = "degraded" if aside else "ok"
        return _json(msgspec.json.encode({"status": status, "files_set_aside": aside}))


async def _send_pieces(response: web.StreamResponse, pieces: Iterator[bytes]) -> None:
    """Send the pieces as they are made; a reader that goes away ends it without ado."""
    while True:
        piece = await asyncio.to_thread(next, pieces, b"")
        if not piece:
            break
        try:
            await response.write(piece)
        except ConnectionError:
            return
    await response.write_eof()


def _header(request: web.Request, name: str) -> str:
    value = request.headers.get(name, "")
    if not value:
        raise RefusedError("header_missing", f"the header {name} is needed")
    return value


def _send_ms(request: web.Request) -> int:
    text = request.headers.get("x-node-send-ms", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _SEND_MS_DIGITS_MAX else 0


def _encode_answer(answer: Answer, *, send_ms: int, bundle_path: str | None) -> bytes:
    clock = msgspec.structs.replace(answer.clock, collector_send_ms=send_ms)
    reply: dict[str, object] = {"clock": clock}
    if answer.snapshot_now:
        reply["hints"] = {"snapshot_now": True}
    if bundle_path is not None:
        reply["body"] = {"bundle_path": bundle_path}
    return msgspec.json.encode(reply)


def _answer_to(exc: web.HTTPException | BodyError | RefusedError | StorageError) -> web.Response:
    match exc:
        case BodyError():
            answer = _error(exc.status, code=exc.code, message=str(exc))
            # What is left of the body will not be read, so the connection is of no further use.
            answer.force_close()
            return answer
        case RefusedError():
            return _error(exc.status, code=exc.code, message=str(exc))
        case StorageFullError():
            full = {"Retry-After": _RETRY_AFTER_S}
            return _error(507, code="storage_full", message=str(exc), headers=full)
        case StorageError():
            return _error(500, code="storage_failed", message=str(exc))
        case _:
            allow = exc.headers.get("Allow")
            headers = {} if allow is None else {"Allow": allow}
            code = {404: "not_found", 405: "method_not_allowed"}.get(exc.status, "http_error")
            return _error(exc.status, code=code, message=exc.reason, headers=headers)


def _json(body: bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def _error(status: int, *, code: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return _json(msgspec.json.encode({"error": message, "code": code}), status=status, headers=headers)
