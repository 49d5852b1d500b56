"""The processes of one simulated node: itself, and the scripted children that its spawner starts.

Owns: process ids, the table behind the node's ``/proc``, signals from outside, and that children die with
their node.
Not here: what a child does (its script), the text of ``/proc`` (`sim.machine`).
"""

from collections.abc import Mapping

from sim.loop import NodeScheduler, VirtualLoop
from sim.machine import NS_PER_TICK, Running
from sim.streams import Substream
from swactor.abc import Clock
from swactor_process.events import SubprocessLeftBehind
from swactor_process.spawner import Child, ChildListener
from swactor_process.spec import ProcessSpec
from swactor_process.surroundings import Surroundings
from swactor_process.testing import Program, ScriptedSpawner

FIRST_PID_MIN = 400
FIRST_PID_SPREAD = 30_000


class Processes:
    """Implements `swactor_process.Spawner`; its children run in virtual time."""

    def __init__(
        self,
        loop: VirtualLoop,
        clock: Clock,
        random: Substream,
        *,
        command: tuple[str, ...],
        programs: Mapping[str, Program],
    ) -> None:
        self.pid = FIRST_PID_MIN + random.below(FIRST_PID_SPREAD)
        self._scheduler = NodeScheduler(loop)
        self._own = Running(self.pid, 1, command, clock.monotonic_ns() // NS_PER_TICK)
        self._scripted = ScriptedSpawner(
            self._scheduler, clock, programs=programs, parent_pid=self.pid, first_pid=self.pid + 1
        )

    def spawn(self, spec: ProcessSpec, listener: ChildListener) -> Child:
        """Start the script of ``spec.program``; see `Spawner.spawn`."""
        return self._scripted.spawn(spec, listener)

    @property
    def surroundings(self) -> Surroundings:
        """What is around the children; see `Surrounded.surroundings`."""
        return self._scripted.surroundings

    @property
    def left_behind(self) -> tuple[SubprocessLeftBehind, ...]:
        """Nothing: a node that is killed here takes its children with it."""
        return self._scripted.left_behind

    def close(self) -> None:
        """Nothing is held open."""

    def die(self) -> None:
        """Be gone, children included: the guardian of a killed node kills their groups."""
        self._scheduler.close()

    def kill(self, program: str, number: int) -> int:
        """Signal every living child that runs ``program``; return how many there were."""
        found = [child for child in self._scripted.living() if child.spec.program == program]
        for child in found:
            child.signal(number)
        return len(found)

    def running(self, pid: int) -> Running | None:
        """Return the living process ``pid``, which is the node or a child of it."""
        if pid == self.pid:
            return self._own
        for child in self._scripted.living():
            if child.pid == pid:
                return Running(pid, self.pid, child.spec.command, child.start_time, child.state() or "Z")
        return None
