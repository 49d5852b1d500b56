"""A sink that posts to a collector over HTTP, by httpx, which works on asyncio, uvloop and trio alike.

Owns: paths, headers, what each status means. Not here: connections (``connect``), compression (``packing``),
repeating (``shipper``), the other side (``collector.routes``).
"""

import re
import ssl
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import urlsplit

import anyio
import httpx
import msgspec

from swactor import SystemClock
from swactor.abc import Clock, Loop
from swactor_diag.delivery.connect import NETWORK_ERRORS, ResolvingTransport
from swactor_diag.delivery.packing import Packer
from swactor_diag.delivery.sink import (
    RecordRefusedError,
    SinkAddressError,
    SinkMisconfiguredError,
    SinkUnavailableError,
)
from swactor_diag.introspect import Resolver
from swactor_diag.introspect.sockets import ThreadResolver
from swactor_diag.readable import printable
from swactor_diag.schema.submission import Answer, Outgoing, RecordKind, SubmitAnswer

POST_TIMEOUT_S = 10.0
FINALIZE_TIMEOUT_S = 30.0
"""A collector keeps the answer to a finalize open while the other nodes' last snapshots come in."""
CONNECTION_KEPT_S = 30.0
ANSWER_BYTES_MAX = 64 * 1024
SAID_LENGTH_MAX = 200
"""Of the text of an answer that is none, as it is passed on."""

_FINAL_STATUSES = frozenset({400, 413, 422})
_SETUP_STATUSES = frozenset({*range(300, 400), 401, 403, 404, 405, 415})
"""Redirections are among them: they are not followed, the collector's address must be the right one."""
_UNKNOWN_ENCODING = 415
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")


class HttpSink:
    """Posts to ``<url>/diag/<kind>``. Opens its connections when first used, and again after ``close``."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        token: str | None = None,
        timeout_s: float = POST_TIMEOUT_S,
        resolver: Callable[[Loop], Resolver] = ThreadResolver,
    ) -> None:
        """Take note of where to post to.

        Args:
            url: of the collector, ``http`` or ``https``. The environment's proxies are not used.
            clock: stamps the moment of sending; the machine's own by default.
            token: that the collector wants to see.
            timeout_s: for one post, compression to answer; a finalize has `FINALIZE_TIMEOUT_S`.
            resolver: looks the collector's name up, for each connection again.

        Raises:
            SinkAddressError: ``url`` is no HTTP address.
        """
        if not _can_be_posted_to(url):
            raise SinkAddressError(url)
        self._url = url.rstrip("/")
        self._clock = clock or SystemClock()
        self._token = token
        self._timeout_s = timeout_s
        self._make_resolver = resolver
        self._packer = Packer()
        self._client: httpx.AsyncClient | None = None

    async def post(self, record: Outgoing) -> Answer:
        """Store ``record`` at the collector; see `swactor_diag.delivery.sink.Sink`."""
        limit_s = FINALIZE_TIMEOUT_S if record.kind is RecordKind.FINALIZE else self._timeout_s
        try:
            with anyio.fail_after(limit_s):
                return await self._post(record)
        except TimeoutError as error:
            raise SinkUnavailableError(f"no answer within {limit_s:g} s") from error
        except (httpx.HTTPError, *NETWORK_ERRORS) as error:
            raise SinkUnavailableError(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _post(self, record: Outgoing) -> Answer:
        body, encoding = await self._packer.pack(record.body)
        headers = {
            "x-run-id": record.run_id,
            "x-node-id": record.node_id,
            "x-batch-id": record.batch_id,
            "x-node-send-ms": str(self._clock.wall_ms()),
        }
        if encoding:
            headers["Content-Encoding"] = encoding
        url = f"{self._url}/diag/{record.kind.value}"
        async with self._open_client().stream("POST", url, content=body, headers=headers) as response:
            text = await _read_start(response)
        if response.status_code == _UNKNOWN_ENCODING and self._packer.refused(encoding):
            return await self._post(record)
        asked_s = _asked_wait_s(response.headers, now_s=self._clock.wall_ms() / 1000)
        return _judge(response.status_code, text, retry_after_s=asked_s)

    def _open_client(self) -> httpx.AsyncClient:
        if self._client is None:
            headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token}"
            self._client = httpx.AsyncClient(
                headers=headers,
                timeout=None,  # noqa: S113 - every post has a limit of its own, for all of it
                transport=ResolvingTransport(
                    self._make_resolver, certificates=self._certificates(), kept_s=CONNECTION_KEPT_S
                ),
                trust_env=False,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # keeps none: they pile up
            )
        return self._client

    def _certificates(self) -> ssl.SSLContext | None:
        """The system's certificates; for plain http none, as loading them holds up the event loop."""
        return ssl.create_default_context() if self._url.startswith("https:") else None


def _can_be_posted_to(url: str) -> bool:
    """Whether scheme, host and port allow to try a request; what a bad one raises later is no HTTPError.

    Paths are put behind it, so it has no query and no fragment.
    """
    try:
        httpx.URL(url)
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna"), parts.port
    except (ValueError, httpx.InvalidURL):
        return False
    plain = not any(char in "?#" or char.isspace() for char in url)
    return plain and parts.scheme in {"http", "https"} and bool(host) and port != 0


async def _read_start(response: httpx.Response) -> bytes:
    """Return as much of the answer as an answer of a collector can have."""
    text = b""
    async for piece in response.aiter_raw():
        text += piece
        if len(text) >= ANSWER_BYTES_MAX:
            break
    return text


def _judge(status: int, text: bytes, *, retry_after_s: float | None) -> Answer:
    if 200 <= status < 300:
        return _read_answer(text)
    said = _one_line(text)
    if status in _FINAL_STATUSES:
        raise RecordRefusedError(said, status=status)
    if status in _SETUP_STATUSES:
        raise SinkMisconfiguredError(said, status=status)
    raise SinkUnavailableError(f"{status}: {said}", retry_after_s=retry_after_s)


def _one_line(text: bytes) -> str:
    """What the other side said, as it may stand on a terminal: short, and with no control codes."""
    words = " ".join(text[:SAID_LENGTH_MAX].decode("utf-8", "replace").split())
    return printable(words)[:SAID_LENGTH_MAX]


def _asked_wait_s(headers: httpx.Headers, *, now_s: float) -> float | None:
    """What ``Retry-After`` asks for (RFC 9110, 10.2.3): seconds, or a date by the sender's clock."""
    asked = headers.get("Retry-After", "").strip()
    if _SECONDS.fullmatch(asked):
        return float(asked)
    until_s, sent_s = _unix_s(asked), _unix_s(headers.get("Date", ""))
    return None if until_s is None else max(0.0, until_s - (now_s if sent_s is None else sent_s))


def _unix_s(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
        # "-0000" gives a moment without a zone; an HTTP date is always in UTC.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _read_answer(text: bytes) -> Answer:
    try:
        reply = msgspec.json.decode(text, type=SubmitAnswer)
    except msgspec.MsgspecError as error:
        raise SinkMisconfiguredError(f"this is no collector: {text[:80]!r}", status=200) from error
    return Answer(
        clock=reply.clock, snapshot_now=reply.hints.snapshot_now, bundle_path=reply.body.bundle_path
    )
