"""A collector on a TCP port, from start to stop.

Owns: the listening socket and the parts behind it. Not here: paths and statuses (``routes``), settings
(``config``), the process around it (``swactor_diag.cli``).
"""

from types import TracebackType
from typing import Self

from aiohttp import web

from swactor import SystemClock
from swactor.abc import Clock
from swactor_diag.collector.config import CollectorConfig, ConfigError, load_token
from swactor_diag.collector.ingest import Ingest
from swactor_diag.collector.routes import Routes
from swactor_diag.collector.storage import LocalStorage

_SHUTDOWN_S = 5.0
_LINGERING_S = 1.0  # how long a refused body is still read, so that its sender sees the answer


class CollectorServer:
    """Serves inside ``async with``; afterwards the port is free and everything accepted is on disk."""

    def __init__(self, config: CollectorConfig, *, clock: Clock | None = None) -> None:
        """Prepare, without touching the network.

        Raises:
            ConfigError: see `load_token`.
        """
        self._config = config
        self._token = load_token(config)
        self._clock = clock if clock is not None else SystemClock()
        self.ingest = Ingest(LocalStorage(config.root, fsync=config.fsync))
        self._runner: web.AppRunner | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """The address to post to, with the real port."""
        return self._url

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            ConfigError: the folder cannot be made, or the address cannot be listened on.
        """
        try:
            self._config.root.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise ConfigError(f"cannot use the folder {self._config.root}: {exc.strerror or exc}") from exc
        routes = Routes(self.ingest, config=self._config, clock=self._clock, token=self._token)
        runner = web.AppRunner(
            routes.application(),
            access_log=None,
            auto_decompress=False,
            lingering_time=_LINGERING_S,
            shutdown_timeout=_SHUTDOWN_S,
        )
        await runner.setup()
        site = web.TCPSite(runner, self._config.host, self._config.port)
        try:
            await site.start()
        except OSError as exc:
            await runner.cleanup()
            address = f"{self._config.host}:{self._config.port}"
            raise ConfigError(f"cannot listen on {address}: {exc.strerror or exc}") from exc
        self._runner = runner
        host, port = runner.addresses[0][:2]
        self._url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop listening; requests under way have five seconds to end."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
