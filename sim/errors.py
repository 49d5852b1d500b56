"""What can go wrong with a simulation itself, as opposed to what goes wrong inside the simulated world.

Owns: the exceptions of the package. A failure that a scenario plays (a lost stream, a killed node) is never
one of these.
"""

SOCKETS = ("sockets", "the transport port")
NAMES = ("name resolution", "the resolver port")
CHILDREN = ("child processes", "the spawner port")
"""What no simulation has, whichever way it is asked for, and what to use instead."""


class SimulationError(Exception):
    """The simulation cannot go on, or was asked for something it cannot do."""


class DeadlockError(SimulationError):
    """Nothing is runnable and no timer is set, so virtual time can never move again."""

    def __init__(self, now_ns: int, waiting: tuple[str, ...]) -> None:
        named = ", ".join(waiting) or "no task"
        super().__init__(
            f"deadlock at {now_ns} ns: nothing is runnable and no timer is set; waiting: {named}"
        )
        self.now_ns, self.waiting = now_ns, waiting


class BusyLoopError(SimulationError):
    """More callbacks ran within one instant than any honest scenario needs: time would never move on."""

    def __init__(self, now_ns: int, callbacks: int, names: tuple[str, ...]) -> None:
        named = ", ".join(names) or "unnamed callbacks"
        super().__init__(
            f"busy loop at {now_ns} ns: {callbacks} callbacks ran and time did not move; next are {named}"
        )
        self.now_ns, self.callbacks, self.names = now_ns, callbacks, names


class ForbiddenInSimulationError(SimulationError):
    """Code inside a simulation reached for the outside world instead of for its ports."""

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(f"a simulation has no {what}; use {instead}")
        self.what, self.instead = what, instead


class ScenarioError(SimulationError):
    """A scenario file breaks a rule. Says which file, which field and which rule."""

    def __init__(self, file: str, field: str, rule: str) -> None:
        super().__init__(f"{file}: {field}: {rule}")
        self.file, self.field, self.rule = file, field, rule
