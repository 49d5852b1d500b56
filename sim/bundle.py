"""The bundle of a simulated run: the production archive, plus ``sim/`` with what only the simulation knows.

Owns: what lies below ``sim/`` and the digest that two runs are compared by. Without ``sim/`` nothing
tells the bundle from a real one.
Not here: assembling it (`swactor_diag.collector`), reading it (`swactor_diag.postproc`).
"""

import gzip
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sim.errors import SimulationError
from swactor_diag.collector.bundle import BundleError, build_bundle

if TYPE_CHECKING:
    from sim.world import World


class NodeFate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one node, as the simulation knows it."""

    name: str
    role: str
    node_id_hex: str
    state: str
    failure: str = ""


class SimFacts(msgspec.Struct, frozen=True, kw_only=True):
    """``sim/run.json``."""

    scenario: str
    seed: int
    virtual_ns: int
    nodes: Sequence[NodeFate]


class SimBundle:
    """One archive in memory."""

    def __init__(self, archive: bytes, facts: SimFacts) -> None:
        self.archive = archive
        self.facts = facts

    @property
    def tar_bytes(self) -> bytes:
        """The archive without its compression, whose bytes depend on the zlib at hand."""
        return gzip.decompress(self.archive)

    @property
    def sha256(self) -> str:
        """Digest of the tar."""
        return hashlib.sha256(self.tar_bytes).hexdigest()

    def write(self, path: Path) -> None:
        """Write the ``tar.gz`` to ``path``."""
        path.write_bytes(self.archive)


def collect(world: "World") -> SimBundle:
    """Return the bundle of everything that the collector has at this moment.

    Raises:
        SimulationError: it has nothing.
    """
    facts = SimFacts(
        scenario=world.scenario.name,
        seed=world.seed,
        virtual_ns=world.loop.now_ns,
        nodes=[
            NodeFate(
                name=node.name,
                role=node.role,
                node_id_hex=node.node_id,
                state=node.state.value,
                failure=node.failure,
            )
            for node in world.nodes.values()
        ],
    )
    extra = {
        "sim/faults.json": _pretty(world.applied),
        "sim/run.json": _pretty(facts),
        "sim/scenario.json": _pretty(world.scenario),
    }
    try:
        return SimBundle(build_bundle(world.storage, world.run_id, extra=extra), facts)
    except BundleError as exc:
        fates = "; ".join(f"{node.name} {node.state} {node.failure}".strip() for node in facts.nodes)
        raise SimulationError(f"no record came to the collector ({fates})") from exc


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
