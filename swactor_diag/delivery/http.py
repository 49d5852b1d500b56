"""A sink that posts to a collector over HTTP, by aiohttp, so on asyncio (and uvloop) only.

Owns: paths, headers, compression, what each status means. Not here: repeating (``shipper``), the other side
(``collector.routes``).
"""

import asyncio
import gzip

import aiohttp
import msgspec
from msgspec import Struct

from swactor.abc import Clock
from swactor_diag.delivery.sink import (
    RecordRefusedError,
    SinkError,
    SinkMisconfiguredError,
    SinkUnavailableError,
)
from swactor_diag.schema.submission import Answer, ClockStamp, Outgoing, RecordKind

POST_TIMEOUT_S = 10.0
FINALIZE_TIMEOUT_S = 30.0
"""A collector keeps the answer to a finalize open while the other nodes' last snapshots come in."""
GZIP_ABOVE_BYTES = 1024
ANSWER_BYTES_MAX = 64 * 1024

_FINAL_STATUSES = frozenset({400, 413, 422})
_SETUP_STATUSES = frozenset({401, 403, 404})


class WrongBackendError(SinkError):
    """HTTP delivery needs an asyncio event loop; give the node another sink, or run it on asyncio."""


class _Hints(Struct, frozen=True):
    snapshot_now: bool = False


class _Body(Struct, frozen=True):
    bundle_path: str | None = None


class _Reply(Struct, frozen=True):
    clock: ClockStamp
    hints: _Hints = _Hints()
    body: _Body = _Body()


class HttpSink:
    """Posts to ``<url>/diag/<kind>``. Opens its connections when first used, and again after ``close``."""

    def __init__(
        self, url: str, *, clock: Clock, token: str | None = None, timeout_s: float = POST_TIMEOUT_S
    ) -> None:
        self._url = url.rstrip("/")
        self._clock = clock
        self._token = token
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def post(self, record: Outgoing) -> Answer:
        """Store ``record`` at the collector; see `swactor_diag.delivery.sink.Sink`."""
        body, headers = _packed(record)
        headers |= {
            "x-run-id": record.run_id,
            "x-node-id": record.node_id,
            "x-batch-id": record.batch_id,
            "x-node-send-ms": str(self._clock.wall_ms()),
        }
        limit_s = FINALIZE_TIMEOUT_S if record.kind is RecordKind.FINALIZE else self._timeout_s
        try:
            async with self._open_session().post(
                f"{self._url}/diag/{record.kind.value}",
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=limit_s),
                allow_redirects=False,
            ) as response:
                text = await response.content.read(ANSWER_BYTES_MAX)
                return _judge(response.status, text, retry_after=response.headers.get("Retry-After"))
        except TimeoutError as error:
            raise SinkUnavailableError(f"no answer within {limit_s:g} s") from error
        except aiohttp.ClientError as error:
            raise SinkUnavailableError(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        try:
            asyncio.get_running_loop()
        except RuntimeError as error:
            raise WrongBackendError("HTTP delivery needs an asyncio event loop") from error
        if self._session is None:
            headers = {"Content-Type": "application/json"}
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token}"
            self._session = aiohttp.ClientSession(headers=headers)
        return self._session


def _packed(record: Outgoing) -> tuple[bytes, dict[str, str]]:
    if len(record.body) <= GZIP_ABOVE_BYTES:
        return record.body, {}
    return gzip.compress(record.body, compresslevel=1, mtime=0), {"Content-Encoding": "gzip"}


def _judge(status: int, text: bytes, *, retry_after: str | None) -> Answer:
    if 200 <= status < 300:
        return _read_answer(text)
    said = text[:200].decode("utf-8", "replace")
    if status in _FINAL_STATUSES:
        raise RecordRefusedError(said, status=status)
    if status in _SETUP_STATUSES:
        raise SinkMisconfiguredError(said, status=status)
    asked_s = float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
    raise SinkUnavailableError(f"{status}: {said}", retry_after_s=asked_s)


def _read_answer(text: bytes) -> Answer:
    try:
        reply = msgspec.json.decode(text, type=_Reply)
    except msgspec.MsgspecError as error:
        raise SinkMisconfiguredError(f"this is no collector: {text[:80]!r}", status=200) from error
    return Answer(
        clock=reply.clock, snapshot_now=reply.hints.snapshot_now, bundle_path=reply.body.bundle_path
    )
