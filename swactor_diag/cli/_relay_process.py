"""The process of ``swactor relay``: a relay server and, when a collector is named, a node of its run.

Owns: the order of start and stop, on uvloop when that is installed. The relay closes its sessions while
diagnostics still run, so that every close is in the bundle.
Not here: options (``relay``), settings (``_relay_settings``), relaying (``swactor.relay``).
"""

import importlib.util
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import anyio

from swactor import ActorSystem, Event, ThreadWatchdog
from swactor.relay import RelayConfig, RelayConfigError
from swactor.relay.journal import JournalError
from swactor.relay.server import RelayServer
from swactor_diag.cli._relay_settings import Reporting, read_settings
from swactor_diag.cli._service import StopSignal, announce, read_token
from swactor_diag.cli.console import CommandError, Exit, say
from swactor_diag.delivery.sink import SinkAddressError
from swactor_diag.identity import StageError, identity_from_env, new_boot_id
from swactor_diag.introspect.relay_server import RelayServerIntrospector
from swactor_diag.ports import production_ports
from swactor_diag.recorder import EVENTS_WAITING_MAX
from swactor_diag.schema.ids import IdError, check_id
from swactor_diag.supervisor import Diagnostics

_EARLY_EVENTS_MAX = EVENTS_WAITING_MAX
"""As many as the recorder itself keeps; all sessions that a former process left open may be among them."""


def serve(given: Mapping[str, object], file: Path | None) -> None:
    """Relay until asked to stop, by the settings ``given`` and those in ``file``.

    Raises:
        CommandError: the settings are wrong, or the address or the journal cannot be used.
    """
    try:
        config, reporting = read_settings(given, file)
        if reporting.run_id is not None:
            check_id(reporting.run_id, what="run id")
        has_uvloop = importlib.util.find_spec("uvloop") is not None
        anyio.run(_serve, config, reporting, backend_options={"use_uvloop": has_uvloop})
    except (RelayConfigError, JournalError, IdError, SinkAddressError, StageError) as exc:
        raise CommandError(str(exc), status=Exit.WRONG_INPUT) from exc


async def _serve(config: RelayConfig, reporting: Reporting) -> None:
    with StopSignal() as stop:
        async with ActorSystem(watchdog=ThreadWatchdog(), name="relay") as system:
            early = _EarlyEvents(system)
            relay = RelayServer(config, emit=early.emit, clock=system.clock, random=system.random)
            await _listen(relay)
            why = None
            try:
                diagnostics = await _report(system, relay, reporting=reporting)
                early.release()
                notes = "" if diagnostics is None else f", reports to {reporting.collector_url}"
                announce("relay", relay.url, notes=notes)
                say(_for_nodes(relay))
                why = await stop.wait()
            finally:
                # The sessions end here; leaving the system afterwards ships what their ends said.
                await relay.stop("asked to stop" if why is None else why)
            if diagnostics is not None:
                await diagnostics.snapshot()
    say(f"relay stopped ({why})")


def _for_nodes(relay: RelayServer) -> str:
    """Return what a node's configuration needs to use this relay; a token is named by where it lies."""
    token = ", relay_token=<what the token file holds>" if relay.config.token is not None else ""
    allowed = relay.config.allowed_ids
    who = "" if allowed is None else f"; only {len(allowed)} listed node ids are admitted"
    return f'nodes use it with IrohTransport(..., relay_url="{relay.url}"{token}){who}'


async def _listen(relay: RelayServer) -> None:
    try:
        await relay.start()
    except OSError as exc:
        where = f"{relay.config.host}:{relay.config.port}"
        message = f"cannot listen on {where}: {exc.strerror or exc}"
        raise CommandError(message, status=Exit.WRONG_INPUT) from exc


async def _report(system: ActorSystem, relay: RelayServer, *, reporting: Reporting) -> Diagnostics | None:
    """Make this process a node of its run, if there is a collector."""
    if reporting.collector_url is None or not reporting.collector_url.strip():
        return None
    environ = {**os.environ, "SWACTOR_DIAG_COLLECTOR_URL": reporting.collector_url}
    ports = production_ports(environ, pid=os.getpid(), token=read_token(reporting.collector_token_file))
    identity = identity_from_env(
        environ,
        relay.node_id,
        clock=system.clock,
        boot_id=new_boot_id(system.random.stream("boot")),
        role="relay",
        run_id=reporting.run_id,
        machine=ports.machine,
        home_relay_url=relay.url,
    )
    surface = RelayServerIntrospector(relay.report)
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
