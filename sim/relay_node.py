"""The relay as a node of the run: it ships boot record, session events and its report.

Owns: the relay's boot function. Not here: the relay itself (`sim.relay`), its diagnostics (`swactor_diag`).
"""

from collections.abc import Mapping

import anyio

from sim.node import Boot
from sim.relay import SimRelay
from swactor import ActorSystem
from swactor_diag.identity import identity_from_env
from swactor_diag.introspect.relay_server import RelayServerIntrospector
from swactor_diag.ports import Ports
from swactor_diag.supervisor import Diagnostics


def relay_boot(relay: SimRelay, node_id: str) -> Boot:
    """Return the boot function of ``relay``; it serves until it is cancelled."""

    async def boot(ports: Ports, _config: Mapping[str, object]) -> None:
        async with ActorSystem(clock=ports.clock, random=ports.random, name="relay") as system:
            identity = identity_from_env(
                ports.environ,
                node_id,
                clock=ports.clock,
                boot_id=ports.random.stream("boot").token(8).hex(),
                machine=ports.machine,
                home_relay_url=relay.url,
            )
            report = RelayServerIntrospector(lambda: relay.book.report(relay.now()))
            await Diagnostics.from_ports(system, identity, ports=ports, introspectors=(report,))
            relay.emit = system.emit
            await anyio.sleep_forever()

    return boot
