"""The HTTP face of a collector: headers, statuses, and who may ask for what.

Owns: translating requests into records and answers into JSON, and an error in JSON for whatever goes wrong:
``{"error": text, "code": word}``. Not here: which paths there are (``endpoints``), what is accepted
(``ingest``), bodies (``bodies``), bundles (``downloads``), sockets (``server``).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import msgspec
from aiohttp import web

from swactor_diag.collector.access import Verdict
from swactor_diag.collector.body_limits import BodyError
from swactor_diag.collector.bundle import BundleError
from swactor_diag.collector.connections import Answering, send
from swactor_diag.collector.downloads import RangeError
from swactor_diag.collector.endpoints import ENDPOINTS, SUBMIT, Endpoint, ErrorAnswer, HealthAnswer, Name
from swactor_diag.collector.ingest import RefusedError, unnamed_batch_id
from swactor_diag.collector.metrics import CONTENT_TYPE
from swactor_diag.collector.openapi import describe
from swactor_diag.collector.parts import Parts
from swactor_diag.collector.retention import PINS_FOLDER
from swactor_diag.collector.run_facts import RunFacts
from swactor_diag.collector.storage import StorageError, StorageFullError
from swactor_diag.schema.ids import IdError, check_id
from swactor_diag.schema.submission import (
    Answer,
    FinalizeAnswer,
    HintsAnswer,
    Outgoing,
    RecordKind,
    SubmitAnswer,
)

_LOG = logging.getLogger(__name__)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_RETRY_AFTER_S = 5
_RETRY_WHEN_FULL_S = 30
_SEND_MS_DIGITS_MAX = 15


class Routes:
    """The handlers of one collector."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._storage_said = "ok"
        self._handlers: Mapping[Name, _Handler] = {
            Name.SUBMIT: self._unknown_kind,
            Name.BUNDLE: self._bundle,
            Name.RUNS: self._runs,
            Name.RUN: self._run,
            Name.STREAM: self._stream,
            Name.TRIMS: self._trims,
            Name.PIN: self._pin,
            Name.UNPIN: self._unpin,
            Name.HEALTH: self._health,
            Name.METRICS: self._metrics,
            Name.OPENAPI: self._openapi,
        }

    def application(self) -> web.Application:
        """Return the application to serve."""
        # The size limit is enforced while reading (see ``bodies``), also for compressed bodies.
        app = web.Application(middlewares=[self._errors_in_json], client_max_size=0)
        for kind in RecordKind:  # a path without a variable is found more quickly
            handler = self._guarded(SUBMIT, partial(self._submit, kind))
            app.router.add_route(SUBMIT.method, f"/diag/{kind}", handler)
        for endpoint in ENDPOINTS:
            handler = self._guarded(endpoint, self._handlers[endpoint.name])
            app.router.add_route(endpoint.method, endpoint.path, handler)
        return app

    def _guarded(self, endpoint: Endpoint, handler: _Handler) -> _Handler:
        parts = self._parts

        async def guarded(request: web.Request) -> web.StreamResponse:
            if endpoint.right is not None:
                verdict = parts.access.judge(request.headers.get("Authorization", ""), endpoint.right)
                if verdict is not Verdict.ALLOWED:
                    return _denied(verdict, endpoint)
            began_ns = parts.clock.monotonic_ns()
            try:
                with Answering(request):
                    answer = await handler(request)
            except _EXPECTED as exc:
                if isinstance(exc, StorageError):
                    self._storage_said = str(exc)
                answer = _answer_to(exc)
            seconds = (parts.clock.monotonic_ns() - began_ns) / 1e9
            parts.metrics.answered(endpoint.name.value, answer.status, seconds=seconds)
            return answer

        return guarded

    @web.middleware
    async def _errors_in_json(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as exc:
            return _answer_to(exc)
        except Exception:  # noqa: BLE001 - one failed request must not look like a failed collector
            _LOG.exception("request failed: %s %s", request.method, request.rel_url.raw_path)
            return _error(500, code="internal", message="the collector failed to handle this request")

    async def _unknown_kind(self, _request: web.Request) -> web.StreamResponse:
        return _error(404, code="unknown_kind", message="kind is boot, events, snapshot or finalize")

    async def _submit(self, kind: RecordKind, request: web.Request) -> web.StreamResponse:
        parts, recv_ms = self._parts, self._parts.clock.wall_ms()
        run_id, node_id = (_header(request, f"x-{what}-id") for what in ("run", "node"))
        body = await parts.bodies.receive(request)
        try:
            record = Outgoing(
                kind=kind,
                run_id=run_id,
                node_id=node_id,
                batch_id=request.headers.get("x-batch-id") or unnamed_batch_id(body),
                body=body,
            )
            answer = await self._accept(record, recv_ms, send_ms=_send_ms(request))
            path = await self._finish(run_id) if kind is RecordKind.FINALIZE else None
        finally:
            parts.bodies.release(body)
        sent_ms = max(parts.clock.wall_ms(), recv_ms)
        return _json(_encode_answer(answer, send_ms=sent_ms, bundle_path=path))

    async def _accept(self, record: Outgoing, recv_ms: int, *, send_ms: int) -> Answer:
        parts = self._parts
        parts.charge(record)
        await parts.know(record.run_id)
        parts.trimmer.reserve(len(record.body))
        answer = parts.ingest.accept(record, recv_ms, send_ms=send_ms)
        if parts.storage.flushes:
            await parts.commit.flushed()
        self._storage_said = "ok"
        parts.metrics.stored(record.kind.value, len(record.body))
        parts.feeds.publish(record, recv_ms=recv_ms)
        return answer

    async def _finish(self, run_id: str) -> str | None:
        settled = asyncio.Event()
        self._parts.ingest.when_settled(run_id, settled.set)
        try:
            async with asyncio.timeout(self._parts.config.finalize_wait_s):
                await settled.wait()
        except TimeoutError:
            # Bounded on purpose: a node that is gone must not keep the run from its bundle.
            pass
        try:
            return await asyncio.to_thread(self._parts.canonical.finish, run_id)
        except (StorageError, BundleError) as exc:
            # The record is stored, and a bundle can be had at any time: sending it again would help nobody.
            _LOG.warning("the bundle of %s is not kept: %s", run_id, exc)
            return None

    async def _bundle(self, request: web.Request) -> web.StreamResponse:
        return await self._parts.downloads.respond(request, _run_id(request))

    async def _runs(self, _request: web.Request) -> web.StreamResponse:
        run_ids = await asyncio.to_thread(self._parts.ingest.staging.run_ids)
        counts = []
        for run_id in run_ids:
            await self._parts.know(run_id)
            counts.append(self._parts.ingest.counts(run_id))
        return _json(msgspec.json.encode(counts))

    async def _run(self, request: web.Request) -> web.StreamResponse:
        run_id, staging = _run_id(request), self._parts.ingest.staging
        facts = await asyncio.to_thread(lambda: RunFacts(staging, staging.list(run_id), verify=False))
        if not facts.nodes:
            raise BundleError(f"nothing is stored for run {run_id}")
        return _json(msgspec.json.encode(facts.manifest()))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        run_id = _run_id(request)
        with self._parts.feeds.watching(run_id) as feed:
            if feed is None:
                return _error(503, code="busy", message="too many watchers", retry_after_s=_RETRY_AFTER_S)
            headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
            response = web.StreamResponse(headers=headers)
            await response.prepare(request)
            try:
                while message := await feed.next():
                    await send(request, response.write(message), within_s=self._parts.config.idle_s)
                await send(request, response.write_eof(), within_s=self._parts.config.idle_s)
            except ConnectionError:
                pass  # the watcher has gone, which is how every watching ends
            return response

    async def _trims(self, _request: web.Request) -> web.StreamResponse:
        return _json(msgspec.json.encode(await asyncio.to_thread(self._parts.trimmer.trims)))

    async def _pin(self, request: web.Request) -> web.StreamResponse:
        run_id = _run_id(request)
        if not await asyncio.to_thread(self._parts.ingest.staging.has_run, run_id):
            raise BundleError(f"nothing is stored for run {run_id}")
        await asyncio.to_thread(self._parts.storage.write, (PINS_FOLDER, run_id), b"")
        return _json(b'{"pinned":true}')

    async def _unpin(self, request: web.Request) -> web.StreamResponse:
        await asyncio.to_thread(self._parts.storage.delete, (PINS_FOLDER, _run_id(request)))
        return _json(b'{"pinned":false}')

    async def _health(self, _request: web.Request) -> web.StreamResponse:
        aside = sum(self._parts.downloads.set_aside.values())
        status = "degraded" if aside or self._storage_said != "ok" else "ok"
        answer = HealthAnswer(status=status, files_set_aside=aside, storage=self._storage_said)
        return _json(msgspec.json.encode(answer))

    async def _metrics(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(body=self._parts.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _openapi(self, _request: web.Request) -> web.StreamResponse:
        return _json(msgspec.json.encode(describe()))


_EXPECTED = (BodyError, RefusedError, StorageError, BundleError, RangeError)


def _header(request: web.Request, name: str) -> str:
    text = request.headers.get(name, "")
    if not text:
        raise RefusedError("header_missing", f"the header {name} is needed")
    return text


def _run_id(request: web.Request) -> str:
    try:
        return check_id(request.match_info["run_id"], what="run id")
    except IdError as exc:
        raise RefusedError("invalid_id", str(exc)) from exc


def _send_ms(request: web.Request) -> int:
    text = request.headers.get("x-node-send-ms", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _SEND_MS_DIGITS_MAX else 0


def _encode_answer(answer: Answer, *, send_ms: int, bundle_path: str | None) -> bytes:
    clock = msgspec.structs.replace(answer.clock, collector_send_ms=send_ms)
    reply = SubmitAnswer(clock=clock)
    if answer.snapshot_now:
        reply = msgspec.structs.replace(reply, hints=HintsAnswer(snapshot_now=True))
    if bundle_path is not None:
        reply = msgspec.structs.replace(reply, body=FinalizeAnswer(bundle_path=bundle_path))
    return msgspec.json.encode(reply)


def _denied(verdict: Verdict, endpoint: Endpoint) -> web.Response:
    if verdict is Verdict.UNKNOWN:
        answer = _error(401, code="unauthorized", message="a valid token is needed")
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer
    right = "" if endpoint.right is None else endpoint.right.value
    return _error(403, code="forbidden", message=f"this token does not allow to {right}")


def _answer_to(exc: Exception) -> web.Response:
    match exc:
        case BodyError():
            answer = _error(exc.status, code=exc.code, message=str(exc), retry_after_s=exc.retry_after_s)
            # What is left of the body will not be read, so the connection is of no further use.
            answer.force_close()
        case RefusedError():
            answer = _error(exc.status, code=exc.code, message=str(exc), retry_after_s=exc.retry_after_s)
        case BundleError():
            answer = _error(404, code="unknown_run", message=str(exc))
        case RangeError():
            answer = _error(416, code="no_such_range", message=str(exc))
            answer.headers["Content-Range"] = f"bytes */{exc.size_bytes}"
        case StorageFullError():
            answer = _error(507, code="storage_full", message=str(exc), retry_after_s=_RETRY_WHEN_FULL_S)
        case web.HTTPException():
            code = {404: "not_found", 405: "method_not_allowed"}.get(exc.status, "http_error")
            answer = _error(exc.status, code=code, message=exc.reason)
            if "Allow" in exc.headers:
                answer.headers["Allow"] = exc.headers["Allow"]
        case _:
            answer = _error(503, code="storage_failed", message=str(exc), retry_after_s=_RETRY_AFTER_S)
    return answer


def _json(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _error(status: int, *, code: str, message: str, retry_after_s: float | None = None) -> web.Response:
    answer = _json(msgspec.json.encode(ErrorAnswer(error=message, code=code)), status=status)
    if retry_after_s is not None:
        answer.headers["Retry-After"] = str(max(1, round(retry_after_s + 0.5)))
    return answer
