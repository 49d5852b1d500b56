"""The process of ``swactor collector``: an HTTP server and, when a run is named, a node of that run.

Owns: the order of start and stop. The node stops before the server, so that its last records are stored.
Not here: options (``collector``), what a collector does (``swactor_diag.collector``).
"""

import os

import anyio
import msgspec

from swactor import ActorSystem, ThreadWatchdog
from swactor_diag.cli._service import StopSignal, announce, service_node_id
from swactor_diag.cli.console import CommandError, Exit, put, say
from swactor_diag.collector.config import CollectorConfig, ConfigError
from swactor_diag.collector.descriptors import connections_affordable, raise_descriptor_limit
from swactor_diag.collector.local_sink import LocalSink
from swactor_diag.collector.server import CollectorServer
from swactor_diag.collector.storage import StorageError
from swactor_diag.delivery.sink import SinkAddressError
from swactor_diag.identity import StageError, identity_from_env, new_boot_id
from swactor_diag.ports import Ports, production_ports
from swactor_diag.schema.ids import IdError, check_id
from swactor_diag.supervisor import Diagnostics, standard


def serve(config: CollectorConfig, *, run_id: str | None) -> None:
    """Serve until asked to stop.

    Raises:
        CommandError: the settings are wrong, or the address cannot be listened on.
    """
    try:
        if run_id is not None:
            check_id(run_id, what="run id")
        raise_descriptor_limit()
        anyio.run(_serve, config, run_id)
    except (ConfigError, IdError, SinkAddressError, StageError) as exc:
        raise CommandError(str(exc), status=Exit.WRONG_INPUT) from exc


def show_trims(config: CollectorConfig) -> None:
    """Print what retention would remove now, one JSON object a line.

    Raises:
        CommandError: the settings are wrong, or the storage cannot be listed.
    """
    try:
        server = CollectorServer(config)
        for trim in server.trims_due():
            put(msgspec.json.encode(trim).decode())
    except ConfigError as exc:
        raise CommandError(str(exc), status=Exit.WRONG_INPUT) from exc
    except StorageError as exc:
        raise CommandError(str(exc)) from exc


async def _serve(config: CollectorConfig, run_id: str | None) -> None:
    ports = None if run_id is None else production_ports(os.environ, pid=os.getpid())
    with StopSignal() as stop:
        async with CollectorServer(config) as server:
            notes = f", records below {config.storage or config.root}"
            affordable = connections_affordable(config.connections_max)
            if affordable != config.connections_max:
                notes += f", at most {affordable} connections (limit of open files)"
            if server.udp_port is not None:
                notes += f", UDP echo on port {server.udp_port}"
            if ports is None or run_id is None:
                announce("collector", server.url, notes=notes)
                why = await stop.wait()
            else:
                async with ActorSystem(watchdog=ThreadWatchdog(), name="collector") as system:
                    diagnostics = await _become_node(
                        system, server, config=config, ports=ports, run_id=run_id
                    )
                    announce("collector", server.url, notes=f"{notes}, node of run {run_id}")
                    why = await stop.wait()
                    await diagnostics.snapshot()
    say(f"collector stopped ({why})")


async def _become_node(
    system: ActorSystem, server: CollectorServer, *, config: CollectorConfig, ports: Ports, run_id: str
) -> Diagnostics:
    identity = identity_from_env(
        os.environ,
        service_node_id("collector", server.url),
        clock=system.clock,
        boot_id=new_boot_id(system.random.stream("boot")),
        role="collector",
        run_id=run_id,
        machine=ports.machine,
    )
    sink = LocalSink(
        server.ingest,
        clock=system.clock,
        loop=system.loop,
        finalize_wait_s=config.finalize_wait_s,
        flushed=server.flushed,
    )
    return await Diagnostics.start(system, identity, sink=sink, introspectors=standard(system, ports))
