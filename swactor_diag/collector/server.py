"""A collector on its ports, from start to stop.

Owns: the listening sockets, TLS, the storage that is used, and the task that keeps it within its limits.
Not here: paths and statuses (``routes``), the parts (``parts``), settings (``config``), the process around it
(``swactor_diag.cli``).
"""

import asyncio
import contextlib
import ssl
from types import TracebackType
from typing import Self

from aiohttp import web

from swactor import SystemClock, SystemRandom
from swactor.abc import Clock
from swactor_diag.collector.config import CollectorConfig, ConfigError
from swactor_diag.collector.connections import HTTP_LOG
from swactor_diag.collector.ingest import Ingest
from swactor_diag.collector.parts import Parts
from swactor_diag.collector.retention import Trim
from swactor_diag.collector.routes import Routes
from swactor_diag.collector.storage import LocalStorage, Storage
from swactor_diag.collector.udp_echo import UdpEcho

_BACKLOG = 1024
_SHUTDOWN_S = 5.0
_TLS_END_S = 86_400.0  # it counts while an answer is still being read; who reads nothing is given up before
_LINGERING_S = 1.0  # how long a refused body is still read, so that its sender sees the answer


class CollectorServer:
    """Serves inside ``async with``; afterwards the port is free and everything accepted is on disk."""

    def __init__(self, config: CollectorConfig, *, clock: Clock | None = None) -> None:
        """Prepare, without touching the network.

        Raises:
            ConfigError: see `load_access`; a storage that cannot be used; TLS files that cannot be read.
        """
        self._config = config
        self._tls = _load_tls(config)
        storage, writer = open_storage(config)
        self._parts = Parts(
            config, storage, clock=clock if clock is not None else SystemClock(), writer=writer
        )
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._echo: UdpEcho | None = None
        self._trimming: asyncio.Task[None] | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """The address to post to, with the real port."""
        return self._url

    @property
    def udp_port(self) -> int | None:
        """The real port of the echo, if there is one."""
        return None if self._echo is None else self._echo.port

    @property
    def ingest(self) -> Ingest:
        """What accepts the records, for a node in the same process."""
        return self._parts.ingest

    async def flushed(self) -> None:
        """Return when everything accepted so far lasts; see `GroupCommit.flushed` for the errors."""
        if self._parts.storage.flushes:
            await self._parts.commit.flushed()

    def trims_due(self) -> list[Trim]:
        """Return which runs retention would remove now; nothing is changed."""
        return self._parts.trimmer.plan()

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            ConfigError: the folder cannot be made, or an address cannot be listened on.
        """
        if self._config.storage is None:
            try:
                self._config.root.mkdir(parents=True, exist_ok=True)
            except OSError as exc:
                raise ConfigError(
                    f"cannot use the folder {self._config.root}: {exc.strerror or exc}"
                ) from exc
        application = Routes(self._parts).application()
        application.on_shutdown.append(self._end_streams)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=HTTP_LOG,
            auto_decompress=False,
            keepalive_timeout=self._config.idle_s,
            lingering_time=_LINGERING_S,
            shutdown_timeout=_SHUTDOWN_S,
        )
        await self._runner.setup()
        try:
            await self._listen(self._runner)
        except OSError as exc:
            await self._stop()
            address = f"{self._config.host}:{self._config.port}"
            raise ConfigError(f"cannot listen on {address}: {exc.strerror or exc}") from exc
        self._trimming = asyncio.create_task(self._parts.trimmer.run(), name="collector trimming")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop listening; requests under way have five seconds to end."""
        await self._stop()

    async def _listen(self, runner: web.AppRunner) -> None:
        config = self._config
        http, connections = runner.server, self._parts.connections
        assert http is not None  # noqa: S101 - the runner was set up
        self._listener = await asyncio.get_running_loop().create_server(
            lambda: connections.guarded(http()),
            config.host,
            config.port,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else config.idle_s,
            ssl_shutdown_timeout=None if self._tls is None else _TLS_END_S,
            backlog=_BACKLOG,
        )
        host, port = self._listener.sockets[0].getsockname()[:2]
        scheme = "http" if self._tls is None else "https"
        self._url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        if config.udp_port is not None:
            self._echo = await UdpEcho.open(config.host, config.udp_port)

    async def _stop(self) -> None:
        if self._trimming is not None:
            self._trimming.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._trimming
            self._trimming = None
        if self._echo is not None:
            self._echo.close()
            self._echo = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._parts.storage.close()

    async def _end_streams(self, _application: web.Application) -> None:
        self._parts.feeds.close()


def open_storage(config: CollectorConfig) -> tuple[Storage, str]:
    """Return the storage that ``config`` names, and the name under which a collector writes to it.

    Raises:
        ConfigError: it cannot be used.
    """
    if config.storage is None:
        return LocalStorage(config.root, fsync=config.fsync), "main"
    from swactor_diag.collector.object_storage import ObjectStorage  # late: an optional library

    # A name of its own, because others write to the same place, and this one did under another name.
    return ObjectStorage(config.storage), SystemRandom().stream("collector").token(6).hex()


def _load_tls(config: CollectorConfig) -> ssl.SSLContext | None:
    if config.tls_cert is None or config.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except (OSError, ssl.SSLError) as exc:
        raise ConfigError(f"cannot use {config.tls_cert} with {config.tls_key} for TLS") from exc
    return context
