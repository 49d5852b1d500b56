"""The process of ``swactor relay``: a relay server and, when a collector is named, a node of its run.

Owns: the order of start and stop. The relay closes its sessions while diagnostics still run, so that every
close is in the bundle. Not here: options (``relay``), relaying (``swactor.relay``).
"""

import os
from collections import deque
from pathlib import Path

import anyio
import msgspec

from swactor import ActorSystem, Event, ThreadWatchdog
from swactor.relay import RelayConfig, RelayConfigError
from swactor.relay.server import RelayServer
from swactor_diag.cli._service import StopSignal, announce, read_token
from swactor_diag.cli.console import CommandError, Exit, say
from swactor_diag.delivery.sink import SinkAddressError
from swactor_diag.identity import identity_from_env, new_boot_id
from swactor_diag.introspect.relay_server import RelayServerIntrospector
from swactor_diag.ports import production_ports
from swactor_diag.schema.ids import IdError, check_id
from swactor_diag.supervisor import Diagnostics

_EARLY_EVENTS_MAX = 1000


class RelayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    host: str
    port: int
    advertised_url: str | None
    token_file: Path | None
    admin_token_file: Path | None
    collector_url: str | None
    collector_token_file: Path | None
    run_id: str | None


def serve(options: RelayOptions) -> None:
    """Relay until asked to stop.

    Raises:
        CommandError: the settings are wrong, or the address cannot be listened on.
    """
    try:
        if options.run_id is not None:
            check_id(options.run_id, what="run id")
        config = RelayConfig(
            host=options.host,
            port=options.port,
            advertised_url=options.advertised_url,
            token=read_token(options.token_file),
            admin_token=read_token(options.admin_token_file),
        )
        anyio.run(_serve, config, options)
    except (RelayConfigError, IdError, SinkAddressError) as exc:
        raise CommandError(str(exc), status=Exit.WRONG_INPUT) from exc


async def _serve(config: RelayConfig, options: RelayOptions) -> None:
    with StopSignal() as stop:
        async with ActorSystem(watchdog=ThreadWatchdog(), name="relay") as system:
            early = _EarlyEvents(system)
            relay = RelayServer(config, emit=early.emit, clock=system.clock, random=system.random)
            await _listen(relay)
            try:
                diagnostics = await _report(system, relay, options=options)
                early.release()
                notes = "" if diagnostics is None else f", reports to {options.collector_url}"
                announce("relay", relay.url, notes=notes)
                why = await stop.wait()
            finally:
                # The sessions end here; leaving the system afterwards ships what their ends said.
                await relay.stop("asked to stop")
            if diagnostics is not None:
                await diagnostics.snapshot()
    say(f"relay stopped ({why})")


async def _listen(relay: RelayServer) -> None:
    try:
        await relay.start()
    except OSError as exc:
        where = f"{relay.config.host}:{relay.config.port}"
        message = f"cannot listen on {where}: {exc.strerror or exc}"
        raise CommandError(message, status=Exit.WRONG_INPUT) from exc


async def _report(system: ActorSystem, relay: RelayServer, *, options: RelayOptions) -> Diagnostics | None:
    """Make this process a node of its run, if there is a collector."""
    if options.collector_url is None or not options.collector_url.strip():
        return None
    environ = {**os.environ, "SWACTOR_DIAG_COLLECTOR_URL": options.collector_url}
    ports = production_ports(environ, pid=os.getpid(), token=read_token(options.collector_token_file))
    identity = identity_from_env(
        environ,
        relay.node_id,
        clock=system.clock,
        boot_id=new_boot_id(system.random.stream("boot")),
        role="relay",
        run_id=options.run_id,
        machine=ports.machine,
        home_relay_url=relay.url,
    )
    surface = RelayServerIntrospector(lambda: relay.book.report(relay.now()))
    return await Diagnostics.from_ports(system, identity, ports=ports, introspectors=(surface,))


class _EarlyEvents:
    """Keeps what happens before anybody listens: the relay has to run before its node id is known."""

    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._kept: deque[Event] | None = deque(maxlen=_EARLY_EVENTS_MAX)

    def emit(self, event: Event) -> None:
        if self._kept is None:
            self._system.emit(event)
        else:
            self._kept.append(event)

    def release(self) -> None:
        kept, self._kept = self._kept or (), None
        for event in kept:
            self._system.emit(event)
